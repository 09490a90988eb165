package rcclx

import (
	"maps"
	"slices"
	"strconv"
)

// Names of the variables that this package sets or reads. Sources: torchcomms comms/rcclx/develop/meta/algorithms/
// AlgoInit.h (DDA) and meta/lpcoll/low_precision_common.h (FP8), the same files of snapshots/stable, rocm-systems
// projects/rccl src/rccl_wrap.cc (AMD's DDA), rccl src/init.cc (HSA_NO_SCRATCH_RECLAIM).
const (
	envDDARanks           = "RCCL_DDA_NRANKS"
	envDDAAllReduce       = "RCCL_ENABLE_DDA_ALL_REDUCE"
	envDDAFlatMax         = "RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES"
	envDDATreeMax         = "RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES"
	envDDASendBuffer      = "RCCL_DDA_SENDBUF_BYTES"
	envStableSendBuffer   = "RCCL_DDA_ALL_REDUCE_SENDBUF_BYTES"
	envAMDDDA             = "RCCL_DDA_ENABLE"
	envAMDThreshold       = "RCCL_DDA_THRESHOLD"
	envFP8                = "RCCL_LOW_PRECISION_ENABLE"
	envNoScratchReclaim   = "HSA_NO_SCRATCH_RECLAIM"
	defaultFlatMaxBytes   = 204800   // 200 KiB
	defaultTreeMaxBytes   = 30408704 // 29 MiB
	defaultSendBufBytes   = 33554432 // 32 MiB, develop
	stableSendBufBytes    = 30408704 // 29 MiB, stable
	ddaRanks              = 8        // IpcGpuBarrier.cuh: constexpr NRANKS = 8; other values abort the process
	lowPrecisionMinBytes  = 16 << 20 // collectives.cc: compile-time constant, no variable changes it
	lowPrecisionPoolUnits = 128 << 20
)

// envFP8PerCollective are read by rcclx-dev only, and add to the global variable: none can switch FP8 off while the
// global one is "1".
var envFP8PerCollective = map[Collective]string{
	AllReduce:     "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE",
	AllGather:     "RCCL_LOW_PRECISION_ENABLE_ALLGATHER",
	ReduceScatter: "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER",
	AllToAll:      "RCCL_LOW_PRECISION_ENABLE_ALLTOALL",
}

// HIP says whether the flavor runs on AMD's runtime.
func (f Flavor) HIP() bool { return f != FlavorNCCL && f != FlavorUnknown }

func (f Flavor) rcclx() bool { return f == FlavorRCCLXDev || f == FlavorRCCLXStable }

// Requests says whether a mode asks for the setting.
func (m Mode) Requests() bool { return m == ModePreferred || m == ModeRequired }

// wants are the collectives that FP8 is asked for, and whether these are all that have it.
func (l LowPrecisionSettings) wants(c Collective) bool {
	return l.Mode.Requests() && (len(l.Collectives) == 0 || slices.Contains(l.Collectives, c))
}

func (l LowPrecisionSettings) all() bool {
	for _, c := range Collectives() {
		if !l.wants(c) {
			return false
		}
	}
	return true
}

// Environment is the full set of variables for the rank processes of a variant, sorted by name. f is the flavor whose
// gates hold (LibraryInfo.Gates). Every switch that the flavor reads is set, off ones too, so that a variable of the
// image or of /etc/rccl.conf cannot turn one on in Baseline. Variables that a variant controls win over a person's own
// of the same name; Effectives reports those.
func Environment(f Flavor, v Variant, s Settings) []EnvVar {
	controlled := controlledEnvironment(f, v == DDA, v == LowPrecision, s)
	return merge(s.Env, controlled)
}

// JobEnvironment is what a job sets to get the settings as requested, DDA and FP8 together.
func JobEnvironment(f Flavor, s Settings) []EnvVar {
	return merge(s.Env, jobControlled(f, s))
}

func jobControlled(f Flavor, s Settings) map[string]string {
	return controlledEnvironment(f, s.DDA.Mode.Requests(), s.LowPrecision.Mode.Requests(), s)
}

