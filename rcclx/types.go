// Package rcclx holds what we know of the communication library, free of Kubernetes: its flavors and how each is
// recognised, settings as environment variables, the gates of DDA and low precision, the C ABI through dlopen, and the
// engine that forms communicators and measures collectives. Facts about the library name their source in its tree.
package rcclx

import "fmt"

// Flavor is a build family of the communication library.
type Flavor string

// The flavors.
const (
	FlavorRCCL        Flavor = "rccl"         // AMD's, without DDA
	FlavorRCCLDDA     Flavor = "rccl-dda"     // AMD's with RCCL_DDA_ENABLE (2.30 and up)
	FlavorRCCLXDev    Flavor = "rcclx-dev"    // torchcomms comms/rcclx/develop
	FlavorRCCLXStable Flavor = "rcclx-stable" // torchcomms comms/rcclx/snapshots/stable
	FlavorNCCL        Flavor = "nccl"         // NVIDIA's, for engine proofs and Baseline runs
	FlavorSimulated   Flavor = "simulated"    // hack/simrocm; Library.Imitates says whose gates it follows
	FlavorUnknown     Flavor = "unknown"
)

// Variant is one side of the A/B comparison.
type Variant string

// The variants. Baseline has DDA and low precision off; the other two each have one of them on.
const (
	Baseline     Variant = "Baseline"
	DDA          Variant = "DDA"
	LowPrecision Variant = "LowPrecision"
)

// Collective is a collective operation.
type Collective string

// The collectives.
const (
	AllReduce     Collective = "AllReduce"
	AllGather     Collective = "AllGather"
	ReduceScatter Collective = "ReduceScatter"
	AllToAll      Collective = "AllToAll"
	AllToAllv     Collective = "AllToAllv" // uneven parts, see PeerCounts
	Broadcast     Collective = "Broadcast" // from rank 0
	Reduce        Collective = "Reduce"    // to rank 0
	SendRecv      Collective = "SendRecv"  // a ring: each rank sends to the next one and receives from the one before
)

// Datatype is an element type.
type Datatype string

// The datatypes.
const (
	Float64    Datatype = "Float64"
	Float32    Datatype = "Float32"
	Float16    Datatype = "Float16"
	BFloat16   Datatype = "BFloat16"
	Float8E4M3 Datatype = "Float8E4M3" // four exponent and three mantissa bits; the encoding (OCP or FNUZ) is the GPU's
	Float8E5M2 Datatype = "Float8E5M2"
	Int32      Datatype = "Int32"
	Int8       Datatype = "Int8"
)

// Placement says whether a call's result goes to a buffer of its own.
type Placement string

// The placements. In place, the send buffer lies within the receive buffer, or the other way round, as rccl-tests has
// it.
const (
	OutOfPlace Placement = "OutOfPlace"
	InPlace    Placement = "InPlace"
)

// Data is the kind of values that a call is checked with.
type Data string

// The kinds of data.
const (
	// DataExact are small integers, whose sums every datatype holds exactly in any order: any deviation is wrong.
	DataExact Data = "Exact"
	// DataRounding are sums that stay exact in bfloat16 but not in E4M3, so that FP8 transport shows.
	DataRounding Data = "Rounding"
	// DataGradients are random values over the range of a model's gradients, most of them far below 1.
	DataGradients Data = "Gradients"
	// DataActivations are random values over the range of a model's activations, with outliers in the hundreds.
	DataActivations Data = "Activations"
)

// Mode is how strongly a setting is asked for: Disabled, Preferred or Required.
type Mode string

// The modes.
const (
	ModeDisabled  Mode = "Disabled"
	ModePreferred Mode = "Preferred"
	ModeRequired  Mode = "Required"
)

// EnvVar is one environment variable.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Settings are the choices of a CommGroup that concern the library.
type Settings struct {
	DDA DDASettings `json:"dda"`
	// LowPrecision is FP8 E4M3 transport.
	LowPrecision LowPrecisionSettings `json:"lowPrecision"`
	// Env are a user's own variables, the same for every variant.
	Env []EnvVar `json:"env,omitempty"`
}

// DDASettings choose direct data access. Nil thresholds mean the library's defaults.
type DDASettings struct {
	Mode                  Mode   `json:"mode"`
	AllReduceFlatMaxBytes *int64 `json:"allReduceFlatMaxBytes,omitempty"`
	AllReduceTreeMaxBytes *int64 `json:"allReduceTreeMaxBytes,omitempty"`
}

// LowPrecisionSettings choose FP8 transport; no collectives means all four.
type LowPrecisionSettings struct {
	Mode        Mode         `json:"mode"`
	Collectives []Collective `json:"collectives,omitempty"`
}

// MeasurementName names a measurement for messages, for example "AllReduce BFloat16 65536 B in place". Nothing reads
// it.
func MeasurementName(c Collective, d Datatype, sizeBytes int64, p Placement) string {
	name := fmt.Sprintf("%s %s %d B", c, d, sizeBytes)
	if p == InPlace {
		name += " in place"
	}
	return name
}
