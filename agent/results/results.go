// Package results is the form in which measurements leave this machine: what agent bench measured, and what agent import
// read from rccl-tests' or nccl-tests' output.
package results

import (
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// Report is one run on one machine or of one rccl-tests program.
type Report struct {
	// Source says who measured: "agent bench", "rccl-tests" or "nccl-tests".
	Source string `json:"source"`
	// Time of the run's start; zero where the source does not tell.
	Time time.Time `json:"time,omitzero"`
	// Simulated is set where no GPU was measured.
	Simulated bool `json:"simulated,omitempty"`
	// Library that was measured; nil where the source does not tell.
	Library *rcclx.LibraryInfo `json:"library,omitempty"`
	Ranks   int                `json:"ranks"`
	Nodes   int                `json:"nodes"`
	Devices []Device           `json:"devices,omitempty"`
	Results []Result           `json:"results"`
	// Settings: requested against effective, where known.
	Settings []rcclx.Effective `json:"settings,omitempty"`
	// InitNanoseconds is the slowest rank's time to form the communicator, by variant.
	InitNanoseconds map[rcclx.Variant]int64 `json:"initNanoseconds,omitempty"`
	// Warnings are what a reader must know beside the numbers.
	Warnings []string `json:"warnings,omitempty"`
	// Failure ended the run; empty where it ran to its end.
	Failure string `json:"failure,omitempty"`
}

// Device is the GPU of a rank.
type Device struct {
	Rank       int    `json:"rank"`
	Ordinal    int    `json:"ordinal"`
	PCIAddress string `json:"pciAddress,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Result is one measurement over all ranks.
type Result struct {
	Variant    rcclx.Variant    `json:"variant,omitempty"`
	Collective rcclx.Collective `json:"collective"`
	Datatype   rcclx.Datatype   `json:"datatype"`
	// Op is Sum, Prod, Max, Min or Avg; empty where the collective does not reduce.
	Op        string          `json:"op,omitempty"`
	Placement rcclx.Placement `json:"placement"`
	// SizeBytes as rccl-tests counts it (the larger of send and receive), CountElements as the call takes it.
	SizeBytes     int64 `json:"sizeBytes"`
	CountElements int64 `json:"countElements"`
	// Latency of one call, that of the slowest rank in each statistic. Only the median is set where the source gives one
	// number.
	Latency rcclx.LatencyStats `json:"latency"`
	// MeanLatencyNanoseconds is the mean over the ranks' medians, which is what rccl-tests shows by default.
	MeanLatencyNanoseconds int64 `json:"meanLatencyNanoseconds,omitempty"`
	// AlgBandwidthMBps and BusBandwidthMBps by rccl-tests' definitions, in 10^6 bytes per second, from the median latency.
	AlgBandwidthMBps int64 `json:"algBandwidthMBps"`
	BusBandwidthMBps int64 `json:"busBandwidthMBps"`
	// Checks of the data, the worst over all ranks; empty where nothing was checked.
	Checks []rcclx.CheckResult `json:"checks,omitempty"`
	// ExpectedPath that the gates predict; Hazard says where the library is known to lose data.
	ExpectedPath rcclx.Path `json:"expectedPath,omitempty"`
	Hazard       string     `json:"hazard,omitempty"`
}

// Wrong is the number of wrong elements, and whether anything was checked at all.
func (r Result) Wrong() (elements int64, checked bool) {
	for _, c := range r.Checks {
		elements += c.WrongElements
		checked = checked || c.CheckedElements > 0
	}
	return elements, checked
}
