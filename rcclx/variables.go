package rcclx

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
)

// effectiveVariables reports a user's own variables that the flavor never reads, or that a setting overrides.
func effectiveVariables(f Flavor, s Settings, who audience.Audience) []Effective {
	var all []Effective
	controlled := jobProcess(f, s).controlled()
	for _, own := range s.Env {
		e := Effective{Name: "env." + own.Name, Requested: own.Value}
		if value, ok := controlled[own.Name]; ok {
			if value != own.Value {
				advice := audience.Advice{
					Pod:   "is set from the CommGroup's settings instead: change those and remove the variable",
					Shell: "is set for the variant instead: remove the variable, and choose by --variants",
				}
				all = append(all, e.not(ReasonNotApplied, fmt.Sprintf("%s=%s %s", own.Name, value, advice.For(who))))
			}
			continue
		}
		if f.rcclx() && s.controls(f, own.Name) {
			advice := audience.Advice{Pod: "set spec.dda.mode", Shell: "measure --variants DDA"}
			all = append(all, e.not(ReasonNotApplied, fmt.Sprintf("DDA is switched off for all calls (%s=0), "+
				"so %s changes nothing: %s", envDDARanks, own.Name, advice.For(who))))
			continue
		}
		if reads, known := Reads(f, own.Name); known && !reads {
			hint := "remove it"
			if row, ok := rowOf(own.Name); ok && row.hint != (audience.Advice{}) {
				hint = row.hint.For(who)
			}
			all = append(all,
				e.not(ReasonUnknownVariable, fmt.Sprintf("library flavor %s never reads %s: %s", f, own.Name, hint)))
		}
	}
	return all
}

// controls says whether a variable of RCCLX's DDA is without effect because DDA as a whole is off.
func (s Settings) controls(f Flavor, name string) bool {
	reads, known := Reads(f, name)
	return known && reads && strings.Contains(name, "DDA") && !s.DDA.Mode.Requests()
}

// Remarks are what a user should know of a flavor beside its gates.
func Remarks(f Flavor) []string {
	var all []string
	for _, v := range table {
		if reads, known := Reads(f, v.name); v.guides && known && !reads {
			all = append(all, fmt.Sprintf("Remark: library flavor %s never reads %s, which published guides name: %s",
				f, v.name, v.hint.For(audience.Pod)))
		}
	}
	if f.rcclx() {
		all = append(all, fmt.Sprintf("Remark: a rank needs %s of device memory for FP8 with up "+
			"to 8 ranks and messages of 128 Mi elements, and all ranks need the same variables.",
			exactBytes(LowPrecisionPoolBytes(8, 0))))
	}
	if f == FlavorNCCL {
		all = append(all, fmt.Sprintf("Remark: measurements never use NVLink multicast (NVLS): "+
			"%s=0 is set for every rank process, so large messages may be slower than with the library's own choice. "+
			"Jobs are free to use it: it is not among their variables.", multicastVariable))
	}
	return all
}
