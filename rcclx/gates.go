package rcclx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	ReasonUnknown             = "Unknown"
)

// environment is a set of variables, read as the library reads them.
type environment map[string]string

func environmentMap(vars []EnvVar) environment {
	env := environment{}
	for _, e := range vars {
		env[e.Name] = e.Value
	}
	return env
}

// integer reads a variable as RCCL_PARAM does (src/include/param.h): strtoll with base 0, text that is no number is 0.
func (e environment) integer(name string, unset int64) int64 {
	text, ok := e[name]
	if !ok || text == "" {
		return unset
	}
	return parseStrtoll(text)
}

// parseStrtoll is C's strtoll(text, NULL, 0): leading space, a sign, 0x or 0 for the base, then as many digits as there are.
func parseStrtoll(text string) int64 {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	sign := ""
	if text != "" && (text[0] == '-' || text[0] == '+') {
		sign, text = strings.TrimPrefix(text[:1], "+"), text[1:]
	}
	base, digits := 10, "0123456789"
	switch {
	case len(text) > 2 && (text[:2] == "0x" || text[:2] == "0X") && strings.ContainsRune("0123456789abcdefABCDEF", rune(text[2])):
		base, digits, text = 16, "0123456789abcdefABCDEF", text[2:]
	case strings.HasPrefix(text, "0"):
		base, digits = 8, "01234567"
	}
	end := 0
	for end < len(text) && strings.IndexByte(digits, text[end]) >= 0 {
		end++
	}
	// On overflow ParseInt answers the largest value, as strtoll does; on no digits it answers zero, as strtoll does.
	n, _ := strconv.ParseInt(sign+text[:end], base, 64)
	return n
}

// lowPrecision says whether FP8 is on for a collective: the exact text "1" (meta/lpcoll/low_precision_common.h).
func (e environment) lowPrecision(f Flavor, c Collective) bool {
	if !f.rcclx() {
		return false
	}
	return e[envFP8] == "1" || (f == FlavorRCCLXDev && e[envFP8PerCollective[c]] == "1")
}

// gate is the answer of one gate: why a path is not taken. An empty reason means that it is.
type gate struct {
	reason  string // one of the reasons above
	message string
}

func (g gate) open() bool { return g.reason == "" }

func closed(reason, format string, args ...any) gate {
	return gate{reason: reason, message: fmt.Sprintf(format, args...)}
}

// ExpectedPath predicts the way of a call inside the library under a variant, and says why in a sentence. The library
// tries low precision, then DDA, then direct, ring or tree (collectives.cc of torchcomms comms/rcclx/develop).
func ExpectedPath(f Flavor, v Variant, s Settings, c Call) (Path, string) {
	return pathUnder(f, environmentMap(Environment(f, v, s)), c)
}

func pathUnder(f Flavor, env environment, c Call) (Path, string) {
	if f == FlavorUnknown || f == FlavorSimulated || f == "" {
		return PathUnknown, "the library's flavor is not known, so its gates are not either"
	}
	var why []string
	fp8 := lowPrecisionGate(f, env, c)
	if fp8.open() {
		return PathLowPrecision, lowPrecisionReason(c)
	}
	if fp8.reason != ReasonFlavorUnsupported && fp8.reason != ReasonDisabled {
		why = append(why, "FP8: "+fp8.message)
		if c.Collective == AllGather {
			// collectives.cc:111-134: with FP8 on, an AllGather that is not for it goes peer to peer, never to DDA or direct.
			return PathP2PAllGather, fp8.message + "; while FP8 is on, such an AllGather goes peer to peer instead of DDA, direct or ring"
		}
	}
	path, dda := ddaGate(f, env, c)
	if dda.open() {
		return path, ddaReason(env, path)
	}
	if dda.reason == ReasonUnknown {
		return PathUnknown, dda.message
	}
	why = append(why, "DDA: "+dda.message)
	return PathStandard, strings.Join(why, "; ")
}

