package compat

import (
	"strconv"
	"strings"
)

// deviceModels are the PCI device ids of vendor 0x1002 by which others name a GPU, in labels for example.
// agent/discover has all that is known of each; a test there keeps the two alike. 0x740c is sold as MI250 and as
// MI250X.
var deviceModels = map[uint64]string{
	0x6860: "MI25", 0x66a1: "MI50/MI60", 0x738c: "MI100", 0x738e: "MI100",
	0x7408: "MI250X", 0x740c: "MI250", 0x740f: "MI210", 0x7410: "MI210 VF",
	0x74a0: "MI300A", 0x74a1: "MI300X", 0x74a2: "MI308X", 0x74a5: "MI325X", 0x74a8: "MI308X HF", 0x74a9: "MI300X HF",
	0x74b5: "MI300X VF", 0x74b6: "MI308X VF", 0x74b9: "MI325X VF", 0x74bc: "MI308X HF VF", 0x74bd: "MI300X HF VF",
	0x75a0: "MI350X", 0x75a3: "MI355X", 0x75a8: "MI350P", 0x75b0: "MI350X VF", 0x75b3: "MI355X VF", 0x75b8: "MI350P VF",
	0x75c1: "MI450X",
}

// ModelOfDeviceID is the model of a PCI device id in hexadecimal, with or without 0x; "" where the id is not known.
func ModelOfDeviceID(id string) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(id), "0x"), 16, 64)
	if err != nil {
		return ""
	}
	return deviceModels[n]
}
