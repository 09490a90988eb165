package rcclx

import (
	"encoding/json"
	"fmt"
)

// LibraryInfo says what was loaded.
type LibraryInfo struct {
	Flavor Flavor `json:"flavor"`
	// Imitates is the flavor whose gates the simulator follows; empty for real libraries.
	Imitates Flavor `json:"imitates,omitempty"`
	// VersionCode as ncclGetVersion gives it: major*10000 + minor*100 + patch.
	VersionCode int `json:"versionCode"`
	// Path of the loaded file, BuildHash the first 16 hex digits of its SHA-256.
	Path      string `json:"path,omitempty"`
	BuildHash string `json:"buildHash,omitempty"`
	// SettingsHash is over the variables and configuration files that the library takes settings from, as this process
	// sees them: ranks that differ in it may choose different algorithms for one call and then hang. Empty where not
	// known.
	SettingsHash string `json:"settingsHash,omitempty"`
	// RuntimeVersionCode as hipRuntimeGetVersion or cudaRuntimeGetVersion gives it.
	RuntimeVersionCode int `json:"runtimeVersionCode,omitempty"`
	// DeviceName and PCIAddress of this rank's device, TotalMemoryBytes and FreeMemoryBytes of its memory.
	DeviceName       string `json:"deviceName,omitempty"`
	PCIAddress       string `json:"pciAddress,omitempty"`
	TotalMemoryBytes int64  `json:"totalMemoryBytes,omitempty"`
	FreeMemoryBytes  int64  `json:"freeMemoryBytes,omitempty"`
}

// Gates is the flavor whose gates and variables hold for this library: the imitated one for the simulator.
func (i LibraryInfo) Gates() Flavor {
	if i.Imitates != "" {
		return i.Imitates
	}
	return i.Flavor
}

// Simulated says whether the library is the simulator.
func (i LibraryInfo) Simulated() bool { return i.Flavor == FlavorSimulated }

// NonBlocking says whether the library can form a communicator without blocking, as 2.14 and later can (nccl.h,
// ncclCommInitRankConfig).
func (i LibraryInfo) NonBlocking() bool { return i.VersionCode >= 21400 }

// VersionString gives the version as users write it: 22803 is "2.28.3".
func (i LibraryInfo) VersionString() string { return VersionString(i.VersionCode) }

