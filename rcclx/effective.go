package rcclx

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
)

// Effective states.
const (
	StateInEffect    = "InEffect"
	StatePartial     = "Partial"
	StateNotInEffect = "NotInEffect"
	StateUnknown     = "Unknown"
)

// Scope is what effective settings are asked about. Empty lists mean everything: all four collectives, Float32 and
// BFloat16 and Float16, and sizes from 1 KiB to 1 GiB by powers of two.
type Scope struct {
	Ranks, Nodes int
	Collectives  []Collective
	Datatypes    []Datatype
	SizesBytes   []int64
	// GFX is the GPU's architecture, as in Call; empty where it is not known.
	GFX string
	// Audience that the messages advise.
	Audience audience.Audience
}

func (sc Scope) filled() Scope {
	if len(sc.Collectives) == 0 {
		sc.Collectives = Collectives()
	}
	if len(sc.Datatypes) == 0 {
		sc.Datatypes = []Datatype{Float32, BFloat16, Float16}
	}
	if len(sc.SizesBytes) == 0 {
		sc.SizesBytes = Sizes(1<<10, 1<<30, 2)
	}
	return sc
}

// Effectives says for every setting and collective in scope, and for every variable of a user's own that this flavor
// does not read or that a setting overrides, what the gates of flavor f allow for a job with these settings. f is the
// flavor whose gates hold (LibraryInfo.Gates).
func Effectives(f Flavor, s Settings, sc Scope) []Effective {
	sc = sc.filled()
	env := environmentMap(JobEnvironment(f, s))
	var all []Effective
	for _, c := range sc.Collectives {
		all = append(all, effectiveDDA(f, s, env, sc, c))
	}
	for _, c := range sc.Collectives {
		all = append(all, effectiveLowPrecision(f, s, env, sc, c))
	}
	return append(all, effectiveVariables(f, s, sc.Audience)...)
}

// The names of settings begin with the feature.
const (
	PrefixDDA          = "dda."
	PrefixLowPrecision = "lowPrecision."
)

// SettingName is what the setting is called that a variant measures: "dda.AllReduce".
func SettingName(v Variant, c Collective) string {
	if v == LowPrecision {
		return PrefixLowPrecision + string(c)
	}
	return PrefixDDA + string(c)
}

func requested(m Mode) string {
	if m == "" {
		return string(ModeDisabled)
	}
	return string(m)
}

func unknownFlavor(f Flavor) bool { return f == FlavorUnknown || f == FlavorSimulated || f == "" }

const unknownFlavorMessage = "the library's flavor is not known, so nothing can be said of its gates: " +
	"name a library that agent explain lists"

func effectiveDDA(f Flavor, s Settings, env environment, sc Scope, c Collective) Effective {
	e := Effective{Name: SettingName(DDA, c), Requested: requested(s.DDA.Mode)}
	switch {
	case !s.DDA.Mode.Requests():
		return e.not(ReasonDisabled, "not asked for: set dda.mode to Preferred")
	case unknownFlavor(f):
		return e.unknown(unknownFlavorMessage)
	}
	t := tally(sc, c, func(call Call) gate {
		_, g := ddaGate(f, env, call)
		if g.reason == ReasonNotBuilt || g.reason == ReasonFlavorUnsupported {
			return g
		}
		if lowPrecisionGate(f, env, call).open() {
			return closed(ReasonTakenByFP8, "from %s FP8 takes the call before DDA", exactBytes(lowPrecisionMinBytes))
		}
		if c == AllGather && env.lowPrecision(f, c) {
			return closed(ReasonNotApplied, "while FP8 is on, AllGather goes peer to peer and never to DDA")
		}
		return g
	})
	e = t.fill(e)
	if e.State != StateInEffect && e.State != StatePartial {
		return e
	}
	switch f {
	case FlavorRCCLXDev:
		limit := min(env.limitBytes(envDDATreeMax), env.limitBytes(envDDASendBuffer))
		if env.lowPrecision(f, c) && !slices.Contains(sc.Datatypes, Float16) {
			limit = min(limit, lowPrecisionMinBytes-1)
		}
		e.MaxBytes = &limit
	case FlavorRCCLDDA:
		if limit := env.integer(envAMDThreshold); limit >= 0 {
			e.MaxBytes = &limit
		}
	}
	return e
}

