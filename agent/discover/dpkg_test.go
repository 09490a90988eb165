package discover

import (
	"strings"
	"testing"
)

func dpkgVersion(pieces ...string) string {
	var d dpkgScan
	for _, p := range pieces {
		if !d.add([]byte(p)) {
			break
		}
	}
	d.finish()
	var all []string
	for _, p := range d.found {
		all = append(all, strings.TrimPrefix(p.name+" "+p.version, rocmPackage+" "))
	}
	return strings.Join(all, ", ")
}

func TestDpkgScan(t *testing.T) {
	installed := "Package: rocm-core\nStatus: install ok installed\nArchitecture: amd64\n" +
		"Version: 7.0.2.70002-56~22.04\nDescription: x\n more\n"
	for name, c := range map[string]struct{ text, want string }{
		"alone": {installed, "7.0.2.70002-56~22.04"},
		"in the middle": {"Package: a\nStatus: install ok installed\nVersion: 1\n\n" + installed +
			"\nPackage: b\nVersion: 2\n", "7.0.2.70002-56~22.04"},
		"removed":        {"Package: rocm-core\nStatus: deinstall ok config-files\nVersion: 6.2.0\n", ""},
		"half installed": {"Package: rocm-core\nStatus: install ok half-installed\nVersion: 6.2.0\n", ""},
		"removed, then other": {"Package: rocm-core\nStatus: deinstall ok config-files\nVersion: 6.2.0\n\n" +
			"Package: x\nStatus: install ok installed\nVersion: 9\n", ""},
		"longer name": {"Package: rocm-core-dev\nStatus: install ok installed\nVersion: 6.2.0\n", ""},
		"mentioned": {"Package: hip\nStatus: install ok installed\nVersion: 1\n" +
			"Description: needs\n Package: rocm-core\n Version: 3\n", ""},
		"another order": {"Version: 6.4.3-2\nStatus: hold ok installed\npackage: rocm-core\n", "6.4.3-2"},
		"no version": {"Package: rocm-core\nStatus: install ok installed\n\nPackage: x\nVersion: 5\n" +
			"Status: install ok installed\n", ""},
		"long lines": {"Conffiles: " + strings.Repeat("x", 100_000) + "\n" + installed,
			"7.0.2.70002-56~22.04"},
		"endless version": {"Package: rocm-core\nStatus: install ok installed\nVersion: " +
			strings.Repeat("1", 1000) + "\n", ""},
		"carriage returns": {strings.ReplaceAll(installed, "\n", "\r\n"), "7.0.2.70002-56~22.04"},
		"AMD's of today": {"Package: amdrocm-core7.14\nStatus: install ok installed\nVersion: 7.14.0-2\n\n" +
			"Package: amdrocm-llvm7.14\nStatus: install ok installed\nVersion: 7.14.0-2\n",
			"amdrocm-core7.14 7.14.0-2"},
		"Debian's own": {"Package: libamdhip64-5\nStatus: install ok installed\nVersion: 5.7.1-6+b1\n\nPackage: " +
			"librccl1\nStatus: install ok installed\nVersion: 5.4.3-3\n", "libamdhip64-5 5.7.1-6+b1, librccl1 5.4.3-3"},
		"nothing of ROCm's": {"Package: librccl1-tests\nStatus: install ok installed\nVersion: 5.4.3-3\n\n" +
			"Package: libamdhip64-dev\nStatus: install ok installed\nVersion: 5.7.1\n", ""},
		"empty":      {"", ""},
		"colon only": {":\n:\n\n", ""},
	} {
		if got := dpkgVersion(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDebianVersion(t *testing.T) {
	for text, want := range map[string]string{"7.0.2.70002-56~22.04": "7.0.2", "6.4.3-2": "6.4.3",
		"1:6.1.2+dfsg-1": "6.1.2", "7.1-1ubuntu1": "7.1", "6.3.1~rc": "6.3.1", "": "", "seven": "", "7": "",
		"7.0.2 x": "", "<none>": ""} {
		if got, err := parseDebianVersion(text); got != want || (err == nil) != (want != "") {
			t.Errorf("parseDebianVersion(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestDpkgBeyond64KiB: the database is larger than any other file that is read, and is searched all the same.
func TestDpkgBeyond64KiB(t *testing.T) {
	dir := t.TempDir()
	var status strings.Builder
	for status.Len() < 3<<20 {
		status.WriteString("Package: filler\nStatus: install ok installed\nVersion: 1.0\nDescription: nothing\n\n")
	}
	status.WriteString("Package: rocm-core\nStatus: install ok installed\nVersion: 6.4.1.60401-83~24.04\n")
	write(t, dir, dpkgStatus, []byte(status.String()))
	f := scan(t, openRoot(t, dir), Options{}).ROCm
	if f.State != ROCmFound || f.Version != "6.4.1" || f.Source != dpkgStatus {
		t.Errorf("%+v", f)
	}
}

// TestDpkgLimit: a database beyond the limit says that the rest was not searched.
func TestDpkgLimit(t *testing.T) {
	var d dpkgScan
	dir := t.TempDir()
	write(t, dir, "status", []byte(strings.Repeat("Package: filler\n\n", 100)+"Package: rocm-core\n"+
		"Status: install ok installed\nVersion: 6.4.1\n"))
	whole, err := streamFile(openRoot(t, dir), "status", 200, d.add)
	if d.finish(); err != nil || whole || len(d.found) > 0 {
		t.Errorf("whole %v, found %v, %v", whole, d.found, err)
	}
}

// FuzzDpkg: no input crashes, and where the pieces are cut does not matter.
func FuzzDpkg(f *testing.F) {
	f.Add("Package: rocm-core\nStatus: install ok installed\nVersion: 7.0.2.70002-56~22.04\n\nPackage: b\n", uint16(20))
	f.Add("Package: rocm-core\r\n\r\n", uint16(3))
	f.Add(strings.Repeat("x", 600)+"\nPackage: rocm-core\nVersion: 1", uint16(257))
	f.Fuzz(func(t *testing.T, text string, cut uint16) {
		at := int(cut) % (len(text) + 1)
		if whole, pieces := dpkgVersion(text), dpkgVersion(text[:at], text[at:]); whole != pieces {
			t.Errorf("whole %q, cut at %d %q", whole, at, pieces)
		}
	})
}
