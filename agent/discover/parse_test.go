package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rawCases says for each odd file of the fixtures what its parser makes of it; "" is success.
var rawCases = map[string]Class{
	"properties-empty": ClassMalformed, "properties-only-spaces": ClassMalformed,
	"properties-truncated": ClassMalformed,
	"properties-nul":       ClassMalformed, "properties-no-final-newline": "", "properties-crlf": "",
	"properties-not-utf8":  "",
	"properties-long-line": ClassMalformed, "err_count-huge": ClassMalformed, "err_count-negative": ClassMalformed,
	"err_count-no-space": "", "err_count-upper": "", "partition-lowercase": "", "partition-unknown": "",
	"numa_node-minus1":   "",
	"version-gfx-suffix": "", "version-therock-alpha": "", "gpu_id-newline-only": ClassMalformed, "gpu_id-spaces": "",
}

func TestRawFiles(t *testing.T) {
	dir := filepath.Join(fixtures(t), "synthetic", "raw")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(e.Name(), "-")
		switch kind {
		case "properties":
			var p nodeProperties
			err = parseProperties(data, p.field)
		case "err_count":
			_, err = parseErrorCounts(data)
		case "partition":
			_, err = parsePartition(data, computePartitions)
		case "numa_node":
			_, err = parseIntFile(data)
		case "version":
			_, err = parseROCmVersion(data)
		case "gpu_id":
			_, err = parseUintFile(data)
		case "gpu_metrics":
			continue // TestRawMetrics has them
		default:
			t.Errorf("%s: no parser for it", e.Name())
			continue
		}
		want, known := rawCases[e.Name()]
		if !known {
			t.Errorf("%s has no case", e.Name())
		}
		if got := Classify(err); got != want {
			t.Errorf("%s: class %q (%v), want %q", e.Name(), got, err, want)
		}
	}
}

func TestParseProperties(t *testing.T) {
	var p nodeProperties
	if err := parseProperties([]byte("simd_count 1216\r\nfuture_key not-a-number\nhive_id 18446744073709551615"),
		p.field); err != nil {
		t.Fatal(err)
	}
	if *p.SIMDCount != 1216 || *p.HiveID != 1<<64-1 || p.Domain != nil {
		t.Errorf("got %d, %d, %v", *p.SIMDCount, *p.HiveID, p.Domain)
	}
	for _, bad := range []string{"", " \n", "simd_count", "simd_count -1", "hive_id 18446744073709551616",
		"domain 0x10", "simd_count 1 2"} {
		if err := parseProperties([]byte(bad), new(nodeProperties).field); Classify(err) != ClassMalformed {
			t.Errorf("%q: %v, want it malformed", bad, err)
		}
	}
}

func TestParseVersions(t *testing.T) {
	for text, want := range map[string]string{"6.4.1-83\n": "6.4.1",
		"7.2.4": "7.2.4", "10.0.0": "10.0.0", "7.14.0a20260601": "7.14.0a20260601",
		"6.4.1-83-gfx942": "6.4.1", "7.0.0-38-gfx950": "7.0.0", "7.12.0.dev0+1a2b3c4d": "7.12.0.dev0+1a2b3c4d",
		"7.10.0.dev0+f689a8ea40232f3f6be1ec958354b108349023ff": "7.10.0.dev0+f689a8ea40232f3f6be1ec958354b108349023ff",
		"7.10.0.dev0": "7.10.0.dev0", "7.10.0rc2": "7.10.0rc2", "7.12.0~rc1-56": "7.12.0~rc1",
		"7.10.0~dev20251203": "7.10.0~dev20251203", "7.10.0~pre2": "7.10.0~pre2",
		"7.10.0~20251203gf689a8e": "7.10.0~20251203gf689a8e", "7.10.0~20251021-1": "7.10.0~20251021",
		"7.12.0-1a2b3c4": "7.12.0", "7.12.0-git1a2b3c4": "7.12.0", "7.12.0~": "", "7.12.0+": "",
		"7.12.0.dev": "", "7.12.0-": "", "dev0": "", "": "", "<html>": "", "6.4.1; rm": "", "1.2.3.4.5": "",
		strings.Repeat("9", 99): ""} {
		got, err := parseROCmVersion([]byte(text))
		if got != want || (err != nil) != (want == "") {
			t.Errorf("version %q is %q (%v), want %q", text, got, err, want)
		}
	}
	for target, want := range map[string]string{"librocm-core.so.1.0.60401": "6.4.1",
		"/opt/x/librocm-core.so.1.0.100002": "10.0.2", "librocm-core.so.1": "", "": ""} {
		if got, err := parseROCmCoreLink(target); got != want || (err != nil) != (want == "") {
			t.Errorf("link %q is %q (%v), want %q", target, got, err, want)
		}
	}
}