func effectiveLowPrecision(f Flavor, s Settings, env environment, sc Scope, c Collective) Effective {
	e := Effective{Name: SettingName(LowPrecision, c), Requested: requested(s.LowPrecision.Mode)}
	switch {
	case !s.LowPrecision.wants(c):
		e.Requested = string(ModeDisabled)
		return e.not(ReasonDisabled,
			"not asked for: set lowPrecision.mode to Preferred and name the collective, or none for all")
	case unknownFlavor(f):
		return e.unknown(unknownFlavorMessage)
	case f == FlavorRCCLXStable && !s.LowPrecision.all():
		advice := audience.Advice{Pod: "leave lowPrecision.collectives empty",
			Shell: "leave --low-precision-collectives out"}
		return e.not(ReasonFlavorUnsupported,
			fmt.Sprintf("rcclx-stable can switch FP8 for all collectives only: %s, or use rcclx-dev",
				advice.For(sc.Audience)))
	}
	t := tally(sc, c, func(call Call) gate { return lowPrecisionGate(f, env, call) })
	e = t.fill(e)
	if e.State == StateInEffect || e.State == StatePartial {
		least := int64(lowPrecisionMinBytes)
		e.MinBytes = &least
	}
	return e
}

func (e Effective) not(reason, message string) Effective {
	e.State, e.Reason, e.Message = StateNotInEffect, reason, message
	return e
}

func (e Effective) unknown(message string) Effective {
	e.State, e.Reason, e.Message = StateUnknown, ReasonUnknown, message
	return e
}

// counts of a setting over the calls of a scope.
type counts struct {
	audience    audience.Audience
	calls, open int
	unknown     *gate
	closed      []gate // the first of each reason
}

func tally(sc Scope, c Collective, ask func(Call) gate) counts {
	t := counts{audience: sc.Audience}
	for _, d := range sc.Datatypes {
		for _, size := range sc.SizesBytes {
			g := ask(Call{Collective: c, Datatype: d, Op: "Sum", SizeBytes: size, Ranks: sc.Ranks, Nodes: sc.Nodes,
				GFX: sc.GFX}.exact())
			t.calls++
			switch {
			case g.open():
				t.open++
			case g.reason == ReasonUnknown:
				t.unknown = &g
			case !slices.ContainsFunc(t.closed, func(o gate) bool { return o.reason == g.reason }):
				t.closed = append(t.closed, g)
			}
		}
	}
	return t
}

func (t counts) fill(e Effective) Effective {
	switch {
	case t.unknown != nil:
		return e.unknown(t.unknown.text(t.audience))
	case t.open == t.calls && t.calls > 0:
		e.State, e.Reason = StateInEffect, ReasonActive
		e.Message = "in effect for every size and datatype asked about"
	case t.open > 0:
		e.State, e.Reason, e.Gates = StatePartial, t.closed[0].reason, t.gates()
		e.Message = fmt.Sprintf("in effect for %d of %d sizes and datatypes; not for others: %s",
			t.open, t.calls, e.Gates)
	case len(t.closed) == 0:
		return e.unknown("no size and datatype was asked about")
	default:
		return e.not(t.closed[0].reason, t.gates())
	}
	return e
}

// gates are the words of every gate that is shut for some call.
func (t counts) gates() string {
	words := make([]string, 0, len(t.closed))
	for _, g := range t.closed {
		words = append(words, g.text(t.audience))
	}
	return strings.Join(words, "; ")
}
