package compat

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"7.0.2": "7.0.2", "6.4.1-83": "6.4.1", "7.2.4": "7.2.4", "10.0.0": "10.0.0", "6.4.1-83\n": "6.4.1",
		"7.10.0a20251006": "7.10.0",
		"7.0.0rc1":        "7.0.0", "6.4.0.60400-47~22.04": "6.4.0.60400", "5": "5", "7.2.1-81-gfx950": "7.2.1",
		"7.0.2+g12": "7.0.2", "7.12.0.dev0+1a2b3c4d": "7.12.0", "7.12.0~rc1": "7.12.0", "6.4~rc": "6.4",
	} {
		v, ok := ParseVersion(text)
		if !ok || v.String() != want {
			t.Errorf("ParseVersion(%q) = %s, %v; want %s", text, v, ok, want)
		}
	}
	for _, text := range []string{"", "-83", "v7.0", "7..0", "7.", ".7", "7.0.", "seven", "7,0", "7.0 2", "1.2.3.4.5",
		"99999999999", "7.0\x00", "unknown", "mixed", strings.Repeat("1", 65)} {
		if v, ok := ParseVersion(text); ok {
			t.Errorf("ParseVersion(%q) = %s, want none", text, v)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b          string
		less, reaches bool
	}{
		{"6.3.4", "6.4", true, false},
		{"6.4", "6.4", false, true},
		{"6.4.0", "6.4", false, true},
		{"6.10.0", "6.4", false, true},
		{"10.0.0", "7.0", false, true},
		{"7", "7.0.1", false, false}, // may be 7.0.0 or 7.2
		{"6", "7.0.1", true, false},
		{"8", "7.0.1", false, true},
		{"7.0.0", "7.0.1", true, false},
	} {
		a, _ := ParseVersion(c.a)
		b, _ := ParseVersion(c.b)
		if a.Less(b) != c.less || a.reaches(b) != c.reaches {
			t.Errorf("%s against %s: less %v, reaches %v", a, b, a.Less(b), a.reaches(b))
		}
	}
}

func TestCheckROCm(t *testing.T) {
	for _, c := range []struct {
		gfx, rocm string
		broken    bool
	}{
		{"gfx942", "6.3.4-76", true},
		{"gfx942", "5", true},
		{"gfx942", "6.4.0", false},
		{"gfx942", "6", false}, // may be 6.4
		{"gfx942", "7.0.2", false},
		{"gfx942", "10.0.0", false},
		{"gfx950", "6.4.4", true},
		{"gfx950", "7.0.0", false},
		{"gfx950", "7.0.2", false},
		{"gfx90a", "5.4.2", false},
		{"gfx908", "4.0", false},
		{"mixed", "5.0.0", false},
		{"", "5.0.0", false},
		{"gfx942", "", false},
		{"gfx942", "unknown", false},
	} {
		f := CheckROCm(c.gfx, c.rocm)
		if (f != nil) != c.broken {
			t.Errorf("CheckROCm(%s, %s) = %+v", c.gfx, c.rocm, f)
		}
		if f != nil &&
			(f.Level != Error || f.Rule != RuleROCmMinimum || f.Source == "" || !strings.Contains(f.Message, c.gfx) ||
				!strings.HasPrefix(f.Message, f.Seen+": ") || !strings.Contains(f.Message, MinimumROCm(c.gfx))) {
			t.Errorf("CheckROCm(%s, %s) = %+v", c.gfx, c.rocm, f)
		}
	}
	for _, c := range []struct {
		gfx, rocm   string
		fits, known bool
	}{{"gfx942", "6.4", true, true}, {"gfx942", "6.3.4", false, true}, {"gfx942", "6", false, false},
		{"gfx942", "7", true, true}, {"gfx942", "?", false, false}, {"gfx90a", "5.2.0", true, true},
		{"gfx90a", "", false, false}, {"gfx1250", "10.0.0", false, false}, {"mixed", "7.0.2", false, false}} {
		if fits, known := ROCmFits(c.gfx, c.rocm); fits != c.fits || known != c.known {
			t.Errorf("ROCmFits(%s, %s) = %v, %v", c.gfx, c.rocm, fits, known)
		}
	}
	if MinimumROCm("gfx942") != "6.4" || MinimumROCm("gfx950") != "7.0" || MinimumROCm("gfx90a") != "" {
		t.Error("minimums are not as documented")
	}
}

