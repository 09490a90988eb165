package rcclx

import (
	"fmt"
	"slices"
	"strings"
)

// variable is what we know of one environment variable: which flavors read it, and what to do where it is not read.
type variable struct {
	readBy []Flavor
	hint   string
}

var (
	onlyDev   = []Flavor{FlavorRCCLXDev}
	onlyMeta  = []Flavor{FlavorRCCLXDev, FlavorRCCLXStable}
	onlyAMD   = []Flavor{FlavorRCCLDDA}
	noFlavor  []Flavor
	hintDDA   = "set spec.dda.mode instead, which sets the switch that this library reads"
	hintFP8   = "set spec.lowPrecision.mode instead, and use an RCCLX library"
	hintNCCLX = "it is a variable of NCCLX; remove it"
	hintCvar  = "open builds of RCCLX never load the variables of CTran; remove it"
	hintMSCCL = "RCCLX is built without MSCCL kernels; remove it"
)

// variables lists those whose reader depends on the flavor. Sources: torchcomms meta/algorithms/AlgoInit.h and
// meta/lpcoll/low_precision_common.h (develop and stable), comms/utils/cvars/nccl_cvars.yaml, rocm-systems projects/rccl
// src/rccl_wrap.cc.
var variables = map[string]variable{
	"RCCL_DDA_ENABLE":                         {onlyAMD, "it is a switch of AMD's RCCL 2.30 and up; " + hintDDA},
	"RCCL_DDA_THRESHOLD":                      {onlyAMD, "set spec.dda.allReduceTreeMaxBytes instead"},
	"RCCL_DDA_LL":                             {onlyAMD, "it tunes AMD's DDA; remove it"},
	"RCCL_DDA_LL_THRESHOLD":                   {onlyAMD, "it tunes AMD's DDA; remove it"},
	"RCCL_DDA_LL128":                          {onlyAMD, "it tunes AMD's DDA; remove it"},
	"RCCL_DDA_LL128_THRESHOLD":                {onlyAMD, "it tunes AMD's DDA; remove it"},
	envDDARanks:                               {onlyMeta, "it is a switch of RCCLX; " + hintDDA},
	envDDAAllReduce:                           {onlyMeta, "it is a switch of RCCLX; " + hintDDA},
	envDDAFlatMax:                             {onlyMeta, "set spec.dda.allReduceFlatMaxBytes instead"},
	envDDATreeMax:                             {onlyMeta, "set spec.dda.allReduceTreeMaxBytes instead"},
	envDDASendBuffer:                          {onlyDev, "set spec.dda.allReduceTreeMaxBytes instead, which sizes the buffer"},
	"RCCL_DDA_MAX_BLOCKS":                     {onlyDev, "it tunes RCCLX's DDA; remove it"},
	envStableSendBuffer:                       {[]Flavor{FlavorRCCLXStable}, "on rcclx-dev the name is RCCL_DDA_SENDBUF_BYTES"},
	"RCCL_DDA_ALL_REDUCE_MAX_BLOCKS":          {[]Flavor{FlavorRCCLXStable}, "on rcclx-dev the name is RCCL_DDA_MAX_BLOCKS"},
	"RCCL_ENABLE_DDA_ALL_GATHER":              {onlyDev, hintDDA},
	"RCCL_DDA_ALL_GATHER_MAX_BYTES":           {onlyDev, hintDDA},
	"RCCL_ENABLE_DDA_REDUCE_SCATTER":          {onlyDev, hintDDA},
	"RCCL_DDA_REDUCE_SCATTER_MAX_BYTES":       {onlyDev, hintDDA},
	"RCCL_ENABLE_DDA_ALL_TO_ALL":              {onlyDev, hintDDA},
	"RCCL_DDA_ALL_TO_ALL_MAX_BYTES":           {onlyDev, hintDDA},
	envFP8:                                    {onlyMeta, hintFP8},
	"RCCL_LOW_PRECISION_ENABLE_INIT":          {onlyDev, hintFP8},
	"RCCL_LOW_PRECISION_ENABLE_ALLREDUCE":     {onlyDev, hintFP8},
	"RCCL_LOW_PRECISION_ENABLE_ALLGATHER":     {onlyDev, hintFP8},
	"RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER": {onlyDev, hintFP8},
	"RCCL_LOW_PRECISION_ENABLE_ALLTOALL":      {onlyDev, hintFP8},
	"NCCL_CTRAN_ENABLE":                       {noFlavor, hintCvar},
	"NCCL_CTRAN_BACKENDS":                     {noFlavor, hintCvar},
	"NCCL_CTRAN_REGISTER":                     {noFlavor, hintCvar},
	"NCCL_ALLGATHER_P_ALGO":                   {noFlavor, hintCvar},
	"NCCL_ALLREDUCE_ALGO":                     {noFlavor, hintNCCLX},
	"NCCL_ALLGATHER_ALGO":                     {noFlavor, hintNCCLX},
	"NCCL_ALLTOALLV_ALGO":                     {noFlavor, hintNCCLX},
	"NCCL_DDA_TMPBUFF_SIZE":                   {noFlavor, hintDDA},
	"NCCL_DDA_ALLREDUCE_TREE_THRESHOLD":       {noFlavor, "set spec.dda.allReduceTreeMaxBytes instead"},
	"NCCL_DDA_ALLREDUCE_SCATGAT_THRESHOLD":    {noFlavor, "set spec.dda.allReduceTreeMaxBytes instead"},
	"NCCL_DDA_ALLREDUCE_MAX_BLOCKS":           {noFlavor, hintDDA},
	"NCCL_COLLTRACE":                          {noFlavor, hintNCCLX},
	"NCCL_COMMSMONITOR_ENABLE":                {noFlavor, hintNCCLX},
	"RCCL_MSCCL_ENABLE":                       {[]Flavor{FlavorRCCL}, hintMSCCL},
	"RCCL_MSCCL_FORCE_ENABLE":                 {[]Flavor{FlavorRCCL}, hintMSCCL},
	"RCCL_MSCCLPP_ENABLE":                     {[]Flavor{FlavorRCCL}, hintMSCCL},
	"RCCL_MSCCLPP_THRESHOLD":                  {[]Flavor{FlavorRCCL}, hintMSCCL},
}

