package rcclx

import (
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
)

// Trees that the sources of this package name.
const (
	sourceAlgoInit   = "torchcomms comms/rcclx/develop/meta/algorithms/AlgoInit.h"
	sourceStable     = "torchcomms comms/rcclx/snapshots/stable/comms/rcclx/develop/meta/algorithms/AlgoInit.h"
	sourceFP8        = "torchcomms comms/rcclx/develop/meta/lpcoll/low_precision_common.h"
	sourceCvars      = "torchcomms comms/utils/cvars/nccl_cvars.yaml"
	sourceAMD        = "rocm-systems projects/rccl/src/rccl_wrap.cc"
	sourceRCCLXWrap  = "torchcomms comms/rcclx/develop/projects/rccl/src/rccl_wrap.cc"
	sourceRCCLXInit  = "torchcomms comms/rcclx/develop/projects/rccl/src/init.cc"
	sourceRCCLXCall  = "torchcomms comms/rcclx/develop/projects/rccl/src/collectives.cc"
	sourceStableCall = "torchcomms comms/rcclx/snapshots/stable/comms/rcclx/develop/src/collectives.cc"
	sourceMSCCL      = "rccl src/misc/msccl/msccl_lifecycle.cc"
	sourceNVLS       = "nccl src/transport/nvls.cc"
)

// The settings of the table, as a CommGroup names them.
const (
	settingAlways      = "always"
	settingDDAMode     = "dda.mode"
	settingDDAFlat     = "dda.allReduceFlatMaxBytes"
	settingDDATree     = "dda.allReduceTreeMaxBytes"
	settingFP8Mode     = "lowPrecision.mode"
	settingFP8PerColl  = "lowPrecision.collectives"
	multicastVariable  = "NCCL_NVLS_ENABLE"
	pivotVariable      = "RCCL_ALL_TO_ALL_PIVOT_ENABLE"
	directAGOff        = "RCCL_DIRECT_ALLGATHER_DISABLE"
	directAGThreshold  = "RCCL_DIRECT_ALLGATHER_THRESHOLD"
	directRSOff        = "RCCL_DIRECT_REDUCE_SCATTER_DISABLE"
	directRSThreshold  = "RCCL_DIRECT_REDUCE_SCATTER_THRESHOLD"
	pxnVariable        = "NCCL_PXN_DISABLE"
	mscclVariable      = "RCCL_MSCCL_ENABLE"
	mscclForceVariable = "RCCL_MSCCL_FORCE_ENABLE"
	mscclppVariable    = "RCCL_MSCCLPP_ENABLE"
)

// process is what decides a process's variables, a job's or a rank's: its library, its settings, and which of them are
// switched on.
type process struct {
	flavor   Flavor
	dda, fp8 bool
	// job is set for a user's job, and not for a rank process of our own.
	job      bool
	settings Settings
}

// variable is one row of the table: an environment variable, who reads it, and the setting that decides its value.
type variable struct {
	name string
	// readBy are the flavors that read it; mayRead those of which some releases do, or of which it is not known.
	readBy, mayRead []Flavor
	// unset is the value that the library takes where the variable is not set; empty where there is none to name.
	unset  string
	source string
	// setting decides the value by rule, which is value in words; empty for a variable that is a user's own business.
	setting, rule string
	value         func(process) (value string, set bool)
	// hint says what to do where a library does not read it.
	hint audience.Advice
	// guides is set where published guides tell users to set it whatever the library.
	guides bool
}

var (
	onlyDev    = []Flavor{FlavorRCCLXDev}
	onlyStable = []Flavor{FlavorRCCLXStable}
	onlyMeta   = []Flavor{FlavorRCCLXDev, FlavorRCCLXStable}
	onlyAMD    = []Flavor{FlavorRCCLDDA}
	onlyRCCL   = []Flavor{FlavorRCCL}
	onlyNCCL   = []Flavor{FlavorNCCL}
	diagnosing = []Flavor{FlavorRCCLDDA, FlavorNCCL} // those that have releases of 2.31 and up
	allAMD     = []Flavor{FlavorRCCL, FlavorRCCLDDA}
	allHIP     = []Flavor{FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorSimulated}
)