func TestCheckDriver(t *testing.T) {
	for _, c := range []struct{ driver, rocm, want string }{
		{"6.14.14", "7.0.2", ""},
		{"6.14.14", "6.2.0", ""},
		{"6.14.14", "6.1.2", "use ROCm 6.2 or newer, or an older driver"},
		{"6.14.14", "5", "use ROCm 6.2 or newer"},
		{"6.14.14", "6", ""}, // 6.0 or 6.4
		{"6.14.14", "7.2.4", ""},
		{"6.14.14", "10.0.0", ""}, // within the year
		{"6.14.14", "10.1.0", ""}, // newer than the tables
		{"6.14.14", "7.14.0", ""},
		{"6.14.14", "7.12.0", ""},
		{"6.12.12", "7.12.0", ""}, // a preview, which may be within the year
		{"6.12.12", "7.14.0", "update the driver, or use ROCm 7.2 or older"},
		{"6.12.12", "10.0.0", "update the driver, or use ROCm 7.2 or older"},
		{"6.10.5", "7.12.0", "update the driver, or use ROCm 7.1 or older"},
		{"6.18.3", "7.14.0", ""},
		{"6.18.3", "6.3.1", ""},
		{"6.18.3", "6.2.4", "(driver of release 31.10 to 31.30 and ROCm 7.14)"},
		{"6.18.3", "10.0.0", ""},
		{"6.19.14.31400000", "7.14.0", ""},
		{"6.19.14.31400000", "10.0.0", ""},
		{"6.19.14", "6.3.4", "use ROCm 6.4 or newer, or an older driver"},
		{"6.10.5", "7.1.0", ""}, // within the year
		{"6.10.5", "7.2.0", "update the driver, or use ROCm 7.1 or older"},
		{"6.10.5", "10.0.0", "update the driver"},
		{"6.12.12", "7.2.0", ""},
		{"6.8.5", "7.0.1", ""},
		{"6.8.5", "7.1.0", "update the driver, or use ROCm 7.0 or older"},
		{"6.7.0", "5.7.1", ""},
		{"6.7.0", "5.6.0", "use ROCm 5.7 or newer"},
		{"6.7.0", "7.0.0", "update the driver, or use ROCm 6.4 or older"},
		{"6.16.6", "6.3.1", ""},
		{"6.16.13", "6.2.4", "(driver of release 30.30 and ROCm 7.2)"},
		{"6.16.6", "6.2.4", "(driver of release 30.20 and ROCm 7.1)"},
		{"6.21.1", "5.0.0", ""}, // not in the table
		{"6.2.4", "7.2.0", ""},
		{"", "5.0.0", ""}, // an in-tree driver
		{"6.14.14", "", ""},
		{"6.14.14", "rubbish", ""},
		{"rubbish", "7.0.0", ""},
	} {
		f := CheckDriver(c.driver, c.rocm)
		if (f != nil) != (c.want != "") {
			t.Errorf("CheckDriver(%s, %s) = %+v", c.driver, c.rocm, f)
		}
		if f != nil && (f.Level != Warning || f.Rule != RuleDriverWindow || f.Source == "" ||
			!strings.Contains(f.Message, c.want) || !strings.Contains(f.Message, c.driver)) {
			t.Errorf("CheckDriver(%s, %s) = %+v, want %q", c.driver, c.rocm, f, c.want)
		}
	}
}

