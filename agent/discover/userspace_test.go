package discover

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestLibraryVersions(t *testing.T) {
	rccl := "#ifndef NCCL_H_\n#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n" +
		"#define NCCL_SUFFIX \"\"\n#define NCCL_VERSION_CODE 22707\n"
	for name, c := range map[string]struct {
		tree      memFS
		hip, rccl string
	}{
		"legacy": {memFS{"opt/rocm/bin/.hipVersion": "HIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\n" +
			"HIP_VERSION_PATCH=21152\n", "opt/rocm/include/rccl.h": "#define NCCL_VERSION_CODE 2803\n"},
			"5.2.21152", "2.8.3"},
		"share": {memFS{"opt/rocm/share/hip/version": "HIP_PACKAGING_VERSION_PATCH=26331-d1\nHIP_VERSION_MAJOR=7\n" +
			"HIP_VERSION_MINOR=16\nHIP_VERSION_PATCH=26331\n", "opt/rocm/include/rccl/rccl.h": rccl}, "7.16.26331",
			"2.27.7"},
		"header": {memFS{"opt/rocm/include/hip/hip_version.h": "#define HIP_VERSION_MAJOR 6\n" +
			"#define HIP_VERSION_MINOR 4\r\n#define HIP_VERSION_PATCH 43484\n"}, "6.4.43484", ""},
		"AMD's link": {memFS{"opt/rocm/lib/libamdhip64.so": "libamdhip64.so.7",
			"opt/rocm/lib/libamdhip64.so.7": "libamdhip64.so.7.0.70002"}, "7.0", ""},
		"other link": {memFS{"opt/rocm/lib/libamdhip64.so.7": "libamdhip64.so.7.2.53150-aee46ad448"}, "7.2.53150", ""},
		"below core": {memFS{"opt/rocm/core/share/hip/version": "HIP_VERSION_MAJOR=7\nHIP_VERSION_MINOR=15\n" +
			"HIP_VERSION_PATCH=26333\n", "opt/rocm/core/include/rccl/rccl.h": rccl}, "7.15.26333", "2.27.7"},
		"broken": {memFS{"opt/rocm/share/hip/version": "HIP_VERSION_MAJOR=7\n",
			"opt/rocm/include/rccl/rccl.h": "#define NCCL_MAJOR @nccl_major@\n"}, "", ""},
		"unreadable": {memFS{"opt/rocm/share/hip/version": "!EIO", "opt/rocm/include/rccl/rccl.h": "!EPERM"}, "", ""},
		"big header": {memFS{"opt/rocm/include/rccl/rccl.h": rccl + strings.Repeat("x", 40<<10)}, "", "2.27.7"},
		"not defined": {memFS{"opt/rocm/include/rccl/rccl.h": "#define NCCL_VERSION_CODE NCCL_VERSION(2,3,4)\n"},
			"", ""},
	} {
		c.tree["opt/rocm/.info/version"] = "7.0.2"
		if f := scan(t, c.tree, Options{}).ROCm; f.HIPVersion != c.hip || f.RCCLVersion != c.rccl ||
			f.Version != "7.0.2" {
			t.Errorf("%s: HIP %q, RCCL %q; want %q, %q", name, f.HIPVersion, f.RCCLVersion, c.hip, c.rccl)
		}
	}
	torch := memFS{"opt/venv/lib/python3.12/site-packages/torch-2.8.0+rocm6.4.dist-info/x": "",
		"opt/venv/lib/python3.12/site-packages/torch/version.py": "__version__ = '2.8.0+rocm6.4'\n" +
			"cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482-0f2d60242'\n"}
	if f := scan(t, torch, Options{}).ROCm; f.Version != "6.4" || f.HIPVersion != "6.4.43482" {
		t.Errorf("PyTorch: %+v", f)
	}
}