func controlledEnvironment(f Flavor, dda, lowPrecision bool, s Settings) map[string]string {
	env := map[string]string{}
	if f.HIP() {
		// Init fails without it on MEC firmware under 177 (gfx942) or 24 (gfx950); harmless on later ones.
		env[envNoScratchReclaim] = "1"
	}
	switch f {
	case FlavorRCCLXDev, FlavorRCCLXStable:
		addRCCLXDDA(env, f, dda, s.DDA)
		addFP8(env, f, lowPrecision, s.LowPrecision)
	case FlavorRCCLDDA:
		env[envAMDDDA] = "0"
		if dda {
			env[envAMDDDA] = "1"
			if s.DDA.AllReduceTreeMaxBytes != nil {
				env[envAMDThreshold] = decimal(*s.DDA.AllReduceTreeMaxBytes)
			}
		}
	}
	return env
}

func addRCCLXDDA(env map[string]string, f Flavor, on bool, dda DDASettings) {
	if !on {
		// No communicator has zero ranks: the one variable that switches all DDA off, its buffers included.
		env[envDDARanks] = "0"
		return
	}
	env[envDDARanks] = decimal(ddaRanks)
	env[envDDAAllReduce] = "1"
	if dda.AllReduceFlatMaxBytes != nil {
		env[envDDAFlatMax] = decimal(*dda.AllReduceFlatMaxBytes)
	}
	if dda.AllReduceTreeMaxBytes == nil {
		return
	}
	tree := *dda.AllReduceTreeMaxBytes
	env[envDDATreeMax] = decimal(tree)
	// The staging buffer caps every DDA call, so it must hold the largest one.
	name, defaultBytes := envDDASendBuffer, int64(defaultSendBufBytes)
	if f == FlavorRCCLXStable {
		name, defaultBytes = envStableSendBuffer, stableSendBufBytes
	}
	if tree > defaultBytes {
		env[name] = decimal(tree)
	}
}

func addFP8(env map[string]string, f Flavor, on bool, lp LowPrecisionSettings) {
	// A variant that measures FP8 does so where it is asked for; the mode itself is not looked at, so that a caller
	// may measure FP8 before asking for it.
	if lp.Mode != ModeRequired {
		lp.Mode = ModePreferred
	}
	env[envFP8] = "0"
	if on && lp.all() {
		env[envFP8] = "1"
		return
	}
	if f != FlavorRCCLXDev {
		// Stable has the global switch only: asked for some collectives, it would quantise the others too.
		return
	}
	for c, name := range envFP8PerCollective {
		env[name] = "0"
		if on && lp.wants(c) {
			env[name] = "1"
		}
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func merge(own []EnvVar, controlled map[string]string) []EnvVar {
	all := map[string]string{}
	for _, e := range own {
		all[e.Name] = e.Value
	}
	maps.Copy(all, controlled)
	env := make([]EnvVar, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, EnvVar{Name: name, Value: all[name]})
	}
	return env
}

// LowPrecisionPoolBytes is the uncached pool that the library allocates for a communicator while FP8 is on: 128 Mi
// elements, doubled until the largest message fits, of 10 + max(8, ranks) bytes each
// (meta/lpcoll/low_precision_buffer_pool.cc); 2.25 GiB at eight ranks and up to 128 Mi elements.
func LowPrecisionPoolBytes(ranks int, messageElements int64) int64 {
	elements := int64(lowPrecisionPoolUnits)
	for elements < messageElements {
		elements *= 2
	}
	return elements * int64(10+max(8, ranks))
}

// MemoryNeed is what a run takes from each device: the buffers for its largest call and what the library allocates for
// the variant.
func MemoryNeed(f Flavor, v Variant, s Settings, ranks int, shapes []Shape) (sendBytes, recvBytes, ofLibraryBytes int64) {
	for _, shape := range shapes {
		sendBytes, recvBytes = max(sendBytes, shape.SendBytes), max(recvBytes, shape.RecvBytes)
	}
	return sendBytes, recvBytes, libraryBytes(f, v, s, ranks, max(sendBytes, recvBytes))
}

// libraryBytes is what the library itself allocates on each device for a variant, beyond what every communicator takes.
func libraryBytes(f Flavor, v Variant, s Settings, ranks int, messageBytes int64) int64 {
	switch {
	case !f.rcclx():
		return 0
	case v == LowPrecision:
		// BFloat16 is the smallest datatype that FP8 takes, so this bounds the elements from above.
		return LowPrecisionPoolBytes(ranks, messageBytes/BFloat16.Bytes())
	case v == DDA && f == FlavorRCCLXDev && ranks == ddaRanks:
		return environmentMap(Environment(f, v, s)).integer(envDDASendBuffer, defaultSendBufBytes)
	}
	return 0
}
