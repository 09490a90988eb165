package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rawValues are what the odd files of the fixtures say, or the class of why they say nothing. TestRawMetrics has
// gpu_metrics.
var rawValues = map[string]string{
	"err_count-huge":              "Malformed",
	"err_count-negative":          "Malformed",
	"err_count-no-space":          "ue 1 ce 2 de ?",
	"err_count-upper":             "ue 1 ce 2 de ?",
	"gpu_id-newline-only":         "Malformed",
	"gpu_id-spaces":               "42583",
	"numa_node-minus1":            "-1",
	"partition-lowercase":         "SPX",
	"partition-unknown":           "",
	"version-gfx-suffix":          "6.4.1",
	"version-therock-alpha":       "7.14.0a20260601",
	"properties-crlf":             "simd 1216/4 num_xcc 8 gfx 90402 device 29857 at 1280 minor 128 hive 1 unique 2",
	"properties-empty":            "Malformed",
	"properties-long-line":        "Malformed",
	"properties-no-final-newline": "simd 1216/4 num_xcc 8 gfx 90402 device 29857 at 1280 minor 128 hive 1 unique 2",
	"properties-not-utf8":         "simd 1216/4 num_xcc 8 gfx 90402 device 29857 at 1280 minor 128 hive 1 unique 2",
	"properties-nul":              "Malformed",
	"properties-only-spaces":      "Malformed",
	"properties-truncated":        "Malformed",
}

// TestRawValues: each odd file gives exactly its value, and nothing else.
func TestRawValues(t *testing.T) {
	dir := filepath.Join(fixtures(t), "synthetic", "raw")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := func(n *uint64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	parsers := map[string]func([]byte) (string, error){
		"properties": func(data []byte) (string, error) {
			var p nodeProperties
			err := parseProperties(data, p.field)
			return fmt.Sprintf("simd %s/%s num_xcc %s gfx %s device %s at %s minor %s hive %s unique %s",
				text(p.SIMDCount), text(p.SIMDPerCU), text(p.NumXCC), text(p.GFXTargetVersion), text(p.DeviceID),
				text(p.LocationID), text(p.RenderMinor), text(p.HiveID), text(p.UniqueID)), err
		},
		"err_count": func(data []byte) (string, error) {
			c, err := parseErrorCounts(data)
			return fmt.Sprintf("ue %d ce %d de %s", c.Uncorrectable, c.Correctable, text(c.Deferred)), err
		},
		"partition": func(data []byte) (string, error) { return parsePartition(data, computePartitions) },
		"numa_node": func(data []byte) (string, error) { n, err := parseIntFile(data); return fmt.Sprint(n), err },
		"gpu_id":    func(data []byte) (string, error) { n, err := parseUintFile(data); return fmt.Sprint(n), err },
		"version":   parseROCmVersion,
	}
	seen := 0
	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Name(), "-")
		if kind == "gpu_metrics" {
			continue
		}
		want, known := rawValues[e.Name()]
		parse := parsers[kind]
		if !known || parse == nil {
			t.Errorf("%s has no case", e.Name())
			continue
		}
		seen++
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(data)
		if err != nil {
			got = string(Classify(err))
		}
		if got != want {
			t.Errorf("%s gives %q (%v), want %q", e.Name(), got, err, want)
		}
	}
	if seen != len(rawValues) {
		t.Errorf("%d files, but %d cases", seen, len(rawValues))
	}
}