var (
	hintDDA = audience.Advice{
		Pod:   "set spec.dda.mode instead, which sets the switch that this library reads",
		Shell: "measure --variants DDA instead, which sets the switch that this library reads",
	}
	hintFlat = audience.Advice{Pod: "set spec.dda.allReduceFlatMaxBytes instead",
		Shell: "give --dda-flat-max instead"}
	hintTree = audience.Advice{Pod: "set spec.dda.allReduceTreeMaxBytes instead",
		Shell: "give --dda-tree-max instead"}
	hintRCCLXDDA = hintDDA.Map(func(text string) string { return "it is a switch of RCCLX; " + text })
	hintAMDDDA   = hintDDA.Map(func(text string) string { return "it is a switch of AMD's RCCL 2.30 and up; " + text })
	hintBuffer   = hintTree.Map(func(text string) string { return text + ", which sizes the buffer" })
	hintTunesAMD = audience.Same("it tunes AMD's DDA; remove it")
	hintFP8      = audience.Advice{
		Pod:   "set spec.lowPrecision.mode instead, and use an RCCLX library",
		Shell: "measure --variants LowPrecision instead, with an RCCLX library",
	}
	hintNCCLX = audience.Same("it is a variable of NCCLX; remove it")
	hintCvar  = audience.Same("open builds of RCCLX never load the variables of CTran; remove it")
	hintMSCCL = audience.Same("RCCL has no MSCCL from 2.28.3 on, and RCCLX is built without its " +
		"kernels; remove it")
	hintDiagnostics = audience.Same("NCCL and AMD's RCCL have it from 2.31 on; remove it")
	hintCE          = audience.Same("it tunes the copy-engine collectives of AMD's RCCL; remove it")
	hintDirect      = audience.Same("it tunes RCCL's direct AllGather and ReduceScatter; remove it")
)

