package rcclx

import (
	"fmt"
	"maps"
	"slices"

	"rcclx.io/commgroup-operator/internal/audience"
)

// Reasons for an effective state. They are the reasons in Effective.Reason.
const (
	ReasonActive              = "Active"
	ReasonNotBuilt            = "NotBuilt"
	ReasonMultiNode           = "MultiNode"
	ReasonRankCount           = "RankCount"
	ReasonBelowThreshold      = "BelowThreshold"
	ReasonAboveThreshold      = "AboveThreshold"
	ReasonDatatypeUnsupported = "DatatypeUnsupported"
	ReasonOpUnsupported       = "OpUnsupported"
	ReasonAlignment           = "Alignment"
	ReasonUnknownVariable     = "UnknownVariable"
	ReasonFlavorUnsupported   = "FlavorUnsupported"
	ReasonDisabled            = "Disabled"
	ReasonNotApplied          = "NotApplied"
	ReasonTakenByFP8          = "TakenByFP8"
	ReasonUnknown             = "Unknown"
)

// gate is the answer of one gate: why a path is not taken. An empty reason means that it is.
type gate struct {
	reason  string // one of the reasons above
	message string
	advice  audience.Advice
	// ifOn is set where the path is switched off, and would take the call if it were on.
	ifOn bool
}

func (g gate) open() bool { return g.reason == "" }

// text is the message with the advice for one audience.
func (g gate) text(who audience.Audience) string {
	if advice := g.advice.For(who); advice != "" {
		return g.message + ": " + advice
	}
	return g.message
}

func closed(reason, format string, args ...any) gate {
	return gate{reason: reason, message: fmt.Sprintf(format, args...)}
}

// off is the gate of a path that is switched off: whether it would take the call if it were on, and how to switch it
// on.
func off(what, setting string, on gate) gate {
	if on.open() {
		g := closed(ReasonDisabled, "%s, and would take the call if it were on: set %s to Preferred", what, setting)
		g.ifOn = true
		return g
	}
	return closed(ReasonDisabled, "%s, and would not take the call if it were on: %s", what, on.text(audience.Pod))
}

// with is the environment with one variable changed.
func (e environment) with(name, value string) environment {
	changed := maps.Clone(e)
	if changed == nil {
		changed = environment{}
	}
	changed[name] = value
	return changed
}

func (c Call) sum() string {
	if c.Op == "" {
		return "Sum"
	}
	return c.Op
}

// exact is the call with the size that really moves, which is rounded down to whole elements for every rank.
func (c Call) exact() Call {
	if shape, err := ShapeOf(c.Collective, c.Datatype, c.SizeBytes, c.Ranks); err == nil {
		c.SizeBytes = shape.SizeBytes()
	}
	return c
}

// lowPrecisionGate follows collectives.cc:111-134 (AllGather), 218-228 (AllToAll), 342-349 (AllReduce) and 766-778
// (ReduceScatter). There is no gate for ranks, nodes or the GPU's architecture: see notes for what the kernels need.
func lowPrecisionGate(f Flavor, env environment, c Call) gate {
	switch {
	case f == FlavorNCCL:
		return closed(ReasonFlavorUnsupported, "library flavor %s has no FP8 transport", f)
	case !f.rcclx():
		return closed(ReasonFlavorUnsupported, "library flavor %s has no FP8 transport: use an RCCLX library", f)
	case !slices.Contains(Collectives(), c.Collective):
		return closed(ReasonNotBuilt, "FP8 has no %s: it takes AllReduce, AllGather, ReduceScatter and AllToAll",
			c.Collective)
	case !env.lowPrecision(f, c.Collective):
		return off("FP8 is off for "+string(c.Collective), settingFP8Mode,
			lowPrecisionGate(f, env.with(envFP8, "1"), c))
	case !KnowsLowPrecision(c.Collective, c.Datatype):
		return closed(ReasonDatatypeUnsupported, "FP8 takes Float32 and BFloat16, not %s", c.Datatype)
	case reduces(c.Collective) && c.sum() != "Sum":
		return closed(ReasonOpUnsupported, "FP8 takes the operation Sum, not %s", c.Op)
	case c.SizeBytes < lowPrecisionMinBytes:
		return closed(ReasonBelowThreshold, "under FP8's fixed least size of %s", exactBytes(lowPrecisionMinBytes))
	}
	return gate{}
}

