package compat

import (
	"fmt"
	"strconv"
)

// Rule is one rule for a reader.
type Rule struct {
	Name string
	// Holds says what must hold, Level what it weighs where it does not, Unknown when nothing is judged.
	Holds   string
	Level   Level
	Unknown string
	// Columns and Rows are its data; the last column is the source.
	Columns []string
	Rows    [][]string
}

// Rules are all rules with their data, for documentation.
func Rules() []Rule {
	least := Rule{
		Name: RuleROCmMinimum, Level: Error,
		Holds:   "the ROCm user space is at least the release that the GPUs need",
		Unknown: "for targets that are not in the table, and where no version is known",
		Columns: []string{"GPUs", "models", "ROCm at least", "read", "source"},
	}
	for _, m := range minimums {
		rocm := m.rocm.String()
		if rocm == "" {
			rocm = "any"
		}
		least.Rows = append(least.Rows, []string{m.target, m.models, rocm, m.checked, m.source})
	}
	window := Rule{
		Name: RuleDriverWindow, Level: Warning,
		Holds: fmt.Sprintf("the ROCm user space is one that AMD supports with the amdgpu driver: "+
			"the published range, and, of ROCm %s and later, what came out within a year after the driver", yearRule),
		Unknown: fmt.Sprintf("for a driver without a version (one that came with the kernel), a driver that is not "+
			"in the table, and for a ROCm that is newer than the last one of the row and older than the first known "+
			"one outside of it; the last known one is %s", releases[len(releases)-1].rocm),
		Columns: []string{"amdgpu module", "driver release", "came with ROCm", "ROCm from", "ROCm to", "source"},
	}
	for _, d := range drivers {
		oldest, newest, _ := d.window()
		module := d.module.String() + ".x"
		if d.module.count > 2 {
			module = d.module.String() + " and up"
		}
		window.Rows = append(window.Rows,
			[]string{module, d.name, d.rocm.String(), oldest.String(), newest.String(), d.source})
	}
	fp8 := Rule{
		Name: RuleFP8Encoding, Level: Error,
		Holds:   "all GPUs of one communicator encode FP8 numbers alike where FP8 is on",
		Unknown: "for targets that are not in the table",
		Columns: []string{"GPUs", "encoding", "source"},
	}
	for _, e := range encodings {
		fp8.Rows = append(fp8.Rows, []string{e.target, e.encoding, e.source})
	}
	reclaim := Rule{
		Name: RuleScratchReclaim, Level: Error,
		Holds: "HSA_NO_SCRATCH_RECLAIM is 1, or the HIP runtime is at least 6.4.43484 and the MEC firmware at least " +
			"this; in a group, on all nodes or on none",
		Unknown: "for targets that are not in the table, and where a version is not known",
		Columns: []string{"GPUs", "MEC firmware at least", "source"},
	}
	for _, row := range scratch {
		reclaim.Rows = append(reclaim.Rows, []string{row.target, strconv.FormatUint(row.firmware, 10), row.source})
	}
	slow := Rule{
		Name: RuleSlowScratch, Level: Warning,
		Holds:   "HSA_NO_SCRATCH_RECLAIM is 1, or the ROCm of the processes is older than this",
		Unknown: "for targets that are not in the table, and where a version is not known",
		Columns: []string{"GPUs", "slow from ROCm", "source"},
	}
	for _, row := range slowScratch {
		slow.Rows = append(slow.Rows, []string{row.target, row.rocm.String(), row.source})
	}
	return []Rule{least, window, fp8, reclaim, slow}
}
