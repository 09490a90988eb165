package rcclx

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDetectFlavor(t *testing.T) {
	none := func(string) bool { return false }
	exports := func(names ...string) func(string) bool {
		return func(symbol string) bool { return strings.Contains(" "+strings.Join(names, " ")+" ", " "+symbol+" ") }
	}
	zero := "\x00"
	tests := []struct {
		name string
		has  func(string) bool
		file string
		want Flavor
	}{
		{"relay symbol", exports("ncclShardedRelayMultiGroupAllReduce"), "", FlavorRCCLXDev},
		{"develop's literal", none, "xRCCL_LOW_PRECISION_ENABLE_INIT" + zero, FlavorRCCLXDev},
		{"develop's other literal", none, "RCCL_DDA_ALL_GATHER_MAX_BYTES" + zero, FlavorRCCLXDev},
		{"stable", none, zero + "RCCL_ENABLE_DDA_ALL_REDUCE" + zero + "RCCL_LOW_PRECISION_ENABLE" + zero,
			FlavorRCCLXStable},
		{"amd with dda", none, zero + "RCCL_DDA_ENABLE" + zero + "NCCL_DEBUG" + zero, FlavorRCCLDDA},
		{"a sentence about dda", none, "set RCCL_DDA_ENABLE=0 while profiling" + zero, FlavorRCCL},
		{"amd", none, "RCCL_MSCCL_ENABLE" + zero + "NCCL_DEBUG" + zero, FlavorRCCL},
		{"nvidia", none, "NCCL_DEBUG" + zero, FlavorNCCL},
		{"something else", none, "libm", FlavorUnknown},
		{"simulator", exports("simrocmVersion", "ncclShardedRelayMultiGroupAllReduce"), "RCCL_DDA_ENABLE" + zero,
			FlavorSimulated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Also by single bytes: every literal then crosses a border.
			for _, r := range []func() (Literals, error){
				func() (Literals, error) { return ScanLiterals(strings.NewReader(tt.file)) },
				func() (Literals, error) { return scanLiterals(iotest.OneByteReader(strings.NewReader(tt.file)), 3) },
				func() (Literals, error) { return ScanLibraryFile(strings.NewReader(tt.file), int64(len(tt.file))) },
			} {
				found, err := r()
				if err != nil {
					t.Fatal(err)
				}
				if got := DetectFlavor(tt.has, found); got != tt.want {
					t.Errorf("DetectFlavor = %s, want %s (literals %+v)", got, tt.want, found)
				}
			}
		})
	}
}

func TestParseFlavor(t *testing.T) {
	if f, err := ParseFlavor("rcclx-dev"); err != nil || f != FlavorRCCLXDev {
		t.Errorf("ParseFlavor = %s, %v", f, err)
	}
	for _, bad := range []string{"", "simulated", "RCCL"} {
		if _, err := ParseFlavor(bad); err == nil {
			t.Errorf("ParseFlavor(%q) gave no error", bad)
		}
	}
}

// FuzzScanLiterals holds the chunked scan against a search of the whole.
func FuzzScanLiterals(f *testing.F) {
	f.Add([]byte("RCCL_DDA_ENABLE\x00NCCL_"), 7)
	f.Add([]byte("RCCL_LOW_PRECISION_ENABLE_INIT\x00RCCL_LOW_PRECISION_ENABLE\x00"), 1)
	f.Fuzz(func(t *testing.T, data []byte, chunk int) {
		if chunk < 1 || chunk > 1<<16 {
			return
		}
		got, err := scanLiterals(bytes.NewReader(data), chunk)
		if err != nil {
			t.Fatal(err)
		}
		var want Literals
		for _, n := range want.needles() {
			*n.set = bytes.Contains(data, n.text)
		}
		if got != want {
			t.Errorf("chunks of %d: %+v, whole: %+v", chunk, got, want)
		}
		if _, err := ScanLibraryFile(bytes.NewReader(data), int64(len(data))); err != nil {
			t.Errorf("ScanLibraryFile: %v", err)
		}
	})
}