// Reads says whether a flavor reads a variable; known is false where this package cannot tell, as for the many
// variables that every NCCL shares.
func Reads(f Flavor, name string) (reads, known bool) {
	if f == FlavorNCCL && (strings.HasPrefix(name, prefixRCCL) || strings.HasPrefix(name, "HSA_") || strings.HasPrefix(name, "HIP_")) {
		return false, true
	}
	v, ok := variables[name]
	if !ok || unknownFlavor(f) {
		return false, false
	}
	return slices.Contains(v.readBy, f), true
}

// effectiveVariables reports a person's own variables that the flavor never reads, or that a setting overrides.
func effectiveVariables(f Flavor, s Settings) []Effective {
	var all []Effective
	controlled := jobControlled(f, s)
	for _, own := range s.Env {
		e := Effective{Name: "env." + own.Name, Requested: own.Value}
		if value, ok := controlled[own.Name]; ok {
			if value != own.Value {
				all = append(all, e.not(ReasonNotApplied, fmt.Sprintf("%s=%s is set from the CommGroup's settings instead: change those and remove the variable", own.Name, value)))
			}
			continue
		}
		if f.rcclx() && s.controls(f, own.Name) {
			all = append(all, e.not(ReasonNotApplied, fmt.Sprintf("DDA is switched off for all calls (%s=0), so %s changes nothing: set spec.dda.mode", envDDARanks, own.Name)))
			continue
		}
		if reads, known := Reads(f, own.Name); known && !reads {
			hint := "remove it"
			if v, ok := variables[own.Name]; ok {
				hint = v.hint
			}
			all = append(all, e.not(ReasonUnknownVariable, fmt.Sprintf("library flavor %s never reads %s: %s", f, own.Name, hint)))
		}
	}
	return all
}

// controls says whether a variable of RCCLX's DDA is without effect because DDA as a whole is off.
func (s Settings) controls(f Flavor, name string) bool {
	reads, known := Reads(f, name)
	return known && reads && strings.Contains(name, "DDA") && !s.DDA.Mode.Requests()
}

// Remarks are what a person should know of a flavor beside its gates.
func Remarks(f Flavor) []string {
	var all []string
	if reads, known := Reads(f, envAMDDDA); known && !reads {
		all = append(all, fmt.Sprintf("Remark: library flavor %s never reads %s, which published guides name: %s", f, envAMDDDA, variables[envAMDDDA].hint))
	}
	if f.rcclx() {
		all = append(all, fmt.Sprintf("Remark: a rank needs %d bytes of device memory for FP8 with up to 8 ranks and messages of 128 Mi elements, and all ranks need the same variables.", LowPrecisionPoolBytes(8, 0)))
	}
	return all
}
