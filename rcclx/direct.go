package rcclx

import (
	"math"
	"strings"
)

const (
	gfx942  = "gfx942"
	gfx950  = "gfx950"
	gfx1250 = "gfx1250"
	// directReduceScatterMaxBytes is a hard limit, and the two-node one a fixed least size (rccl_wrap.cc:479-524).
	directReduceScatterMaxBytes      = 2 << 20
	directReduceScatterTwoNodesBytes = 128 << 10
	// directPXNRanks are those from which the library switches PXN on by itself on gfx950 (rccl_wrap.cc, rcclSetPxn).
	directPXNRanks = 32
)

// architecture is the GPU's, without the features that HIP appends, as in gfx942:sramecc+:xnack-.
func (c Call) architecture() string {
	name, _, _ := strings.Cut(c.GFX, ":")
	return name
}

// otherThanCDNA3And4 says whether the GPU is known, and neither gfx942 nor gfx950.
func (c Call) otherThanCDNA3And4() bool {
	gpu := c.architecture()
	return gpu != "" && gpu != gfx942 && gpu != gfx950
}

// gfxOfModel are the models whose architecture decides a path (device ids and gfx_target_version as the kernel driver
// has them).
var gfxOfModel = map[string]string{
	"MI300A": gfx942, "MI300X": gfx942, "MI308X": gfx942, "MI325X": gfx942,
	"MI350X": gfx950, "MI355X": gfx950, "MI350P": gfx950,
	"MI210": "gfx90a", "MI250": "gfx90a", "MI250X": "gfx90a",
}

// GFXOf is the architecture of a device by the name that hipDeviceGetName gives, as in "AMD Instinct MI300X"; empty
// where the name tells none.
func GFXOf(deviceName string) string {
	for _, word := range strings.Fields(deviceName) {
		if gfx, ok := gfxOfModel[strings.ToUpper(word)]; ok {
			return gfx
		}
	}
	return ""
}

// directGate says whether an AllGather or ReduceScatter goes to all peers at once instead of along a ring or tree.
func directGate(f Flavor, env environment, c Call) gate {
	switch {
	case f.rcclx() && c.Collective == AllGather:
		return directAllGatherGate(f, env, c)
	case f == FlavorRCCLXDev:
		return directReduceScatterGate(env, c)
	case f == FlavorRCCLXStable:
		return closed(ReasonNotBuilt, "library flavor %s has no direct %s", f, c.Collective)
	case f == FlavorNCCL:
		return closed(ReasonFlavorUnsupported, "library flavor %s has no direct %s", f, c.Collective)
	}
	return closed(ReasonUnknown, "which of direct, ring and tree RCCL takes depends on its release and the GPU")
}

// directAllGatherGate follows rcclUseAllGatherDirect in src/rccl_wrap.cc:446-485 of torchcomms
// comms/rcclx/develop/projects/rccl, and the same function of snapshots/stable, where a threshold of one's own counts
// only to switch it off.
func directAllGatherGate(f Flavor, env environment, c Call) gate {
	_, disabled := env[directAGOff]
	_, own := env[directAGThreshold]
	threshold := env.integer(directAGThreshold)
	on942, on950 := int64(4<<20), int64(8<<20)
	switch {
	case f == FlavorRCCLXDev && own:
		on942, on950 = threshold, threshold
		if threshold < 0 {
			on942, on950 = math.MaxInt64, math.MaxInt64
		}
	case c.Nodes >= 64:
		on950 = threshold
	case c.Nodes > 1:
		on950 = int64(c.Nodes) * 2 << 20
	}
	switch gpu := c.architecture(); {
	case f == FlavorRCCLXDev && disabled:
		return closed(ReasonDisabled, "direct AllGather is off (%s is set)", directAGOff)
	case threshold == -1:
		return closed(ReasonDisabled, "direct AllGather is off (%s=-1)", directAGThreshold)
	case c.Ranks%8 != 0:
		return closed(ReasonRankCount, "direct AllGather needs a multiple of 8 ranks; this communicator has %d",
			c.Ranks)
	case gpu == gfx942:
		return atMost(c, on942, "on "+gpu)
	case gpu == gfx950:
		return atMost(c, on950, "on "+gpu)
	case gpu != "":
		return closed(ReasonNotBuilt, "direct AllGather is for gfx942 and gfx950, not %s", gpu)
	case c.SizeBytes <= min(on942, on950):
		return gate{}
	case c.SizeBytes > max(on942, on950):
		return atMost(c, max(on942, on950), "on gfx942 and gfx950")
	}
	return closed(ReasonUnknown, "direct up to %s on gfx942 and %s on gfx950, else ring or tree: name the GPU",
		HumanBytes(on942), HumanBytes(on950))
}

// directReduceScatterGate follows rcclUseReduceScatterDirect in src/rccl_wrap.cc:487-525 of torchcomms
// comms/rcclx/develop/ projects/rccl.
func directReduceScatterGate(env environment, c Call) gate {
	_, disabled := env[directRSOff]
	_, ownPXN := env[pxnVariable]
	gpu := c.architecture()
	switch {
	case disabled:
		return closed(ReasonDisabled, "direct ReduceScatter is off (%s is set)", directRSOff)
	case gpu != "" && gpu != gfx950:
		return closed(ReasonNotBuilt, "direct ReduceScatter is for gfx950, not %s", gpu)
	case c.Nodes != 2 && c.Nodes != 4 && c.Nodes != 8:
		return closed(ReasonRankCount, "direct ReduceScatter is for 2, 4 or 8 nodes; this communicator has %d", c.Nodes)
	case ownPXN && env.integer(pxnVariable) != 0:
		return closed(ReasonDisabled, "direct ReduceScatter needs PXN, which is off (%s)", pxnVariable)
	case !ownPXN && c.Ranks < directPXNRanks:
		return closed(ReasonRankCount,
			"direct ReduceScatter needs PXN, which is on from %d ranks; this communicator has %d",
			directPXNRanks, c.Ranks)
	case c.SizeBytes > directReduceScatterMaxBytes:
		return atMost(c, directReduceScatterMaxBytes, "on gfx950")
	case c.Nodes == 2 && c.SizeBytes < directReduceScatterTwoNodesBytes:
		return closed(ReasonBelowThreshold, "under direct ReduceScatter's least size over two nodes of %s",
			exactBytes(directReduceScatterTwoNodesBytes))
	case env[directRSThreshold] != "":
		return closed(ReasonUnknown, "with %s set, which of direct, ring and tree is taken is not known",
			directRSThreshold)
	case gpu == "":
		return closed(ReasonUnknown, "direct on gfx950, else ring or tree: name the GPU")
	}
	return gate{}
}

func atMost(c Call, limit int64, where string) gate {
	if c.SizeBytes <= limit {
		return gate{}
	}
	return closed(ReasonAboveThreshold, "over direct %s's limit of %s %s", c.Collective, exactBytes(limit), where)
}

// directBorders are the sizes at which an answer of directGate may change, each the last of its range.
func directBorders(env environment, c Call) []int64 {
	return []int64{directReduceScatterTwoNodesBytes - 1, directReduceScatterMaxBytes, 4 << 20, 8 << 20,
		int64(c.Nodes) * 2 << 20, env.integer(directAGThreshold)}
}
