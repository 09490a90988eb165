package preflight

import (
	"strings"
	"testing"
)

func TestParseHypervisor(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		want    bool
		isError bool
	}{
		"guest":          {"processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n", true, false},
		"host":           {"processor\t: 0\nflags\t\t: fpu vme svm\nbugs\t\t: hypervisor\n", false, false},
		"cut in flags":   {"processor\t: 0\nflags\t\t: fpu vme", false, true},
		"no flags":       {"processor\t: 0\nFeatures\t: fp asimd\n", false, true},
		"empty":          {"", false, true},
		"part of a word": {"flags : hypervisors\n", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseHypervisor([]byte(tc.text))
			if got != tc.want || (err != nil) != tc.isError {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestNameMatcher(t *testing.T) {
	for _, tc := range []struct {
		list, name string
		want       bool
	}{
		{"eth", "eth0", true}, {"=eth", "eth0", false}, {"=eth0", "eth0", true}, {"^docker,lo", "eth0", true},
		{"^docker,lo", "docker0", false},
		{"^docker,lo", "lo", false}, {"^=eth0", "eth0", false}, {"^=eth0", "eth01", true}, {"ib0,eth1", "eth1", true},
		{"eth0:1234", "eth0", true},
		{"^", "eth0", false}, {",,", "eth0", true},
	} {
		if got := nameMatcher(tc.list)(tc.name); got != tc.want {
			t.Errorf("%q matches %q: %v, expected %v", tc.list, tc.name, got, tc.want)
		}
	}
}

func TestKernelAddress(t *testing.T) {
	for text, want := range map[string]string{"0000:3B:00.0": "0000:3b:00.0", "00000000:3B:00.0": "0000:3b:00.0",
		"00010000:01:00.0": "10000:01:00.0", "": "", "gpu": "gpu"} {
		if got := kernelAddress(text); got != want {
			t.Errorf("%q gives %q, expected %q", text, got, want)
		}
	}
}

func FuzzKernelAddress(f *testing.F) {
	f.Add("00000000:3B:00.0")
	f.Fuzz(func(t *testing.T, text string) {
		if once := kernelAddress(text); kernelAddress(once) != once {
			t.Errorf("%q gives %q, and that %q", text, once, kernelAddress(once))
		}
	})
}

func FuzzParseHypervisor(f *testing.F) {
	f.Add([]byte("flags\t: fpu hypervisor\n"))
	f.Add([]byte("flags"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if is, err := parseHypervisor(data); is && (err != nil || !strings.Contains(string(data), "hypervisor")) {
			t.Errorf("a hypervisor was seen in %q (%v)", data, err)
		}
	})
}

func FuzzParseHolder(f *testing.F) {
	f.Add([]byte(`{"pid":12,"run":"r","start":"2027-01-15T08:00:00Z"}`))
	f.Add([]byte(`{"pid":-1}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if h := parseHolder(data); h.ProcessID < 0 || len(h.Run) > 128 || h.String() == "" {
			t.Errorf("%q gives %+v", data, h)
		}
	})
}

func FuzzNameMatcher(f *testing.F) {
	f.Add("^docker,lo", "eth0")
	f.Add("=eth0:1", "eth0")
	f.Fuzz(func(t *testing.T, list, name string) {
		got := nameMatcher(list)(name)
		if not := nameMatcher("^" + list)(name); !strings.HasPrefix(list, "^") && got == not {
			t.Errorf("%q and its opposite both say %v for %q", list, got, name)
		}
	})
}

func FuzzParseCount(f *testing.F) {
	f.Add([]byte("17179869184\n"))
	f.Add([]byte("-1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := parseCount(data); err != nil && n != 0 {
			t.Errorf("%q gives %d beside %v", data, n, err)
		}
	})
}
