// Package report prints CommGroups and CommNodes for people: the kubectl plugin and the demo share it. It shows units in
// each heading, says plainly where numbers are simulated, and prints "-" for what is not known, never zero.
package report

import (
	"fmt"
	"strconv"
)

// unknown stands for what nobody measured or reported.
const unknown = "-"

// Bytes prints a message size as engineers write it: 1024 is 1K, 67108864 is 64M; odd sizes in bytes.
func Bytes(sizeBytes int64) string {
	units := []struct {
		suffix string
		bytes  int64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}
	for _, u := range units {
		if sizeBytes >= u.bytes && sizeBytes%u.bytes == 0 {
			return strconv.FormatInt(sizeBytes/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(sizeBytes, 10)
}

// Microseconds prints a latency in microseconds with enough digits to compare.
func Microseconds(nanoseconds int64) string {
	us := float64(nanoseconds) / 1e3
	switch {
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	default:
		return fmt.Sprintf("%.0f", us)
	}
}

// GBps prints a bandwidth given in 10^6 bytes per second in 10^9 bytes per second.
func GBps(megabytesPerSecond int64) string {
	gb := float64(megabytesPerSecond) / 1e3
	if gb < 10 {
		return fmt.Sprintf("%.2f", gb)
	}
	return fmt.Sprintf("%.1f", gb)
}

// Percent prints parts per million as percent.
func Percent(ppm int64) string { return fmt.Sprintf("%.2f %%", float64(ppm)/1e4) }

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
