package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

// passedPrefixes and passedNames are of the variables of a user's environment that reach the ranks: what the library
// and its runtime read. rccl-tests' processes would see them, too.
var (
	passedPrefixes = []string{"NCCL_", "RCCL_", "HSA_", "HIP_", "ROCR_", "GPU_", "AMD_"}
	passedNames    = []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS",
		"CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"}
	// labels of container images that the library never reads.
	notPassed = []string{"NCCL_VERSION", "HIP_PATH", "HIP_PLATFORM", "NCCL_HOME", "RCCL_HOME"}
)

// ownVariables are a user's own variables: those of the environment that the library reads, and over them those that
// were given for the ranks.
func ownVariables(environ []string, given []rcclx.EnvVar) []rcclx.EnvVar {
	var out []rcclx.EnvVar
	set := func(e rcclx.EnvVar) {
		if i := slices.IndexFunc(out, func(x rcclx.EnvVar) bool { return x.Name == e.Name }); i >= 0 {
			out[i] = e
			return
		}
		out = append(out, e)
	}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		prefixed := slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if ok && (prefixed && !slices.Contains(notPassed, name) || slices.Contains(passedNames, name)) {
			set(rcclx.EnvVar{Name: name, Value: value})
		}
	}
	for _, e := range given {
		set(e)
	}
	slices.SortFunc(out, func(a, b rcclx.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func assignments(vars []rcclx.EnvVar) []string {
	out := make([]string, 0, len(vars))
	for _, e := range vars {
		out = append(out, e.Name+"="+e.Value)
	}
	return out
}

// fit holds the plan against the library that was loaded: element types that it lacks are a usage error, and a variant
// whose feature it does not have is left out, since it would be Baseline under another name.
func (x *bench) fit() error {
	gates := x.lib.Gates()
	for _, d := range x.Datatypes {
		if ok, why := rcclx.DatatypeSupport(gates, x.lib.VersionCode, d); !ok {
			return usage("%s cannot be measured with %s: %s", d, libraryName(*x.lib), why)
		}
	}
	var kept []variantPlan
	for _, v := range x.plan.variants {
		if why := x.lacks(v.variant); why != "" {
			x.warn("%s is left out: %s", v.variant, why)
			for _, s := range v.steps {
				if s.Kind == rank.StepMeasure {
					x.plan.total -= len(s.SizesBytes)
				}
			}
			continue
		}
		kept = append(kept, v)
	}
	x.plan.variants = kept
	if len(kept) == 0 {
		return usage("no variant to measure: %s", strings.Join(x.report.Warnings, "; "))
	}
	return nil
}

func libraryName(lib rcclx.LibraryInfo) string {
	name := lib.Path
	if name == "" {
		name = "the library"
	}
	return fmt.Sprintf("%s (flavor %s, version %s)", name, lib.Gates(), lib.VersionString())
}

// lacks says why the library has nothing of a variant's feature; empty where it has, or may.
func (x *bench) lacks(v rcclx.Variant) string {
	if v == rcclx.Baseline {
		return ""
	}
	var why string
	for _, e := range x.effectives(v) {
		if e.Reason != rcclx.ReasonFlavorUnsupported {
			return ""
		}
		why = e.Message
	}
	return why
}

// scope is what the gates are asked about.
func (x *bench) scope() rcclx.Scope {
	sc := rcclx.Scope{Audience: audience.Shell, Ranks: len(x.Devices), Nodes: 1, GFX: rcclx.GFXOf(x.lib.DeviceName),
		Datatypes: x.Datatypes, SizesBytes: x.SizesBytes}
	for _, c := range x.Collectives {
		if slices.Contains(rcclx.Collectives(), c) {
			sc.Collectives = append(sc.Collectives, c)
		}
	}
	return sc
}

// effectives are what the gates allow for a variant's feature; empty where no collective is measured that has it.
func (x *bench) effectives(v rcclx.Variant) []rcclx.Effective {
	prefix := map[rcclx.Variant]string{rcclx.DDA: rcclx.PrefixDDA, rcclx.LowPrecision: rcclx.PrefixLowPrecision}[v]
	sc := x.scope()
	if prefix == "" || len(sc.Collectives) == 0 {
		return nil
	}
	var out []rcclx.Effective
	for _, e := range rcclx.Effectives(x.lib.Gates(), x.settingsOf(v), sc) {
		if strings.HasPrefix(e.Name, prefix) {
			out = append(out, e)
		}
	}
	return out
}

// settings are requested against effective of each measured variant, each asked about alone as it is measured alone,
// and the user's own variables that the library does not read or that a variant overrides.
func (x *bench) settings() []rcclx.Effective {
	var out []rcclx.Effective
	for _, v := range x.plan.variants {
		out = append(out, x.effectives(v.variant)...)
	}
	for _, v := range x.plan.variants {
		for _, e := range rcclx.Effectives(x.lib.Gates(), x.settingsOf(v.variant), x.scope()) {
			if strings.HasPrefix(e.Name, "env.") &&
				!slices.ContainsFunc(out, func(o rcclx.Effective) bool { return o.Name == e.Name }) {
				out = append(out, e)
			}
		}
	}
	return out
}

// memory refuses sizes that do not fit, and names the largest that does.
func (x *bench) memory(ranks []supervise.RankOutcome) (failed bool) {
	gates, n := x.lib.Gates(), len(x.Devices)
	need := x.plan.memoryBytes(gates, n, noLimit)
	for _, r := range ranks {
		lib := r.Library
		if lib == nil || lib.TotalMemoryBytes <= 0 || lib.FreeMemoryBytes >= need {
			continue
		}
		least := lib.FreeMemoryBytes
		for _, other := range ranks {
			if other.Library != nil && other.Library.TotalMemoryBytes > 0 {
				least = min(least, other.Library.FreeMemoryBytes)
			}
		}
		next := "end what else uses the GPU"
		if largest := x.plan.largestBytes(gates, n, least); largest > 0 {
			next = fmt.Sprintf("the largest size that fits is %s: give --sizes up to that, or %s",
				sizeText(largest), next)
		}
		x.failBefore(rank.CodeInsufficientMemory, r.Rank, fmt.Sprintf("rank %d (GPU %s) has %d of %d bytes free, "+
			"and sizes up to %s need %d for buffers and the library's pools; %s", r.Rank, x.device(r.Rank),
			lib.FreeMemoryBytes, lib.TotalMemoryBytes, sizeText(slices.Max(x.SizesBytes)), need, next))
		return true
	}
	return false
}

// failure tells what became of a team that did not come to its end.
func (x *bench) failure(v rcclx.Variant, out supervise.Outcome) *results.Failure {
	f := out.Failure
	r := &results.Failure{Variant: v, Kind: string(f.Kind), Code: f.Code, Step: f.Step, Message: f.Message, RAS: f.RAS,
		LogTail: out.LogTail(logTailBytes), Next: next(v, f)}
	if f.Rank >= 0 {
		r.Rank, r.Device = &f.Rank, x.device(f.Rank)
	}
	if f.Code == rank.CodeLibraryMissing && len(x.facts.NVIDIAGPUs) > 0 && x.LibraryPath == "" {
		r.Next = "this machine's GPUs are NVIDIA's: give --library libnccl.so.2 --runtime libcudart.so"
	}
	r.DetectedNanoseconds, r.FreedNanoseconds = f.DetectedAfter.Nanoseconds(), out.KillDuration.Nanoseconds()
	for _, o := range out.Ranks {
		state := results.RankState{Rank: o.Rank, Device: x.device(o.Rank), Doing: o.Doing()}
		if o.Error == nil { // a rank that said what is wrong ends by itself
			state.Exit = o.Exit
		}
		for _, d := range f.Doing { // of the moment of the failure
			if d.Rank == o.Rank {
				state.Doing = fmt.Sprintf("%s for %s", d.Doing, d.For.Round(time.Millisecond))
			}
		}
		r.Ranks = append(r.Ranks, state)
	}
	return r
}

const logTailBytes = 4096

// next says what to do after a failure whose message does not.
func next(v rcclx.Variant, f *supervise.Failure) string {
	gpu := "all GPUs of the communicator, since all ranks stand alike"
	switch {
	case f.Rank >= 0:
		gpu = fmt.Sprintf("the GPU of rank %d", f.Rank)
	case len(f.Behind) == 1:
		gpu = fmt.Sprintf("the GPU of rank %d, which is behind the others", f.Behind[0])
	case len(f.Behind) > 0:
		gpu = fmt.Sprintf("the GPUs of ranks %s, which are behind the others", strings.Trim(fmt.Sprint(f.Behind), "[]"))
	}
	if f.ByRAS {
		gpu += " by RAS's word"
	}
	hardware := fmt.Sprintf("look at dmesg and the RAS error counters of %s, and measure halves of the GPUs with "+
		"--devices to see which one it follows", gpu)
	if v != "" && v != rcclx.Baseline {
		hardware = fmt.Sprintf("measure the same with --variants Baseline: where that works, %s is at fault, else %s",
			v, hardware)
	}
	switch f.Kind {
	case supervise.FailHung, supervise.FailDied:
		if f.Killed || len(f.Stopped) > 0 {
			return ""
		}
		return hardware
	}
	return ""
}