func TestLinkNames(t *testing.T) {
	for target, want := range map[string]string{"librccl.so.1.0.70002": "7.0.2",
		"/opt/x/librccl.so.1.0.100001": "10.0.1", "librccl.so.1.0": "", "librccl.so.2.0.70002": "", "": ""} {
		if got, err := parseRCCLLink(target); got != want || (err == nil) != (want != "") {
			t.Errorf("parseRCCLLink(%q) = %q, %v", target, got, err)
		}
	}
	for target, want := range map[string]string{"libamdhip64.so.6.4.60401": "6.4",
		"libamdhip64.so.7.2.53211": "7.2.53211", "libamdhip64.so.5.2.50201": "5.2",
		"libamdhip64.so.7": "", "libamdhip64.so.7.14.60850-0000000": "7.14.60850", "libother.so.7.0.1": ""} {
		if got, err := parseHIPLink(target); got != want || (err == nil) != (want != "") {
			t.Errorf("parseHIPLink(%q) = %q, %v; want %q", target, got, err, want)
		}
	}
	for version, want := range map[string]string{"2.8.0+rocm6.4": "6.4", "2.9.1+rocm7.2.1": "7.2.1",
		"2.9.0+rocm7.1.0.lw.git1": "7.1.0", "2.9.0+rocmsdk2025": "", "2.9.0+cu128": "", "2.9.0": ""} {
		if got, err := parseTorchROCm(version); got != want || (err == nil) != (want != "") {
			t.Errorf("parseTorchROCm(%q) = %q, %v; want %q", version, got, err, want)
		}
	}
}

// TestHeaderPieces: however a header is cut into pieces, its version is the same, and what follows it is not read.
func TestHeaderPieces(t *testing.T) {
	text := []byte("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 13\n" +
		"#define NCCL_VERSION_CODE 22813\nrest\n")
	for cut := range text {
		var s headerScan
		if s.add(text[:cut]) {
			s.add(text[cut:])
		}
		if got, err := s.version(); err != nil || got != "2.28.13" {
			t.Errorf("cut at %d: %q, %v", cut, got, err)
		}
	}
}

// TestStream: limits and ends of a file that is read in pieces.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	data := bytes.Repeat([]byte("0123456789abcdef"), 4096) // 64 KiB
	write(t, dir, "file", data)
	write(t, dir, "empty", nil)
	for _, fs := range []FS{openRoot(t, dir), memFS{"file": string(data), "empty": ""}} {
		for _, c := range []struct {
			name         string
			limit, bytes int
			whole        bool
		}{{"file", len(data) + 1, len(data), true}, {"file", len(data), len(data), true},
			{"file", len(data) - 1, len(data) - 1, false}, {"file", 1, 1, false}, {"empty", 100, 0, true}} {
			var got []byte
			whole, err := streamFile(fs, c.name,
				c.limit, func(chunk []byte) bool { got = append(got, chunk...); return true })
			if err != nil || whole != c.whole || !bytes.Equal(got, data[:c.bytes]) {
				t.Errorf("%T, %s to %d: %d bytes, whole %v, %v", fs, c.name, c.limit, len(got), whole, err)
			}
		}
		calls := 0
		if whole, err := streamFile(fs, "file", len(data), func([]byte) bool { calls++; return false }); err != nil ||
			!whole || calls != 1 {
			t.Errorf("%T: content after %d calls, %v, %v", fs, calls, whole, err)
		}
		if _, err := streamFile(fs, "absent", 10, func([]byte) bool { return true }); Classify(err) != ClassMissing {
			t.Errorf("%T: missing file gives %v", fs, err)
		}
	}
	if _, err := streamFile(openRoot(t, dir), ".", 10, func([]byte) bool { return true }); err == nil ||
		os.IsNotExist(err) {
		t.Errorf("a directory was read: %v", err)
	}
}

func FuzzUserSpace(f *testing.F) {
	for _, s := range []string{"HIP_VERSION_MAJOR=7\nHIP_VERSION_MINOR=0\nHIP_VERSION_PATCH=51831\n",
		"#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n",
		"#define NCCL_VERSION_CODE 22707\n", "libamdhip64.so.7.0.70002", "librccl.so.1.0.70002", "2.8.0+rocm6.4",
		"hip: Optional[str] = '6.4.43482-0f2d60242'", "7.0.2.70002-56~22.04"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		for name, parse := range map[string]func() (string, error){
			"hip":       func() (string, error) { return parseHIPVersion(data) },
			"rccl":      func() (string, error) { return parseRCCLHeader(data) },
			"hip link":  func() (string, error) { return parseHIPLink(text) },
			"rccl link": func() (string, error) { return parseRCCLLink(text) },
			"torch":     func() (string, error) { return parseTorchROCm(text) },
			"torch hip": func() (string, error) { return parseTorchHIP(data) },
			"debian":    func() (string, error) { return parseDebianVersion(text) },
		} {
			version, err := parse()
			if (err == nil) != (version != "") || err != nil && Classify(err) != ClassMalformed {
				t.Errorf("%s: %q, %v", name, version, err)
			}
			if err == nil && (strings.Trim(version, "0123456789.") != "" || strings.HasPrefix(version, ".") ||
				strings.Contains(version, "..") || len(version) > 32) {
				t.Errorf("%s: %q is no version", name, version)
			}
		}
	})
}