func TestFP8(t *testing.T) {
	for _, c := range []struct {
		targets []string
		want    string
	}{
		{[]string{"gfx942", "gfx942"}, ""},
		{[]string{"gfx950", "gfx942", "gfx950"}, "gfx942 uses FNUZ, gfx950 uses OCP"},
		{[]string{"gfx950", "gfx1200"}, ""},
		{[]string{"gfx942", "gfx1201", "gfx1200", "gfx950"}, "gfx1200, gfx1201, gfx950 uses OCP, gfx942 uses FNUZ"},
		{[]string{"gfx942", "gfx90a", "mixed", ""}, ""},
		{nil, ""},
	} {
		f := CheckFP8(c.targets)
		if (f != nil) != (c.want != "") {
			t.Errorf("CheckFP8(%v) = %+v", c.targets, f)
		}
		if f != nil &&
			(f.Level != Error || f.Rule != RuleFP8Encoding || f.Source == "" || !strings.Contains(f.Message, c.want)) {
			t.Errorf("CheckFP8(%v) = %+v, want %q", c.targets, f, c.want)
		}
	}
	for target, want := range map[string]string{"gfx942": "FNUZ", "gfx950": "OCP", "gfx90a": "", "": ""} {
		if got := FP8Encoding(target); got != want {
			t.Errorf("FP8Encoding(%q) = %q, want %q", target, got, want)
		}
	}
}

// TestScratchFirmware: other targets have no rule, and each that has one names a firmware.
func TestScratchFirmware(t *testing.T) {
	for target, want := range map[string]uint64{"gfx942": 177, "gfx950": 24, "gfx90a": 0, "mixed": 0, "": 0} {
		if got, ruled := ScratchFirmware(target); got != want || ruled != (want > 0) {
			t.Errorf("ScratchFirmware(%q) = %d, %v", target, got, ruled)
		}
	}
}

// TestTables: the tables are in order, each window holds the ROCm that its driver came with, and every row has a
// source.
func TestTables(t *testing.T) {
	for i, r := range releases {
		if _, err := time.Parse(time.DateOnly, r.date); err != nil {
			t.Error(err)
		}
		if i > 0 && (!releases[i-1].rocm.Less(r.rocm) || releases[i-1].date >= r.date) {
			t.Errorf("release %s is not after %s", r.rocm, releases[i-1].rocm)
		}
	}
	for i, d := range drivers {
		oldest, newest, after := d.window()
		if after != nil && !newest.Less(*after) {
			t.Errorf("driver %s: ROCm %s is too new, and %s is not", d.name, after, newest)
		}
		if d.rocm.Less(oldest) || newest.Less(d.rocm) {
			t.Errorf("driver %s: window %s to %s does not hold its own ROCm %s", d.name, oldest, newest, d.rocm)
		}
		if i > 0 && !drivers[i-1].module.Less(d.module) &&
			!slices.Equal(drivers[i-1].module.parts[:2], d.module.parts[:2]) {
			t.Errorf("driver %s is not after %s", d.name, drivers[i-1].name)
		}
		if f := CheckDriver(d.module.String()+".99", d.rocm.String()+".1"); f != nil {
			t.Errorf("driver %s does not fit its own ROCm: %+v", d.name, f)
		}
		if !slices.ContainsFunc(releases, func(r releaseRow) bool { return r.rocm == d.rocm }) {
			t.Errorf("driver %s: ROCm %s has no date", d.name, d.rocm)
		}
	}
	for _, r := range Rules() {
		if r.Name == "" || r.Holds == "" || r.Unknown == "" || r.Level == "" || len(r.Rows) == 0 {
			t.Errorf("rule %+v", r)
		}
		for _, row := range r.Rows {
			if len(row) != len(r.Columns) || slices.Contains(row, "") {
				t.Errorf("rule %s: row %q has an empty or missing cell", r.Name, row)
			}
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"7.0.2", "6.4.1-83", "7.10.0a20251006", "", "7..", "1.2.3.4.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := ParseVersion(text)
		if !ok {
			return
		}
		if again, ok := ParseVersion(v.String()); !ok || again != v || v.Less(v) || !v.reaches(v) {
			t.Errorf("%q gave %s, which reads as %s (%v)", text, v, again, ok)
		}
		fits, known := ROCmFits("gfx942", text)
		if f := CheckROCm("gfx942", text); (f != nil) != (known && !fits) || fits && !known {
			t.Errorf("%s: %+v, fits %v, known %v", text, f, fits, known)
		}
		_ = CheckDriver("6.14.14", text)
		_ = CheckDriver(text, "7.0.2")
	})
}