// ddaDatatype says whether DDA has kernels for a datatype (torchcomms comms/common/algorithms/*/*AlgoManager.cu,
// rocm-systems projects/rccl/src/algorithms/dda/*/dda_*_ipc.cu).
func ddaDatatype(d Datatype) bool { return d == Float32 || d == Float16 || d == BFloat16 }

func ddaGate(f Flavor, env environment, c Call) (Path, gate) {
	switch f {
	case FlavorRCCLXDev:
		return rcclxDDAGate(env, c)
	case FlavorRCCLXStable:
		// AllReduceAlgoManager::getAllReduceAlgo returns nullptr in the code that the snapshot is compiled with.
		return "", closed(ReasonNotBuilt,
			"rcclx-stable reads the DDA variables, but its build never takes a DDA path: use rcclx-dev")
	case FlavorRCCLDDA:
		return PathDDA, amdDDAGate(env, c)
	}
	return "", closed(ReasonFlavorUnsupported, "library flavor %s has no DDA", f)
}

// rcclxDDAGate follows init.cc and meta/algorithms/AlgoInit.h:38-57 for the communicator, and comms/common/algorithms/
// all_reduce/AllReduceAlgoManager.cu for the call.
func rcclxDDAGate(env environment, c Call) (Path, gate) {
	ranks := env.integer(envDDARanks)
	flat, tree, buffer := env.limitBytes(envDDAFlatMax), env.limitBytes(envDDATreeMax), env.limitBytes(envDDASendBuffer)
	shut := func(reason, format string, args ...any) (Path, gate) { return "", closed(reason, format, args...) }
	switch {
	case c.Collective != AllReduce:
		// collectives.cc:136,231,781 under #ifdef BUILD_META_INTERNAL, which no open build defines.
		return shut(ReasonNotBuilt, "open builds have DDA for AllReduce only")
	case ranks == 0:
		_, on := rcclxDDAGate(env.with(envDDARanks, decimal(ddaRanks)), c)
		return "", off("DDA is off ("+envDDARanks+"=0)", settingDDAMode, on)
	case env.integer(envDDAAllReduce) == 0:
		_, on := rcclxDDAGate(env.with(envDDAAllReduce, "1"), c)
		return "", off("DDA is off for AllReduce ("+envDDAAllReduce+"=0)", settingDDAMode, on)
	case c.Nodes > 1:
		return shut(ReasonMultiNode, "DDA works within one node; this communicator has %d", c.Nodes)
	case int64(c.Ranks) != ranks:
		return shut(ReasonRankCount, "DDA needs exactly %d ranks; this communicator has %d", ranks, c.Ranks)
	case c.sum() != "Sum":
		return shut(ReasonOpUnsupported, "DDA takes the operation Sum, not %s", c.Op)
	case !ddaDatatype(c.Datatype):
		return shut(ReasonDatatypeUnsupported, "DDA takes Float32, Float16 and BFloat16, not %s", c.Datatype)
	case c.SizeBytes > tree:
		return shut(ReasonAboveThreshold, "over the tree (two-shot) limit of %s, %s", exactBytes(tree), envDDATreeMax)
	case c.SizeBytes > buffer:
		return shut(ReasonAboveThreshold, "over the staging buffer of %s, %s", exactBytes(buffer), envDDASendBuffer)
	case c.SizeBytes%16 != 0:
		return shut(ReasonAlignment, "the size is no multiple of 16 bytes")
	case c.SizeBytes <= flat:
		return PathDDAFlat, gate{}
	case c.SizeBytes/c.Datatype.Bytes()%int64(c.Ranks) != 0 || c.SizeBytes/int64(c.Ranks)%16 != 0:
		return shut(ReasonAlignment,
			"over the flat limit, the size must split into %d parts that are multiples of 16 bytes", c.Ranks)
	}
	return PathDDATree, gate{}
}