// VersionString renders a version code as users write it: 22803 is "2.28.3". Codes under 2.9 had a digit fewer
// (nccl.h, NCCL_VERSION macro): 2804 is "2.8.4".
func VersionString(code int) string {
	if code < 10000 {
		return fmt.Sprintf("%d.%d.%d", code/1000, code%1000/100, code%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code%10000/100, code%100)
}

// LatencyStats are over repeats; each repeat is the mean of a batch of iterations between two device events.
type LatencyStats struct {
	MedianNanoseconds int64 `json:"medianNanoseconds,omitempty"`
	MinNanoseconds    int64 `json:"minNanoseconds,omitempty"`
	MaxNanoseconds    int64 `json:"maxNanoseconds,omitempty"`
	// P95Nanoseconds is missing (zero) under 20 repeats, of which it would be the largest.
	P95Nanoseconds int64 `json:"p95Nanoseconds,omitempty"`
	// CoefficientOfVariationPPM is the standard deviation over the mean, in parts per million; missing under two
	// repeats.
	CoefficientOfVariationPPM int64 `json:"coefficientOfVariationPPM"`
	Repeats                   int   `json:"repeats,omitempty"`
	IterationsPerRepeat       int   `json:"iterationsPerRepeat,omitempty"`
}

// MarshalJSON leaves out what is missing: of the coefficient of variation zero is missing only where nothing was
// repeated.
func (l LatencyStats) MarshalJSON() ([]byte, error) {
	type plain LatencyStats
	out := struct {
		plain
		CoefficientOfVariationPPM *int64 `json:"coefficientOfVariationPPM,omitempty"`
	}{plain: plain(l)}
	if l.Repeats > 1 {
		out.CoefficientOfVariationPPM = &l.CoefficientOfVariationPPM
	}
	return json.Marshal(out)
}

// CheckResult is the comparison of a result with its reference.
type CheckResult struct {
	// Data that the call was checked with; empty where another program checked, which measures no errors.
	Data Data `json:"data,omitempty"`
	// CheckedElements, WrongElements: outside the tolerance of the datatype, the number of ranks and the path. No
	// element counts as checked where rounding explains so much that a rank's part could be missing unseen, as in sums
	// of random FP8 elements over 8 ranks: the errors are told all the same.
	CheckedElements int64 `json:"checkedElements"`
	WrongElements   int64 `json:"wrongElements"`
	// FirstWrongElement is the index of the first wrong one in the result; nil where none is.
	FirstWrongElement *int64 `json:"firstWrongElement,omitempty"`
	// NaNElements became NaN, and OverflowElements infinite or clipped to the largest value of a narrower type, where
	// the reference is a finite value.
	NaNElements      int64 `json:"nanElements,omitempty"`
	OverflowElements int64 `json:"overflowElements,omitempty"`
	// UnwrittenElements are wrong ones that still hold what filled the buffer before the call: the library never wrote
	// them. They are not among NaNElements. Of one-byte elements, where a value may look the same, only a buffer none
	// of which was written counts.
	UnwrittenElements int64 `json:"unwrittenElements,omitempty"`
	// MaxRelativeErrorPPM is the largest |got-want| over the largest |want|, in parts per million. Above zero on exact
	// data it proves that the values were quantised.
	MaxRelativeErrorPPM int64 `json:"maxRelativeErrorPPM"`
	// MeanRelativeErrorPPM is the mean of |got-want| over the mean of |want|, in parts per million, of the elements
	// that are finite.
	MeanRelativeErrorPPM int64 `json:"meanRelativeErrorPPM,omitempty"`
}

// MarshalJSON leaves the largest error out where none was measured.
func (c CheckResult) MarshalJSON() ([]byte, error) {
	type plain CheckResult
	out := struct {
		plain
		MaxRelativeErrorPPM *int64 `json:"maxRelativeErrorPPM,omitempty"`
	}{plain: plain(c)}
	if c.Data != "" {
		out.MaxRelativeErrorPPM = &c.MaxRelativeErrorPPM
	}
	return json.Marshal(out)
}

// Path is the way that a call takes inside the library.
type Path string

// The paths, in the order in which the library tries them: low precision, DDA, direct, then ring or tree.
const (
	PathLowPrecision Path = "LowPrecision"
	PathP2PAllGather Path = "P2PAllGather" // AllGather that FP8 does not take while FP8 is on
	PathDDAFlat      Path = "DDAFlat"      // one-shot: each rank reads all of every peer
	PathDDATree      Path = "DDATree"      // two-shot: each rank reduces its part, then reads the others'
	PathDDA          Path = "DDA"          // AMD's, which does not say which of the two
	PathDirect       Path = "Direct"       // AllGather and ReduceScatter by sends to all peers at once
	PathRingTree     Path = "RingTree"     // ring, tree or another kernel of the tuner's choice
	PathSendRecv     Path = "SendRecv"     // the point-to-point kernel: AllToAll, AllToAllv and SendRecv
	PathStandard     Path = "Standard"     // neither low precision nor DDA; which of the rest is not known
	PathUnknown      Path = "Unknown"
)

// Call is one collective call, as far as the gates look at it.
type Call struct {
	Collective Collective `json:"collective"`
	Datatype   Datatype   `json:"datatype"`
	Op         string     `json:"op"` // Sum, Prod, Max, Min or Avg; Sum where empty, ignored where nothing is reduced
	SizeBytes  int64      `json:"sizeBytes"`
	Ranks      int        `json:"ranks"`
	Nodes      int        `json:"nodes"`
	// GFX is the GPU's architecture, as in gfx942; empty where it is not known, as on NVIDIA's GPUs.
	GFX string `json:"gfx,omitempty"`
}

// Effective is what the gates allow for one setting.
type Effective struct {
	// Name of the setting: dda.AllReduce, lowPrecision.AllGather, env.RCCL_DDA_ENABLE.
	Name      string `json:"name"`
	Requested string `json:"requested"`
	// State: InEffect, Partial (for some of the sizes or datatypes asked about), NotInEffect or Unknown.
	State string `json:"state"`
	// Reason: Active, NotBuilt, MultiNode, RankCount, BelowThreshold, AboveThreshold, DatatypeUnsupported,
	// UnknownVariable, FlavorUnsupported, Disabled, NotApplied, TakenByFP8 or Unknown.
	Reason string `json:"reason"`
	// MinBytes and MaxBytes bound the sizes for which the setting is in effect; nil where there is no bound or no
	// effect.
	MinBytes *int64 `json:"minBytes,omitempty"`
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	// Message says in one sentence why, and what to do.
	Message string `json:"message"`
	// Gates are, where State is Partial, the words of the gates that are shut for the other sizes or datatypes.
	Gates string `json:"gates,omitempty"`
}