func lowPrecisionReason(c Call) string {
	reason := fmt.Sprintf("at least FP8's fixed least size of %d bytes", lowPrecisionMinBytes)
	if hazard := lowPrecisionHazard(c); hazard != "" {
		reason += "; " + hazard
	}
	return reason
}

// lowPrecisionGate follows collectives.cc:111-134 (AllGather), 218-228 (AllToAll), 342-349 (AllReduce) and 766-778
// (ReduceScatter). There is no gate for ranks, nodes or the GPU's architecture.
func lowPrecisionGate(f Flavor, env environment, c Call) gate {
	switch {
	case !f.rcclx():
		return closed(ReasonFlavorUnsupported, "library flavor %s has no FP8 transport: use an RCCLX library", f)
	case !slices.Contains(Collectives(), c.Collective):
		return closed(ReasonNotBuilt, "FP8 has no %s: it takes AllReduce, AllGather, ReduceScatter and AllToAll", c.Collective)
	case !env.lowPrecision(f, c.Collective):
		return closed(ReasonDisabled, "FP8 is off for %s", c.Collective)
	case c.Datatype != Float32 && c.Datatype != BFloat16:
		return closed(ReasonDatatypeUnsupported, "FP8 takes Float32 and BFloat16, not %s", c.Datatype)
	case reduces(c.Collective) && c.sum() != "Sum":
		return closed(ReasonOpUnsupported, "FP8 takes the operation Sum, not %s", c.Op)
	case c.SizeBytes < lowPrecisionMinBytes:
		return closed(ReasonBelowThreshold, "under FP8's fixed least size of %d bytes", lowPrecisionMinBytes)
	}
	return gate{}
}

func (c Call) sum() string {
	if c.Op == "" {
		return "Sum"
	}
	return c.Op
}

// ddaDatatype says whether DDA has kernels for a datatype (comms/common/algorithms/*/*AlgoManager.cu).
func ddaDatatype(d Datatype) bool { return d == Float32 || d == Float16 || d == BFloat16 }

func ddaGate(f Flavor, env environment, c Call) (Path, gate) {
	switch f {
	case FlavorRCCLXDev:
		return rcclxDDAGate(env, c)
	case FlavorRCCLXStable:
		// AllReduceAlgoManager::getAllReduceAlgo returns nullptr in the code that the snapshot is compiled with.
		return PathStandard, closed(ReasonNotBuilt, "rcclx-stable reads the DDA variables, but its build never takes a DDA path: use rcclx-dev")
	case FlavorRCCLDDA:
		return amdDDAGate(env, c)
	}
	return PathStandard, closed(ReasonFlavorUnsupported, "library flavor %s has no DDA", f)
}