// amdDDAGate follows rocm-systems projects/rccl/src/rccl_wrap.cc (rcclDdaEnabled) and
// src/algorithms/dda/ipc/ipc_init.cu. It is for gfx942 and gfx950; where the GPU is not known, the answer is for those,
// and says so. Its limit is a table by architecture and collective that changes from release to release, so that a call
// is known to take DDA only where a limit is set, and the A/B measurement decides otherwise.
func amdDDAGate(env environment, c Call) gate {
	threshold := env.integer(envAMDThreshold)
	switch {
	case !slices.Contains(Collectives(), c.Collective):
		return closed(ReasonNotBuilt, "DDA has no %s: it takes AllReduce, AllGather, ReduceScatter and AllToAll",
			c.Collective)
	case env.integer(envAMDDDA) == 0:
		on := amdDDAGate(env.with(envAMDDDA, "1"), c)
		if on.reason == ReasonUnknown {
			return closed(ReasonDisabled, "DDA is off (%s=0), and may take the call if it were on: set %s to Preferred",
				envAMDDDA, settingDDAMode)
		}
		return off("DDA is off ("+envAMDDDA+"=0)", settingDDAMode, on)
	case c.architecture() == gfx1250:
		// RCCL_DDA_FABRIC_BUFFER_SIZE and _MAXBLOCKS belong to it.
		return closed(ReasonUnknown, "DDA of gfx1250 is another one, whose gates are not known: compare with Baseline")
	case c.otherThanCDNA3And4():
		return closed(ReasonNotBuilt, "DDA is for gfx942 and gfx950, not %s", c.architecture())
	case c.Nodes > 1:
		return closed(ReasonMultiNode, "DDA works within one node; this communicator has %d", c.Nodes)
	case c.Ranks != ddaRanks:
		return closed(ReasonRankCount, "DDA needs exactly %d ranks; this communicator has %d", ddaRanks, c.Ranks)
	case reduces(c.Collective) && c.sum() != "Sum":
		return closed(ReasonOpUnsupported, "DDA takes the operation Sum, not %s", c.Op)
	case !ddaDatatype(c.Datatype):
		return closed(ReasonDatatypeUnsupported, "DDA takes Float32, Float16 and BFloat16, not %s", c.Datatype)
	case threshold < 0:
		g := closed(ReasonUnknown, "DDA is on, but its largest size is a table by GPU and release")
		g.advice = audience.Advice{Pod: "compare with Baseline, or set dda.allReduceTreeMaxBytes",
			Shell: "compare with Baseline, or give --dda-tree-max"}
		return g
	case c.SizeBytes > threshold:
		return closed(ReasonAboveThreshold, "over the limit of %s, %s", exactBytes(threshold), envAMDThreshold)
	}
	return gate{}
}

func ddaReason(env environment, path Path, c Call) string {
	switch path {
	case PathDDAFlat:
		return fmt.Sprintf("at most the flat (one-shot) limit of %s, %s",
			exactBytes(env.limitBytes(envDDAFlatMax)), envDDAFlatMax)
	case PathDDATree:
		return fmt.Sprintf("over the flat limit of %s and at most the tree (two-shot) limit of %s, %s",
			exactBytes(env.limitBytes(envDDAFlatMax)), exactBytes(env.limitBytes(envDDATreeMax)), envDDATreeMax)
	}
	reason := fmt.Sprintf("at most the limit of %s, %s", exactBytes(env.integer(envAMDThreshold)), envAMDThreshold)
	if c.architecture() == "" {
		reason += ", where the GPU is a gfx942 or gfx950"
	}
	return reason + "; some 2.30 releases read it on gfx950 only, so compare with Baseline"
}