// table holds what we know of the variables whose reader depends on the flavor, and of all that this package sets.
var table = []variable{
	{name: envNoScratchReclaim, readBy: allHIP, source: sourceRCCLXInit + ":223-243", setting: settingAlways,
		value: constant("1"), rule: "always 1: init fails without it on MEC firmware under 177 (gfx942) or 24 " +
			"(gfx950), and RCCL is slow without it on gfx90a from ROCm 7.13 on"},
	{name: multicastVariable, readBy: onlyNCCL, mayRead: allHIP, unset: "2", source: sourceNVLS + " NvlsEnable",
		setting: settingAlways, value: inRanks("0"), rule: "0 in rank processes on nccl: no measurement uses NVLink " +
			"multicast; not set for jobs, which are free to use it"},

	{name: envDDARanks, readBy: onlyMeta, unset: decimal(ddaRanks), source: sourceAlgoInit + ":12",
		hint: hintRCCLXDDA, setting: settingDDAMode, value: ifDDA("8", "0"),
		rule: "8 on, 0 off: DDA needs exactly this many ranks, so 0 switches all of it off with its buffers"},
	{name: envDDAAllReduce, readBy: onlyMeta, unset: "1", source: sourceAlgoInit + ":16", hint: hintRCCLXDDA,
		setting: settingDDAMode, value: ifDDA("1", ""), rule: "1 on, not set off"},
	{name: envAMDDDA, readBy: onlyAMD, unset: "1", source: sourceAMD + " DdaEnable", hint: hintAMDDDA, guides: true,
		setting: settingDDAMode, value: ifDDA("1", "0"), rule: "1 on, 0 off"},
	{name: envDDAFlatMax, readBy: onlyMeta, unset: decimal(200 << 10), source: sourceAlgoInit + ":17-20",
		hint: hintFlat, setting: settingDDAFlat, value: ddaFlat, rule: "the setting, where DDA is on and it is given"},
	{name: envDDATreeMax, readBy: onlyMeta, unset: decimal(29 << 20), source: sourceAlgoInit + ":21-24", hint: hintTree,
		setting: settingDDATree, value: ddaTree, rule: "the setting, where DDA is on and it is given"},
	{name: envDDASendBuffer, readBy: onlyDev, unset: decimal(32 << 20), source: sourceAlgoInit + ":14",
		hint: hintBuffer, setting: settingDDATree, value: ddaTreeOver(32 << 20),
		rule: "the setting, where DDA is on and it is over 32 MiB: the staging buffer caps every DDA call"},
	{name: envStableSendBuffer, readBy: onlyStable, unset: decimal(29 << 20), source: sourceStable,
		hint:    audience.Same("on rcclx-dev the name is RCCL_DDA_SENDBUF_BYTES"),
		setting: settingDDATree, value: ddaTreeOver(29 << 20),
		rule: "the setting, where DDA is on and it is over 29 MiB: the staging buffer caps every DDA call"},
	{name: envAMDThreshold, readBy: onlyAMD, unset: "-1", source: sourceAMD + " DdaThreshold",
		hint: hintTree, setting: settingDDATree, value: ddaTree,
		rule: "the setting, where DDA is on and it is given; some 2.30 releases read it on gfx950 only"},

	{name: envFP8, readBy: onlyMeta, unset: "0", source: sourceFP8 + ":24",
		hint: hintFP8, setting: settingFP8Mode, value: fp8ForAll,
		rule: "1 where FP8 is on for all four collectives, else 0; only the exact text 1 switches it on"},
	fp8For(AllReduce, sourceFP8+":45"),
	fp8For(AllGather, sourceFP8+":40"),
	fp8For(ReduceScatter, sourceFP8+":50"),
	fp8For(AllToAll, sourceFP8+":55"),

	// From here on, variables that no setting decides.
	{name: "RCCL_LOW_PRECISION_ENABLE_INIT", readBy: onlyDev, unset: "0", source: sourceFP8 + ":33", hint: hintFP8},
	{name: "RCCL_DDA_LL", readBy: onlyAMD, source: sourceAMD, hint: hintTunesAMD},
	{name: "RCCL_DDA_LL_THRESHOLD", readBy: onlyAMD, source: sourceAMD, hint: hintTunesAMD},
	{name: "RCCL_DDA_LL128", readBy: onlyAMD, source: sourceAMD, hint: hintTunesAMD},
	{name: "RCCL_DDA_LL128_THRESHOLD", readBy: onlyAMD, source: sourceAMD, hint: hintTunesAMD},
	{name: "RCCL_DDA_MAX_BLOCKS", readBy: onlyDev, unset: "24", source: sourceAlgoInit + ":13",
		hint: audience.Same("it tunes RCCLX's DDA; remove it")},
	{name: "RCCL_DDA_ALL_REDUCE_MAX_BLOCKS", readBy: onlyStable, unset: "24", source: sourceStable,
		hint: audience.Same("on rcclx-dev the name is RCCL_DDA_MAX_BLOCKS")},
	{name: "RCCL_ENABLE_DDA_ALL_GATHER", readBy: onlyDev, unset: "1", source: sourceAlgoInit + ":26", hint: hintDDA},
	{name: "RCCL_DDA_ALL_GATHER_MAX_BYTES", readBy: onlyDev, unset: decimal(16 << 20),
		source: sourceAlgoInit + ":27", hint: hintDDA},
	{name: "RCCL_ENABLE_DDA_REDUCE_SCATTER", readBy: onlyDev, unset: "1",
		source: sourceAlgoInit + ":29", hint: hintDDA},
	{name: "RCCL_DDA_REDUCE_SCATTER_MAX_BYTES", readBy: onlyDev, unset: decimal(8 << 20),
		source: sourceAlgoInit + ":30-33", hint: hintDDA},
	{name: "RCCL_ENABLE_DDA_ALL_TO_ALL", readBy: onlyDev, unset: "1", source: sourceAlgoInit + ":35", hint: hintDDA},
	{name: "RCCL_DDA_ALL_TO_ALL_MAX_BYTES", readBy: onlyDev, unset: decimal(2 << 20),
		source: sourceAlgoInit + ":36", hint: hintDDA},
	{name: directAGOff, readBy: onlyDev, mayRead: allAMD, source: sourceRCCLXWrap + ":450", hint: hintDirect},
	{name: directAGThreshold, readBy: onlyMeta, mayRead: allAMD, unset: decimal(72 << 20),
		source: sourceRCCLXWrap + ":45", hint: hintDirect},
	{name: directRSOff, readBy: onlyDev, mayRead: allAMD, source: sourceRCCLXWrap + ":494", hint: hintDirect},
	{name: directRSThreshold, readBy: onlyDev, mayRead: allAMD, unset: decimal(2 << 20),
		source: sourceRCCLXWrap + ":46", hint: hintDirect},
	{name: pivotVariable, readBy: onlyMeta, mayRead: allAMD, unset: "0", source: sourceRCCLXCall + ":211",
		hint: audience.Same("it tunes RCCL's AllToAll; remove it")},
	{name: mscclVariable, mayRead: onlyRCCL, unset: "1", source: sourceMSCCL, hint: hintMSCCL},
	{name: mscclForceVariable, mayRead: onlyRCCL, unset: "0", source: sourceMSCCL, hint: hintMSCCL},
	{name: mscclppVariable, mayRead: onlyRCCL, unset: "0", source: "rccl src/init.cc:111", hint: hintMSCCL},
	{name: "RCCL_MSCCLPP_THRESHOLD", mayRead: onlyRCCL, source: "rccl src/init.cc:105", hint: hintMSCCL},
	{name: "RCCL_CE_ALLREDUCE", mayRead: allAMD, source: sourceAMD + " CeAllReduce", hint: hintCE},
	{name: "RCCL_CE_AR_MAX_MSG_BYTES", mayRead: allAMD, source: sourceAMD + " CeArMaxMsgBytes", hint: hintCE},
	{name: "RCCL_CE_BATCH_ASYNC_ENABLE", mayRead: allAMD,
		source: "rocm-systems projects/rccl/src/ce_coll.cc", hint: hintCE},
	{name: "RCCL_PROXYTRACE", mayRead: onlyAMD, source: "rocm-systems projects/rccl/CHANGELOG.md 2.30.4",
		hint: audience.Same("AMD's RCCL has it from 2.30.4 on; remove it")},
	{name: "NCCL_RUN_DIAGNOSTICS", mayRead: diagnosing, unset: "0", source: "nccl 2.31 NCCL_PARAM(Diagnostics)",
		hint: hintDiagnostics},
	{name: "NCCL_RUN_RAS_DIAGNOSTICS", mayRead: diagnosing, unset: "0", source: "nccl 2.31 release notes",
		hint: hintDiagnostics},

	// Read by no flavor, though cvars or guides name them.
	{name: "NCCL_CTRAN_ENABLE", source: sourceCvars + ":2496", hint: hintCvar},
	{name: "NCCL_CTRAN_BACKENDS", source: sourceCvars + ":2156", hint: hintCvar},
	{name: "NCCL_CTRAN_REGISTER", source: sourceCvars + ":1994", hint: hintCvar},
	{name: "NCCL_ALLGATHER_P_ALGO", source: sourceCvars + ":2357", hint: hintCvar},
	{name: "NCCL_ALLREDUCE_ALGO", source: sourceCvars, hint: hintNCCLX},
	{name: "NCCL_ALLGATHER_ALGO", source: sourceCvars, hint: hintNCCLX},
	{name: "NCCL_ALLTOALLV_ALGO", source: sourceCvars, hint: hintNCCLX},
	{name: "NCCL_DDA_TMPBUFF_SIZE", source: sourceCvars + ":2965", hint: hintDDA},
	{name: "NCCL_DDA_ALLREDUCE_TREE_THRESHOLD", source: sourceCvars + ":2965-2984", hint: hintTree},
	{name: "NCCL_DDA_ALLREDUCE_SCATGAT_THRESHOLD", source: sourceCvars + ":2965-2984", hint: hintTree},
	{name: "NCCL_DDA_ALLREDUCE_MAX_BLOCKS", source: sourceCvars + ":2984", hint: hintDDA},
	{name: "NCCL_COLLTRACE", source: sourceCvars, hint: hintNCCLX},
	{name: "NCCL_COMMSMONITOR_ENABLE", source: sourceCvars, hint: hintNCCLX},
}

