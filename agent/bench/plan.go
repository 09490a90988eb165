package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// pairProbeMaxBytes bounds the message between two GPUs: large enough to fill a link.
	pairProbeMaxBytes = 16 << 20
	// maxIterations keeps a typing error from running for days.
	maxIterations = 1_000_000
	noLimit       = math.MaxInt64
)

// plan is what each variant's ranks will do.
type plan struct {
	config   Config
	env      []rcclx.EnvVar // the person's own
	variants []variantPlan
	// total is the number of results to come.
	total   int
	remarks []remark
}

// remark is what a reader must know of some of the plan's parts.
type remark struct {
	text string
	of   []string
}

// warnings are the remarks, one sentence each.
func (p plan) warnings() []string {
	out := make([]string, 0, len(p.remarks))
	for _, r := range p.remarks {
		out = append(out, fmt.Sprintf("%s: %s", r.text, strings.Join(r.of, ", ")))
	}
	return out
}

type variantPlan struct {
	variant rcclx.Variant
	steps   []rank.Step
}

// validate looks at what needs no look at the machine.
func (x *bench) validate() error {
	c := &x.Config
	for name, empty := range map[string]bool{"collectives": len(c.Collectives) == 0, "datatypes": len(c.Datatypes) == 0,
		"placements": len(c.Placements) == 0, "sizes": len(c.SizesBytes) == 0, "variants": len(c.Variants) == 0} {
		if empty {
			return usage("no %s: name at least one", name)
		}
	}
	switch {
	case c.Ranks < 0:
		return usage("%d ranks: give at least 1, or none for all GPUs", c.Ranks)
	case c.Ranks > 0 && len(c.Devices) > 0 && c.Ranks != len(c.Devices):
		return usage("%d ranks on %d devices: give as many devices as ranks, or one of the two",
			c.Ranks, len(c.Devices))
	case c.Iterations < 1 || c.Iterations > maxIterations || c.WarmupIterations < 0 ||
		c.WarmupIterations > maxIterations:
		return usage("%d iterations after %d of warm-up: give 1 to %d, and 0 to %d",
			c.Iterations, c.WarmupIterations, maxIterations, maxIterations)
	case c.InitDeadline <= 0 || c.StepDeadline <= 0 || c.Deadline < 0:
		return usage("init deadline %s, step deadline %s, deadline %s: give the first two over zero",
			c.InitDeadline, c.StepDeadline, c.Deadline)
	}
	for i, d := range c.Devices {
		if d < 0 || slices.Contains(c.Devices[:i], d) {
			return usage("device %d of %v: give each device once, from 0", d, c.Devices)
		}
	}
	return nil
}

// choose decides the devices where the user did not.
func (x *bench) choose() error {
	if len(x.Devices) > 0 {
		return nil
	}
	ranks := x.Ranks
	if ranks == 0 {
		need := preflight.Need{Environ: assignments(x.env)}
		var unknown string
		if ranks, unknown = x.facts.VisibleGPUs(need); unknown != "" {
			return usage("how many GPUs to use is not known (%s): give --ranks or --devices", unknown)
		}
		if hidden := x.facts.HiddenBy(need); ranks == 0 && hidden != "" {
			return usage("no GPU is left to use: %s", hidden)
		}
		if ranks == 0 {
			return usage("found no GPU: neither KFD's topology nor /proc/driver/nvidia/gpus shows one, or a variable " +
				"hides all; where the machine has some, give --ranks or --devices")
		}
	}
	devices := make([]int, ranks)
	for i := range devices {
		devices[i] = i
	}
	x.Devices = devices
	return nil
}

// makePlan turns the request into steps. What a collective does not have is left out with a warning; where nothing is
// left the request is an error.
func makePlan(c Config, env []rcclx.EnvVar) (plan, error) {
	p := plan{config: c, env: env}
	ranks := len(c.Devices)
	for _, v := range c.Variants {
		if slices.ContainsFunc(p.variants, func(x variantPlan) bool { return x.variant == v }) {
			continue
		}
		vp := variantPlan{variant: v}
		for _, collective := range c.Collectives {
			for _, d := range c.Datatypes {
				for _, place := range c.Placements {
					p.step(&vp, collective, d, place, ranks)
				}
			}
		}
		if v == rcclx.LowPrecision {
			p.hazards(&vp, ranks)
		}
		p.variants = append(p.variants, vp)
	}
	if p.total == 0 {
		return p, usage("nothing to measure: %s", strings.Join(p.warnings(), "; "))
	}
	if c.PairProbe && ranks > 1 {
		first := &p.variants[0]
		first.steps = append(first.steps, rank.Step{Kind: rank.StepPairProbe,
			SizesBytes:       []int64{max(min(pairProbeMaxBytes, slices.Max(c.SizesBytes)), 4)},
			WarmupIterations: c.WarmupIterations, Iterations: c.Iterations})
	}
	return p, nil
}

// remark notes something of one part, once.
func (p *plan) remark(text, of string) {
	i := slices.IndexFunc(p.remarks, func(r remark) bool { return r.text == text })
	if i < 0 {
		i = len(p.remarks)
		p.remarks = append(p.remarks, remark{text: text})
	}
	if !slices.Contains(p.remarks[i].of, of) {
		p.remarks[i].of = append(p.remarks[i].of, of)
	}
}

