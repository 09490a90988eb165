package rcclx

import "fmt"

// The first releases with an element type, as version codes.
const (
	ncclBFloat16Version = 21000 // nccl src/nccl.h.in, ncclBfloat16: in v2.10.3-1, not in v2.9.9-1
	ncclFP8Version      = 22400 // nccl src/nccl.h.in, ncclFloat8e4m3: in v2.24.3-1, not in v2.23.4-1
	// rccl src/nccl.h.in, RCCL_FLOAT8: in release/rocm-rel-6.2 (2.20.5), not in rocm-rel-6.1 (2.18.6)
	rcclFP8Version = 22005
)

// fp8ComputeCapability is the least one for which NCCL reduces FP8 elements (nccl src/enqueue.cc, taskAppend: "FP8
// reduction support begins with sm90 capable devices").
const fp8ComputeCapability = 90

func (d Datatype) fp8() bool { return d == Float8E4M3 || d == Float8E5M2 }

// DatatypeSupport says whether a library has an element type, and if not, why and what to do. f is the flavor whose
// gates hold (LibraryInfo.Gates), versionCode what ncclGetVersion gave. It has nothing to do with FP8 transport, which
// takes Float32 and BFloat16 elements. Callers ask before they allocate anything. See also ReductionSupport.
func DatatypeSupport(f Flavor, versionCode int, d Datatype) (ok bool, why string) {
	if d.Bytes() == 0 {
		return false, fmt.Sprintf("datatype %q is not known: use %s", d, names(Datatypes()))
	}
	least := DatatypeSince(f, d)
	if d.fp8() && unknownFlavor(f) {
		return false, fmt.Sprintf("the library's flavor is not known, so whether it has %s elements is not either: "+
			"use Float32, Float16 or BFloat16", d)
	}
	switch {
	case least == 0 || versionCode >= least:
		return true, ""
	case versionCode <= 0:
		return false, fmt.Sprintf("the library does not say its version, and flavor %s has %s elements only from %s: "+
			"use Float32 or Float16", f, d, VersionString(least))
	}
	return false, fmt.Sprintf("flavor %s has %s elements from version %s, and this library is %s: load a newer one, "+
		"or leave %s out", f, d, VersionString(least), VersionString(versionCode), d)
}

// DatatypeSince is the first version of a flavor that has an element type, as a version code; zero where all have it.
func DatatypeSince(f Flavor, d Datatype) int {
	switch {
	case d == BFloat16 && f == FlavorNCCL:
		return ncclBFloat16Version
	case d.fp8() && f == FlavorNCCL:
		return ncclFP8Version
	case d.fp8() && (f == FlavorRCCL || f == FlavorRCCLDDA):
		return rcclFP8Version
	}
	// torchcomms comms/rcclx/develop/projects/rccl/src/nccl.h.in:481 and the same file of snapshots/stable have them
	// all.
	return 0
}

// ReductionSupport says whether a device reduces a datatype, and if not, why. computeCapability is major*10+minor as
// CUDA gives it, zero where it is not known. NCCL refuses AllReduce, ReduceScatter and Reduce of FP8 elements below
// 9.0. AMD's devices that have FP8 pass the same test of RCCL's (gfx942 counts as 94).
func ReductionSupport(f Flavor, computeCapability int, c Collective, d Datatype) (ok bool, why string) {
	if f != FlavorNCCL || !d.fp8() || !reduces(c) || computeCapability == 0 ||
		computeCapability >= fp8ComputeCapability {
		return true, ""
	}
	return false, fmt.Sprintf("NCCL reduces %s elements from compute "+
		"capability %d.%d, and this device has %d.%d: leave %s of %s out",
		d, fp8ComputeCapability/10, fp8ComputeCapability%10, computeCapability/10, computeCapability%10, c, d)
}