// rcclxDDAGate follows init.cc and meta/algorithms/AlgoInit.h:38-57 for the communicator, and comms/common/algorithms/
// all_reduce/AllReduceAlgoManager.cu for the call.
func rcclxDDAGate(env environment, c Call) (Path, gate) {
	ranks := env.integer(envDDARanks, ddaRanks)
	flat, tree := env.integer(envDDAFlatMax, defaultFlatMaxBytes), env.integer(envDDATreeMax, defaultTreeMaxBytes)
	buffer := env.integer(envDDASendBuffer, defaultSendBufBytes)
	element := c.Datatype.Bytes()
	switch {
	case ranks == 0:
		return PathStandard, closed(ReasonDisabled, "DDA is off (%s=0)", envDDARanks)
	case c.Collective != AllReduce:
		// collectives.cc:136,231,781 under #ifdef BUILD_META_INTERNAL, which no open build defines.
		return PathStandard, closed(ReasonNotBuilt, "open builds have DDA for AllReduce only")
	case env.integer(envDDAAllReduce, 1) == 0:
		return PathStandard, closed(ReasonDisabled, "DDA is off for AllReduce (%s=0)", envDDAAllReduce)
	case c.Nodes > 1:
		return PathStandard, closed(ReasonMultiNode, "DDA works within one node; this communicator has %d", c.Nodes)
	case int64(c.Ranks) != ranks:
		return PathStandard, closed(ReasonRankCount, "DDA needs exactly %d ranks; this communicator has %d", ranks, c.Ranks)
	case c.sum() != "Sum":
		return PathStandard, closed(ReasonOpUnsupported, "DDA takes the operation Sum, not %s", c.Op)
	case !ddaDatatype(c.Datatype):
		return PathStandard, closed(ReasonDatatypeUnsupported, "DDA takes Float32, Float16 and BFloat16, not %s", c.Datatype)
	case c.SizeBytes > max(flat, tree):
		return PathStandard, closed(ReasonAboveThreshold, "over the tree (two-shot) limit of %d bytes (%s)", max(flat, tree), envDDATreeMax)
	case c.SizeBytes > buffer:
		return PathStandard, closed(ReasonAboveThreshold, "over the staging buffer of %d bytes (%s)", buffer, envDDASendBuffer)
	case c.SizeBytes%16 != 0:
		return PathStandard, closed(ReasonAlignment, "%d bytes are no multiple of 16", c.SizeBytes)
	case c.SizeBytes <= flat:
		return PathDDAFlat, gate{}
	case c.SizeBytes/element%int64(c.Ranks) != 0 || c.SizeBytes/int64(c.Ranks)%16 != 0:
		return PathStandard, closed(ReasonAlignment, "%d bytes do not split into %d parts that are multiples of 16 bytes", c.SizeBytes, c.Ranks)
	}
	return PathDDATree, gate{}
}

// amdDDAGate follows rocm-systems projects/rccl src/rccl_wrap.cc (rcclDdaEnabled) and src/algorithms/dda/ipc/ipc_init.cu.
// Its limit is a table by architecture and collective that changes from release to release, so that a call is known to
// take DDA only where a limit is set, and the A/B measurement decides otherwise.
func amdDDAGate(env environment, c Call) (Path, gate) {
	threshold := env.integer(envAMDThreshold, -1)
	switch {
	case env.integer(envAMDDDA, 1) == 0:
		return PathStandard, closed(ReasonDisabled, "DDA is off (%s=0)", envAMDDDA)
	case c.Nodes > 1:
		return PathStandard, closed(ReasonMultiNode, "DDA works within one node; this communicator has %d", c.Nodes)
	case c.Ranks != ddaRanks:
		return PathStandard, closed(ReasonRankCount, "DDA needs exactly %d ranks; this communicator has %d", ddaRanks, c.Ranks)
	case reduces(c.Collective) && c.sum() != "Sum":
		return PathStandard, closed(ReasonOpUnsupported, "DDA takes the operation Sum, not %s", c.Op)
	case !ddaDatatype(c.Datatype):
		return PathStandard, closed(ReasonDatatypeUnsupported, "DDA takes Float32, Float16 and BFloat16, not %s", c.Datatype)
	case threshold < 0:
		return PathUnknown, closed(ReasonUnknown, "DDA is on, but its largest size is a table by GPU and release: compare with Baseline, or set dda.allReduceTreeMaxBytes")
	case c.SizeBytes > threshold:
		return PathStandard, closed(ReasonAboveThreshold, "over the limit of %d bytes (%s)", threshold, envAMDThreshold)
	}
	return PathDDA, gate{}
}

func ddaReason(env environment, path Path) string {
	switch path {
	case PathDDAFlat:
		return fmt.Sprintf("at most the flat (one-shot) limit of %d bytes", env.integer(envDDAFlatMax, defaultFlatMaxBytes))
	case PathDDATree:
		return fmt.Sprintf("over the flat limit of %d bytes and at most the tree (two-shot) limit of %d",
			env.integer(envDDAFlatMax, defaultFlatMaxBytes), env.integer(envDDATreeMax, defaultTreeMaxBytes))
	}
	return fmt.Sprintf("at most the limit of %d bytes (%s)", env.integer(envAMDThreshold, -1), envAMDThreshold)
}