// rowOf finds a variable's row.
func rowOf(name string) (variable, bool) {
	i := slices.IndexFunc(table, func(v variable) bool { return v.name == name })
	if i < 0 {
		return variable{}, false
	}
	return table[i], true
}

// controlled are the variables that a process's settings decide.
func (p process) controlled() map[string]string {
	env := map[string]string{}
	for _, v := range table {
		if v.value == nil || !v.read(p.flavor) {
			continue
		}
		if value, set := v.value(p); set {
			env[v.name] = value
		}
	}
	return env
}

func (v variable) read(f Flavor) bool { return slices.Contains(v.readBy, f) }

// Reads says whether a flavor reads a variable; known is false where this package cannot tell, as for the many
// variables that every NCCL shares and for those that some releases of a flavor read.
func Reads(f Flavor, name string) (reads, known bool) {
	if f == FlavorNCCL &&
		(strings.HasPrefix(name, prefixRCCL) || strings.HasPrefix(name, "HSA_") || strings.HasPrefix(name, "HIP_")) {
		return false, true
	}
	v, ok := rowOf(name)
	if !ok || unknownFlavor(f) || slices.Contains(v.mayRead, f) {
		return false, false
	}
	return v.read(f), true
}

// sourceFor is where a flavor reads the variable. Stable keeps RCCLX's files in a tree of its own, with other line
// numbers.
func (v variable) sourceFor(f Flavor) string {
	if f != FlavorRCCLXStable {
		return v.source
	}
	file, _, _ := strings.Cut(v.source, ":")
	for _, develop := range []string{"torchcomms comms/rcclx/develop/projects/rccl/",
		"torchcomms comms/rcclx/develop/"} {
		if rest, ok := strings.CutPrefix(file, develop); ok {
			return "torchcomms comms/rcclx/snapshots/stable/comms/rcclx/develop/" + rest
		}
	}
	return v.source
}

// SettingVariable is one row of the table from (flavor, setting) to variable, with the value that settings give it.
type SettingVariable struct {
	// Setting as a CommGroup names it; "always" for what is set whatever the settings.
	Setting string `json:"setting"`
	Name    string `json:"name"`
	// Value that a job sets; nil where it leaves the variable alone.
	Value *string `json:"value,omitempty"`
	// Unset is the value that the library takes where the variable is not set; empty where none can be named.
	Unset string `json:"unset,omitempty"`
	// Rule says how the value follows from the setting, Source where the library reads the variable.
	Rule   string `json:"rule"`
	Source string `json:"source"`
}

// SettingVariables are the rows of the table for a flavor, with the values that a job with these settings sets
// (JobEnvironment).
func SettingVariables(f Flavor, s Settings) []SettingVariable {
	env := jobProcess(f, s).controlled()
	var all []SettingVariable
	for _, v := range table {
		if v.value == nil || !v.read(f) {
			continue
		}
		row := SettingVariable{Setting: v.setting, Name: v.name, Unset: v.unset, Rule: v.rule, Source: v.sourceFor(f)}
		if value, ok := env[v.name]; ok {
			row.Value = &value
		}
		all = append(all, row)
	}
	return all
}