func TestGFXTarget(t *testing.T) {
	for version, want := range map[uint64]string{0: "", 90006: "gfx906", 90008: "gfx908", 90010: "gfx90a",
		90402: "gfx942", 90500: "gfx950", 120001: "gfx1201", 1 << 60: ""} {
		if got := gfxTarget(version); got != want {
			t.Errorf("gfxTarget(%d) = %q, want %q", version, got, want)
		}
	}
}

func TestPCIAddress(t *testing.T) {
	for _, c := range []struct {
		domain, location uint64
		want             string
		partition        int
	}{{0, 1280, "0000:05:00.0", 0}, {0, 1283, "0000:05:00.0", 3}, {17, 0, "0011:00:00.0", 0},
		{0, 0x20000500, "0000:05:00.0", 2}, {0x10000, 0xe5f8, "10000:e5:1f.0", 0}} {
		if got := pciAddress(c.domain, c.location); got != c.want {
			t.Errorf("pciAddress(%d, %d) = %s, want %s", c.domain, c.location, got, c.want)
		}
		if got := partitionOf(c.location); got != c.partition {
			t.Errorf("partitionOf(%d) = %d, want %d", c.location, got, c.partition)
		}
	}
}

func TestParseErrorCounts(t *testing.T) {
	c, err := parseErrorCounts([]byte("ue: 3\nce: 4\nde: 5\n"))
	if err != nil || c.Uncorrectable != 3 || c.Correctable != 4 || *c.Deferred != 5 {
		t.Errorf("got %+v, %v", c, err)
	}
	for text, want := range map[string]Class{"Query currently inaccessible\n": ClassBusy, "": ClassMalformed,
		"ue: 1\n": ClassMalformed, "ue 1": ClassMalformed} {
		if _, err := parseErrorCounts([]byte(text)); Classify(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParseLinkSpeed(t *testing.T) {
	for text, want := range map[string]int64{"32.0 GT/s PCIe\n": 32000, "2.5 GT/s PCIe": 2500, "16 GT/s": 16000,
		"Unknown speed": 0, "Unknown\n": 0, "": -1, "99999999 GT/s": -1, ".5 GT/s": -1} {
		got, err := parseLinkSpeed([]byte(text))
		if (err != nil) != (want < 0) || (err == nil && got != want) {
			t.Errorf("speed %q is %d (%v), want %d", text, got, err, want)
		}
	}
}

// fuzz checks that a parser neither panics nor succeeds and fails at once.
func fuzz(f *testing.F, seeds []string, parse func([]byte) error) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := parse(data); err != nil && Classify(err) != ClassMalformed && Classify(err) != ClassBusy {
			t.Errorf("%q: class %s of %v", data, Classify(err), err)
		}
	})
}

func FuzzProperties(f *testing.F) {
	fuzz(f, []string{"simd_count 1216\nhive_id 1\n", "type 11\nnode_to 3\nweight 15", "\x00 1", "a", ""},
		func(b []byte) error {
			var n nodeProperties
			if err := parseProperties(b, n.field); err != nil {
				return err
			}
			var l linkProperties
			return parseProperties(b, l.field)
		})
}

func FuzzErrorCounts(f *testing.F) {
	fuzz(f, []string{"ue: 0\nce: 0\n", "ue:1\nce:2\nde: 3", "Query currently inaccessible", "ue: -1"},
		func(b []byte) error {
			_, err := parseErrorCounts(b)
			return err
		})
}

func FuzzROCmVersion(f *testing.F) {
	fuzz(f, []string{"6.4.1-83", "7.14.0a20260601", "6.4.1-83-gfx942", "<html>"}, func(b []byte) error {
		version, err := parseROCmVersion(b)
		if (version == "") != (err != nil) {
			return os.ErrInvalid
		}
		if _, err := parseROCmHeader(b); err != nil && Classify(err) != ClassMalformed {
			return err
		}
		if _, err := parseROCmCoreLink(string(b)); err != nil && Classify(err) != ClassMalformed {
			return err
		}
		return err
	})
}

func FuzzNumbers(f *testing.F) {
	fuzz(f, []string{"0x74a1\n", "5555555555555555", "-1", "32.0 GT/s PCIe", "00 41 41", "SPX", "18446744073709551616"},
		func(b []byte) error {
			for _, parse := range []func([]byte) error{
				func(b []byte) error { _, err := parseHexFile(b); return err },
				func(b []byte) error { _, err := parseUintFile(b); return err },
				func(b []byte) error { _, err := parseIntFile(b); return err },
				func(b []byte) error { _, err := parseLinkSpeed(b); return err },
				func(b []byte) error { _, err := parseHiveList(b); return err },
				func(b []byte) error { _, err := parsePartition(b, computePartitions); return err },
				func(b []byte) error { _, err := parseBank(b); return err },
			} {
				if err := parse(b); err != nil && Classify(err) != ClassMalformed {
					return err
				}
			}
			return nil
		})
}
