package rcclx

import (
	"maps"
	"slices"
	"strconv"
)

// Names of the variables that this package sets or reads, beside those in the table.
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

// LowPrecisionSwitchedBy are the collectives that a variable switches FP8 on for; none of a name that switches none.
func LowPrecisionSwitchedBy(variable string) []Collective {
	if variable == envFP8 {
		return Collectives()
	}
	for _, c := range Collectives() {
		if envFP8PerCollective[c] == variable {
			return []Collective{c}
		}
	}
	return nil
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
// image or of /etc/rccl.conf cannot turn one on in Baseline. Variables that a variant controls win over a user's own
// of the same name; Effectives reports those.
func Environment(f Flavor, v Variant, s Settings) []EnvVar {
	return merge(s.Env, process{flavor: f, dda: v == DDA, fp8: v == LowPrecision, settings: s}.controlled())
}

// JobEnvironment is what a job sets to get the settings as requested, DDA and FP8 together. What only measurements
// need, as NCCL_NVLS_ENABLE=0, is not in it: it would slow a user's jobs.
func JobEnvironment(f Flavor, s Settings) []EnvVar {
	return merge(s.Env, jobProcess(f, s).controlled())
}

func jobProcess(f Flavor, s Settings) process {
	return process{flavor: f, job: true, dda: s.DDA.Mode.Requests(), fp8: s.LowPrecision.Mode.Requests(), settings: s}
}

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

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// The value rules of the table.

func constant(value string) func(process) (string, bool) {
	return func(process) (string, bool) { return value, true }
}

// inRanks sets a value in our own rank processes only.
func inRanks(value string) func(process) (string, bool) {
	return func(p process) (string, bool) { return value, !p.job }
}

// ifDDA gives one value with DDA on and another with it off; an empty one is not set.
func ifDDA(on, off string) func(process) (string, bool) {
	return func(p process) (string, bool) {
		if p.dda {
			return on, on != ""
		}
		return off, off != ""
	}
}

func ddaFlat(p process) (string, bool) {
	limit := p.settings.DDA.AllReduceFlatMaxBytes
	if !p.dda || limit == nil {
		return "", false
	}
	return decimal(*limit), true
}

func ddaTree(p process) (string, bool) {
	limit := p.settings.DDA.AllReduceTreeMaxBytes
	if !p.dda || limit == nil {
		return "", false
	}
	return decimal(*limit), true
}

// ddaTreeOver is the tree limit where a buffer of defaultBytes does not hold it.
func ddaTreeOver(defaultBytes int64) func(process) (string, bool) {
	return func(p process) (string, bool) {
		value, set := ddaTree(p)
		return value, set && *p.settings.DDA.AllReduceTreeMaxBytes > defaultBytes
	}
}

// fp8Wanted are the collectives that FP8 is on for in a process. The mode itself is not looked at, so that a variant
// may measure FP8 before a user asks for it.
func (p process) fp8Wanted() LowPrecisionSettings {
	if !p.fp8 {
		return LowPrecisionSettings{}
	}
	return LowPrecisionSettings{Mode: ModePreferred, Collectives: p.settings.LowPrecision.Collectives}
}

// fp8ForAll is the global switch. Stable has no other: asked for some collectives, it would quantise the others too.
func fp8ForAll(p process) (string, bool) {
	if p.fp8Wanted().all() {
		return "1", true
	}
	return "0", true
}

// fp8For is the row of a switch for one collective. It is left alone where the global one is on, which it cannot undo.
func fp8For(c Collective, source string) variable {
	return variable{name: envFP8PerCollective[c], readBy: onlyDev,
		unset: "0", source: source, hint: hintFP8, setting: settingFP8PerColl,
		rule: "1 where FP8 is on for " + string(c) + ", else 0; not set where it is on for all four collectives",
		value: func(p process) (string, bool) {
			switch wanted := p.fp8Wanted(); {
			case wanted.all():
				return "", false
			case wanted.wants(c):
				return "1", true
			}
			return "0", true
		}}
}
