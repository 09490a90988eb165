package rcclx

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
)

// NotTaken is a way that the library tries before the one that it takes, and why it does not take it.
type NotTaken struct {
	Path    Path   `json:"path"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// IfOn is true where the way is switched off and would take the calls if it were on.
	IfOn bool `json:"ifOn,omitempty"`
	// Source is where the library decides; empty for a way that its flavor does not have.
	Source string `json:"source,omitempty"`
}

// pathSources says where each flavor decides for or against a path; the first row that fits counts. A row without a
// collective is for all, and one without reasons for all.
var pathSources = []struct {
	flavors    []Flavor
	path       Path
	collective Collective
	source     string
	reasons    []string
}{
	{onlyDev, PathDDA, AllReduce, sourceAlgoInit + ":38-57",
		[]string{ReasonRankCount, ReasonMultiNode, ReasonDisabled}},
	{onlyDev, PathLowPrecision, AllReduce, sourceRCCLXCall + ":342-349", nil},
	{onlyDev, PathLowPrecision, AllGather, sourceRCCLXCall + ":111-134", nil},
	{onlyDev, PathLowPrecision, ReduceScatter, sourceRCCLXCall + ":766-778", nil},
	{onlyDev, PathLowPrecision, AllToAll, sourceRCCLXCall + ":218-228", nil},
	{onlyDev, PathP2PAllGather, AllGather, sourceRCCLXCall + ":111-134", nil},
	{onlyStable, PathLowPrecision, AllReduce, sourceStableCall + ":178-185", nil},
	{onlyStable, PathLowPrecision, AllGather, sourceStableCall + ":98-121", nil},
	{onlyStable, PathLowPrecision, ReduceScatter, sourceStableCall + ":492-503", nil},
	{onlyStable, PathLowPrecision, AllToAll, sourceStableCall + ":288-297", nil},
	{onlyStable, PathP2PAllGather, AllGather, sourceStableCall + ":98-121", nil},
	{onlyDev, PathDDA, AllReduce, "torchcomms comms/common/algorithms/all_reduce/AllReduceAlgoManager.cu", nil},
	{onlyDev, PathDDA, AllGather, sourceRCCLXCall + ":136", nil},
	{onlyDev, PathDDA, ReduceScatter, sourceRCCLXCall + ":781", nil},
	{onlyDev, PathDDA, AllToAll, sourceRCCLXCall + ":231", nil},
	{onlyStable, PathDDA, AllReduce, "torchcomms comms/common/algorithms/all_reduce/AllReduceAlgoManager.cu", nil},
	{onlyAMD, PathDDA, "", sourceAMD + " rcclDdaEnabled", nil},
	{onlyDev, PathDirect, AllGather, sourceRCCLXWrap + ":446-485", nil},
	{onlyDev, PathDirect, ReduceScatter, sourceRCCLXWrap + ":487-525", nil},
	{onlyStable, PathDirect, AllGather,
		"torchcomms comms/rcclx/snapshots/stable/comms/rcclx/develop/src/rccl_wrap.cc:349-369", nil},
	{allAMD, PathDirect, AllGather, sourceAMD + " rcclUseAllGatherDirect", nil},
	{allAMD, PathDirect, ReduceScatter, sourceAMD + " rcclUseReduceScatterDirect", nil},
}

func sourceOf(f Flavor, path Path, c Collective, reason string) string {
	if path == PathDDAFlat || path == PathDDATree {
		path = PathDDA
	}
	for _, s := range pathSources {
		if s.path == path && slices.Contains(s.flavors, f) && (s.collective == c || s.collective == "") &&
			(s.reasons == nil || slices.Contains(s.reasons, reason)) {
			return s.source
		}
	}
	return ""
}

// choice is the path of a call in a flavor, why, and why not those before it.
type choice struct {
	flavor     Flavor
	collective Collective
	path       Path
	why        string
	source     string
	not        []NotTaken
}

func (ch *choice) pass(path Path, g gate) {
	ch.not = append(ch.not,
		NotTaken{path, g.reason, g.text(audience.Pod), g.ifOn, sourceOf(ch.flavor, path, ch.collective, g.reason)})
}

func (ch choice) take(path Path, format string, args ...any) choice {
	ch.path, ch.why, ch.source = path, fmt.Sprintf(format, args...), sourceOf(ch.flavor, path, ch.collective, "")
	return ch
}

// ExpectedPath predicts the way of a call inside the library under a variant, and says why in a sentence.
func ExpectedPath(f Flavor, v Variant, s Settings, c Call) (Path, string) {
	return pathUnder(f, environmentMap(Environment(f, v, s)), c)
}

func pathUnder(f Flavor, env environment, c Call) (Path, string) {
	chosen := choose(f, env, c)
	reasons := []string{chosen.why}
	if chosen.path == PathDirect || chosen.path == PathRingTree || chosen.path == PathSendRecv ||
		chosen.path == PathStandard {
		for _, n := range chosen.not {
			if n.Path != PathLowPrecision || n.Reason != ReasonDisabled && n.Reason != ReasonFlavorUnsupported {
				reasons = append(reasons, fmt.Sprintf("not %s: %s", n.Path, n.Message))
			}
		}
	}
	return chosen.path, strings.Join(reasons, "; ")
}

// choose follows the library's order: low precision, then DDA, then direct, ring or tree (src/collectives.cc of
// torchcomms comms/rcclx/develop/projects/rccl).
func choose(f Flavor, env environment, c Call) choice {
	c = c.exact()
	ch := choice{flavor: f, collective: c.Collective}
	if unknownFlavor(f) {
		return ch.take(PathUnknown, "the library's flavor is not known, so its gates are not either")
	}
	fp8 := lowPrecisionGate(f, env, c)
	if fp8.open() {
		return ch.take(PathLowPrecision, "%s", lowPrecisionReason(c))
	}
	ch.pass(PathLowPrecision, fp8)
	if c.Collective == AllGather && env.lowPrecision(f, c.Collective) {
		// collectives.cc:111-134: with FP8 on, an AllGather that is not for it goes peer to peer, never to DDA or
		// direct.
		return ch.take(PathP2PAllGather,
			"while FP8 is on, an AllGather that FP8 does not take goes peer to peer instead of DDA, direct or ring")
	}
	path, dda := ddaGate(f, env, c)
	switch {
	case dda.open():
		return ch.take(path, "%s", ddaReason(env, path, c))
	case dda.reason == ReasonUnknown:
		return ch.take(PathUnknown, "%s", dda.text(audience.Pod))
	}
	ch.pass(PathDDA, dda)
	if c.Collective == AllGather || c.Collective == ReduceScatter {
		direct := directGate(f, env, c)
		switch {
		case direct.open():
			return ch.take(PathDirect, "small enough to send to all peers at once")
		case direct.reason == ReasonUnknown:
			return ch.take(PathStandard, "%s", direct.text(audience.Pod))
		}
		ch.pass(PathDirect, direct)
	}
	return ch.standard(env, c)
}

// standard is the last resort.
func (ch choice) standard(env environment, c Call) choice {
	f := ch.flavor
	msccl := f == FlavorRCCL &&
		(env.integer(mscclVariable) != 0 || env.integer(mscclForceVariable) != 0 || env.integer(mscclppVariable) != 0)
	switch {
	case c.Collective == AllToAllv, c.Collective == SendRecv:
		return ch.take(PathSendRecv, "a group of sends and receives")
	case msccl:
		return ch.take(PathStandard, "RCCL before 2.28.3 may take an MSCCL algorithm (%s is on unless 0); else %s",
			mscclVariable, lastResort(c.Collective))
	case c.Collective == AllToAll && f.HIP() && env.integer(pivotVariable) != 0:
		return ch.take(PathStandard, "with %s, parts from 744 KiB may pivot; else %s",
			pivotVariable, lastResort(c.Collective))
	case c.Collective == AllToAll:
		return ch.take(PathSendRecv, "%s", lastResort(c.Collective))
	case f == FlavorNCCL && env.integer(multicastVariable) == 0:
		return ch.take(PathRingTree,
			"the library's tuner chooses ring, tree or another of its kernels, but not NVLink multicast (%s=0)",
			multicastVariable)
	case f == FlavorNCCL:
		return ch.take(PathRingTree,
			"the library's tuner chooses ring, tree or another of its kernels, NVLink multicast where the node has it")
	}
	return ch.take(PathRingTree, "%s", lastResort(c.Collective))
}

func lastResort(c Collective) string {
	if c == AllToAll {
		return "a group of sends and receives"
	}
	return "the library's tuner chooses ring or tree"
}

func lowPrecisionReason(c Call) string {
	reason := "at least FP8's fixed least size of " + exactBytes(lowPrecisionMinBytes)
	if hazard := lowPrecisionHazard(c); hazard != "" {
		reason += "; " + hazard
	}
	return reason
}
