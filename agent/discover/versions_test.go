package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckVersions(t *testing.T) {
	for name, c := range map[string]struct {
		targets             []string
		driver, state, rocm string
		want                []string
	}{
		"fits": {[]string{"gfx942"}, "6.14.14", ROCmFound, "7.0.2", nil},
		"too old for MI300": {[]string{"gfx942", "gfx942"}, "6.10.5", ROCmFound, "6.3.4",
			[]string{"Warning ROCmTooOld opt/rocm/.info/version"}},
		"too old for MI350": {[]string{"gfx950"}, "6.12.12", ROCmFound, "6.4.4",
			[]string{"Warning ROCmTooOld opt/rocm/.info/version"}},
		"too old for one of two": {[]string{"gfx942", "gfx950"}, "6.12.12", ROCmFound, "6.4.4",
			[]string{"Warning ROCmTooOld opt/rocm/.info/version"}},
		"driver too old": {[]string{"gfx942"}, "6.8.5", ROCmFound, "7.2.0",
			[]string{"Warning DriverMismatch"}},
		"both": {[]string{"gfx942"}, "6.14.14", ROCmFound, "6.1.0",
			[]string{"Warning ROCmTooOld opt/rocm/.info/version", "Warning DriverMismatch"}},
		"in-tree driver":           {[]string{"gfx942"}, "", ROCmFound, "7.2.0", nil},
		"no ROCm":                  {[]string{"gfx942"}, "6.8.5", ROCmNotFound, "", nil},
		"several, none of them in": {[]string{"gfx942"}, "6.8.5", ROCmAmbiguous, "", nil},
		"no GPU known":             {[]string{""}, "6.14.14", ROCmFound, "5.0.0", []string{"Warning DriverMismatch"}},
	} {
		f := &Facts{Driver: DriverFacts{Version: c.driver},
			ROCm: ROCmFacts{State: c.state, Version: c.rocm, Source: "opt/rocm/.info/version"}}
		for _, target := range c.targets {
			f.GPUs = append(f.GPUs, GPU{GFXTarget: target})
		}
		var l problemList
		checkVersions(&l, f)
		f.Problems = l
		if diff := cmp.Diff(c.want, problemLines(f), cmp.Transformer("nil", func(s []string) string {
			return strings.Join(s, "\n")
		})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, p := range l {
			if !strings.Contains(p.Message, "host's ROCm") || len(p.Message) > 400 {
				t.Errorf("%s: %d bytes: %s", name, len(p.Message), p.Message)
			}
		}
	}
}