// step adds one collective, datatype and placement, split by what its sizes are checked with.
func (p *plan) step(vp *variantPlan, c rcclx.Collective, d rcclx.Datatype, place rcclx.Placement, ranks int) {
	if place == rcclx.InPlace && !rcclx.HasInPlace(c) {
		p.remark("left out in place, which they do not have", string(c))
		return
	}
	sizes := rcclx.MeasurableSizes(c, d, p.config.SizesBytes, ranks)
	if n := len(p.config.SizesBytes) - len(sizes); n > 0 {
		p.remark("sizes that leave a rank or a peer without an element are left out",
			fmt.Sprintf("%d of %s %s", n, c, d))
	}
	// Sizes that round down to the same call are one.
	var rounded []int64
	for _, size := range sizes {
		if shape, err := rcclx.ShapeOf(c, d, size, ranks); err == nil && !slices.Contains(rounded, shape.SizeBytes()) {
			rounded = append(rounded, shape.SizeBytes())
		}
	}
	if !slices.Equal(rounded, sizes) {
		p.remark("sizes are rounded down to whole elements for each rank", fmt.Sprintf("%s %s", c, d))
	}
	base := rank.Step{Kind: rank.StepMeasure, Collective: c, Datatype: d, Placement: place,
		WarmupIterations: p.config.WarmupIterations, Iterations: p.config.Iterations}
	add := func(sizes []int64, data ...rcclx.Data) {
		if len(sizes) == 0 {
			return
		}
		s := base
		s.SizesBytes, s.Data = sizes, data
		vp.steps = append(vp.steps, s)
		p.total += len(sizes)
	}
	switch {
	case len(p.config.Data) > 0:
		add(rounded, p.config.Data...)
	case vp.variant == rcclx.LowPrecision && rcclx.KnowsLowPrecision(c, d):
		from, _ := slices.BinarySearch(rounded, rcclx.LowPrecisionMinBytes)
		add(rounded[:from], rcclx.DataRounding)
		add(rounded[from:], rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations)
	default:
		add(rounded, rcclx.DataExact)
	}
}

// hazards adds the counts at which FP8 is known to lose data, as agent run tries them, less those that are measured
// already.
func (p *plan) hazards(vp *variantPlan, ranks int) {
	c := p.config
	for _, step := range executor.HazardSteps(c.Collectives, c.Datatypes, c.Placements, c.SizesBytes,
		c.LowPrecision, ranks) {
		step.SizesBytes = slices.DeleteFunc(step.SizesBytes, func(size int64) bool {
			return slices.ContainsFunc(vp.steps, func(s rank.Step) bool {
				return s.Collective == step.Collective && s.Datatype == step.Datatype &&
					s.Placement == step.Placement && slices.Contains(s.SizesBytes, size)
			})
		})
		if len(step.SizesBytes) > 0 {
			vp.steps = append(vp.steps, step)
			p.total += len(step.SizesBytes)
		}
	}
}

// memoryBytes is the most that a rank of any variant allocates on its GPU, for sizes up to limit.
func (p plan) memoryBytes(gates rcclx.Flavor, ranks int, limitBytes int64) int64 {
	var need int64
	for _, v := range p.variants {
		calls := rank.MemoryCalls(v.steps)
		for i := range calls {
			calls[i].SizeBytes = min(calls[i].SizeBytes, limitBytes)
		}
		need = max(need,
			rcclx.MemoryNeed(gates, v.variant, settingsOf(p.config, p.env, v.variant), ranks, calls).TotalBytes())
	}
	return need
}

// largestBytes is the largest power of two of message sizes that fits so much free memory; zero where none does.
func (p plan) largestBytes(gates rcclx.Flavor, ranks int, freeBytes int64) int64 {
	for size := int64(1) << 62; size > 0; size >>= 1 {
		if p.memoryBytes(gates, ranks, size) <= freeBytes {
			return size
		}
	}
	return 0
}

// sizeText writes a size as --sizes takes it.
func sizeText(bytes int64) string {
	for _, u := range []struct {
		unit  string
		bytes int64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if bytes >= u.bytes && bytes%u.bytes == 0 {
			return fmt.Sprintf("%d%s", bytes/u.bytes, u.unit)
		}
	}
	return fmt.Sprint(bytes)
}

// missing says what the plan asked for and no rank delivered, though none failed.
func (v variantPlan) missing(c *collector, ranks, pairs int) []string {
	var out []string
	for _, step := range v.steps {
		if step.Kind == rank.StepPairProbe {
			if want := ranks * (ranks - 1) / 2; pairs < want {
				out = append(out,
					fmt.Sprintf("%s: %d of %d pairs of ranks were not measured", v.variant, want-pairs, want))
			}
			continue
		}
		for _, size := range step.SizesBytes {
			k := cellKey{step.Collective, step.Datatype, step.Placement, size}
			switch by := c.cells[k]; {
			case len(by) < ranks:
				out = append(out,
					fmt.Sprintf("%s %s: %d of %d ranks did not measure it", v.variant, k, ranks-len(by), ranks))
			default:
				if r := combine(v.variant, ranks, by); !allChecked(r.Checks, step.Data) {
					out = append(out, fmt.Sprintf("%s %s was not checked with all of %v", v.variant, k, step.Data))
				}
			}
		}
	}
	return out
}

// allChecked says whether elements were compared with each kind of data.
func allChecked(checks []rcclx.CheckResult, data []rcclx.Data) bool {
	for _, d := range data {
		if !slices.ContainsFunc(checks, func(c rcclx.CheckResult) bool {
			return c.Data == d && c.CheckedElements > 0
		}) {
			return false
		}
	}
	return true
}
