package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const coreHeader = "#define ROCM_VERSION_MAJOR 6\n#define ROCM_VERSION_MINOR 4\n#define ROCM_VERSION_PATCH 3\n"

// sourceLines writes sources as "path version" or "path !error".
func sourceLines(f ROCmFacts) []string {
	var lines []string
	for _, s := range f.Sources {
		switch {
		case s.Version != "":
			lines = append(lines, s.Path+" "+s.Version)
		case s.Error != "":
			lines = append(lines, s.Path+" !")
		default:
			lines = append(lines, s.Path)
		}
	}
	return lines
}

// TestROCmSources: every source in its order, the winner, and those that lost.
func TestROCmSources(t *testing.T) {
	status := "Package: rocm-core\nStatus: install ok installed\nVersion: 6.3.1.60301-48~22.04\n"
	for name, c := range map[string]struct {
		tree    memFS
		first   []string
		state   string
		version string
		sources []string
	}{
		"all of them": {
			tree: memFS{
				"opt/mine/.info/version": "7.1.0", "opt/rocm/.info/version": "7.0.2-56",
				"opt/rocm/.info/version-dev":  "7.0.1-1",
				"opt/rocm/core/.info/version": "7.14.0", "opt/rocm-6.4.1/.info/version": "6.4.1-83",
				"opt/rocm/core-10.0/.info/version":          "10.0.0",
				"opt/rocm/include/rocm-core/rocm_version.h": coreHeader,
				"usr/include/rocm-core/rocm_version.h":      coreHeader,
				"opt/rocm/lib/librocm-core.so.1":            "librocm-core.so.1.0.70002",
				"usr/lib64/librocm-core.so.1":               "librocm-core.so.1.0.60303",
				"opt/rocm/lib/librccl.so.1":                 "librccl.so.1.0.70001",
				"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.10.0a20251006.dist-info/METADATA": "",
				"var/lib/dpkg/status": status,
			},
			first: []string{"/opt/mine", ""}, state: ROCmFound, version: "7.1.0",
			sources: []string{
				"opt/mine/.info/version 7.1.0", "opt/rocm/.info/version 7.0.2", "opt/rocm/.info/version-dev 7.0.1",
				"opt/rocm/core/.info/version 7.14.0",
				"opt/rocm/include/rocm-core/rocm_version.h 6.4.3", "opt/rocm/lib/librocm-core.so.1 7.0.2",
				"opt/rocm/lib/librccl.so.1 7.0.1",
				"opt/rocm-6.4.1/.info/version 6.4.1", "opt/rocm/core-10.0/.info/version 10.0.0",
				"usr/include/rocm-core/rocm_version.h 6.4.3", "usr/lib64/librocm-core.so.1 6.3.3",
				"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.10.0a20251006.dist-info 7.10.0a20251006",
			},
		},
		"TheRock without its links": {
			tree:  memFS{"opt/rocm/core-10.0/.info/version": "10.0.0"},
			state: ROCmFound, version: "10.0.0", sources: []string{"opt/rocm/core-10.0/.info/version 10.0.0"},
		},
		"two versions, none of them named": {
			tree:    memFS{"opt/rocm-6.4.1/.info/version": "6.4.1", "opt/rocm-7.0.2/.info/version": "7.0.2"},
			state:   ROCmAmbiguous,
			sources: []string{"opt/rocm-6.4.1/.info/version 6.4.1", "opt/rocm-7.0.2/.info/version 7.0.2"},
		},
		"two versions by their headers": {
			tree: memFS{"opt/rocm-6.4.3/include/rocm_version.h": coreHeader,
				"opt/rocm-7.0.2/include/rocm_version.h": strings.ReplaceAll(coreHeader, "6", "7")},
			state: ROCmAmbiguous, sources: []string{"opt/rocm-6.4.3/include/rocm_version.h 6.4.3",
				"opt/rocm-7.0.2/include/rocm_version.h 7.4.3"},
		},
		"two versions, and the workload names one": {
			tree:  memFS{"opt/rocm-6.4.1/.info/version": "6.4.1", "opt/rocm-7.0.2/.info/version": "7.0.2"},
			first: []string{"/opt/rocm-7.0.2"}, state: ROCmFound, version: "7.0.2",
			sources: []string{"opt/rocm-7.0.2/.info/version 7.0.2", "opt/rocm-6.4.1/.info/version 6.4.1"},
		},
		"Fedora": {
			tree:  memFS{"usr/include/rocm-core/rocm_version.h": coreHeader, "usr/lib/sysimage/rpm/rpmdb.sqlite": ""},
			state: ROCmFound, version: "6.4.3", sources: []string{"usr/include/rocm-core/rocm_version.h 6.4.3"},
		},
		"Debian": {
			tree:  memFS{"usr/lib/x86_64-linux-gnu/librocm-core.so.1": "librocm-core.so.1.0.60103"},
			state: ROCmFound, version: "6.1.3", sources: []string{"usr/lib/x86_64-linux-gnu/librocm-core.so.1 6.1.3"},
		},
		"only dpkg knows": {
			tree:  memFS{"var/lib/dpkg/status": status},
			state: ROCmFound, version: "6.3.1", sources: []string{"var/lib/dpkg/status 6.3.1"},
		},
		"AMD's packages of today by dpkg": {
			tree: memFS{"var/lib/dpkg/status": "Package: amdrocm-rccl7.14\nStatus: install ok installed\n" +
				"Version: 7.14.0-2\n\nPackage: amdrocm-core7.14\nStatus: install ok installed\nVersion: 7.14.0-2\n"},
			state: ROCmFound, version: "7.14.0",
			sources: []string{"var/lib/dpkg/status 7.14.0", "var/lib/dpkg/status 7.14.0"},
		},
		"two of them": {
			tree: memFS{"var/lib/dpkg/status": "Package: amdrocm-core7.13\nStatus: install ok installed\n" +
				"Version: 7.13.0-2\n\nPackage: amdrocm-core7.14\nStatus: install ok installed\nVersion: 7.14.0-2\n"},
			state: ROCmAmbiguous, sources: []string{"var/lib/dpkg/status 7.13.0", "var/lib/dpkg/status 7.14.0"},
		},
		"Debian's own by dpkg": {
			tree: memFS{"usr/lib/x86_64-linux-gnu/librccl.so.1": "librccl.so.1.0",
				"usr/lib/x86_64-linux-gnu/libamdhip64.so.5": "libamdhip64.so.5.7.31921",
				"var/lib/dpkg/status": "Package: librccl1\nStatus: install ok installed\nVersion: 5.4.3-3\n\n" +
					"Package: libamdhip64-5\nStatus: install ok installed\nVersion: 5.7.1-6+b1\n"},
			state: ROCmFound, version: "5.7.1", sources: []string{"usr/lib/x86_64-linux-gnu/librccl.so.1 !",
				"var/lib/dpkg/status 5.7.1", "var/lib/dpkg/status 5.4.3"},
		},
		"a development build": {
			tree:  memFS{"opt/rocm/.info/version": "7.12.0.dev0+1a2b3c4d5e6f7a8b9c0d\n"},
			state: ROCmFound, version: "7.12.0.dev0+1a2b3c4d5e6f7a8b9c0d",
			sources: []string{"opt/rocm/.info/version 7.12.0.dev0+1a2b3c4d5e6f7a8b9c0d"},
		},
		"a wheel of a development build": {
			tree: memFS{
				"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.12.0.dev0+1a2b3c4d.dist-info/METADATA": ""},
			state: ROCmFound, version: "7.12.0.dev0+1a2b3c4d",
			sources: []string{"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.12.0.dev0+1a2b3c4d.dist-info " +
				"7.12.0.dev0+1a2b3c4d"},
		},
		"dpkg without it": {
			tree:  memFS{"var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nVersion: 5.2\n"},
			state: ROCmNotFound,
		},
		"dpkg unreadable": {
			tree:  memFS{"var/lib/dpkg/status": "!EPERM"},
			state: ROCmUnreadable, sources: []string{"var/lib/dpkg/status !"},
		},
		"rpm is there": {
			tree:  memFS{"var/lib/rpm/rpmdb.sqlite": "SQLite format 3"},
			state: ROCmNotFound, sources: []string{"var/lib/rpm/rpmdb.sqlite !"},
		},
		"AMD's wheel": {
			tree:  memFS{"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.2.1.dist-info/METADATA": ""},
			state: ROCmFound, version: "7.2.1",
			sources: []string{"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.2.1.dist-info 7.2.1"},
		},
		"AMD's wheel without a version": {
			tree:  memFS{"usr/lib/python3/dist-packages/_rocm_sdk_core/lib/libx.so": ""},
			state: ROCmUnreadable, sources: []string{"usr/lib/python3/dist-packages/_rocm_sdk_core !"},
		},
		"PyTorch for ROCm": {
			tree: memFS{"opt/conda/lib/python3.10/site-packages/torch-2.8.0+rocm6.4.dist-info/METADATA": "",
				"opt/conda/lib/python3.10/site-packages/torch/lib/librccl.so": "ELF"},
			state: ROCmFound, version: "6.4",
			sources: []string{"opt/conda/lib/python3.10/site-packages/torch-2.8.0+rocm6.4.dist-info 6.4",
				"opt/conda/lib/python3.10/site-packages/torch/lib/librccl.so"},
		},
		"PyTorch built by a person": {
			tree:    memFS{"opt/conda/lib/python3.10/site-packages/torch-2.9.0+rocmsdk20251116.dist-info/METADATA": ""},
			state:   ROCmNotFound,
			sources: []string{"opt/conda/lib/python3.10/site-packages/torch-2.9.0+rocmsdk20251116.dist-info !"},
		},
		"PyTorch for CUDA": {
			tree:  memFS{"opt/conda/lib/python3.10/site-packages/torch-2.9.1+cu128.dist-info/METADATA": ""},
			state: ROCmNotFound,
		},
		"unreadable file, then another": {
			tree:  memFS{"opt/rocm/.info/version": "!EIO", "opt/rocm/core/.info/version": "7.14.0"},
			state: ROCmFound, version: "7.14.0",
			sources: []string{"opt/rocm/.info/version !", "opt/rocm/core/.info/version 7.14.0"},
		},
		"unreadable opt": {tree: memFS{"opt": "!EPERM"}, state: ROCmUnreadable, sources: []string{"opt !"}},
		"library of another name": {tree: memFS{"opt/rocm/lib/librccl.so.1": "librccl.so.1.2"}, state: ROCmNotFound,
			sources: []string{"opt/rocm/lib/librccl.so.1 !"}},
		"nothing": {tree: memFS{"etc/os-release": ""}, state: ROCmNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, c.tree, Options{ROCmPaths: c.first}).ROCm
			if f.State != c.state || f.Version != c.version {
				t.Errorf("%s %s; want %s %s", f.State, f.Version, c.state, c.version)
			}
			if diff := cmp.Diff(c.sources, sourceLines(f)); diff != "" {
				t.Errorf("sources differ (-want +got):\n%s", diff)
			}
			if (f.State == ROCmFound) != (f.Source != "") || f.State == ROCmFound && f.Source != winnerPath(f) {
				t.Errorf("source %q of %v", f.Source, sourceLines(f))
			}
		})
	}
}

// TestROCmRaw: a source's text is one line of at most 64 bytes that a terminal can show.
func TestROCmRaw(t *testing.T) {
	f := scan(t, memFS{"opt/rocm/.info/version": "7.0\x1b[31m\n\xff" + strings.Repeat("9", 1000),
		"opt/rocm/include/rocm_version.h": "#pragma once\n" + coreHeader}, Options{}).ROCm
	for i, want := range []string{"7.0[31m " + strings.Repeat("9", 56),
		"#pragma once #define ROCM_VERSION_MAJOR 6 #define ROCM_VERSION_M"} {
		if got := f.Sources[i].Raw; got != want {
			t.Errorf("raw is %q (%d bytes), expected %q", got, len(got), want)
		}
	}
	if f.Version != "6.4.3" || f.Sources[0].Error == "" {
		t.Errorf("%+v", f)
	}
}

// winnerPath is the first source that has a version.
func winnerPath(f ROCmFacts) string {
	for _, s := range f.Sources {
		if s.Version != "" {
			return s.Path
		}
	}
	return ""
}

// TestROCmOnDisk: links as packages write them, absolute and relative, resolved inside the root.
func TestROCmOnDisk(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"opt/rocm-7.0.2/.info/version": "7.0.2-56\n",
		"opt/rocm-7.0.2/share/hip/version": "# Auto-generated by cmake\nHIP_VERSION_MAJOR=7\nHIP_VERSION_MINOR=0\n" +
			"HIP_VERSION_PATCH=51831\nHIP_VERSION_GITHASH=a3e329ad8\n",
		"opt/rocm-7.0.2/include/rccl/rccl.h": "#define NCCL_MAJOR 2\n#define NCCL_MINOR 26\n#define NCCL_PATCH 6\n" +
			strings.Repeat("/* declarations */\n", 9000),
		"opt/rocm-7.0.2/lib/librccl.so.1.0.70002":                                    "ELF",
		"opt/rocm-7.0.2/lib/librocm-core.so.1.0.70002":                               "ELF",
		"usr/lib/sysimage/rpm/rpmdb.sqlite":                                          "SQLite format 3",
		"opt/venv/lib/python3.12/site-packages/torch/lib/x":                          "",
		"opt/venv/lib/python3.12/site-packages/torch-2.8.0+rocm6.4.dist-info/RECORD": "",
	} {
		write(t, dir, name, []byte(text))
	}
	for link, target := range map[string]string{
		"opt/rocm":                              "/etc/alternatives/rocm",
		"opt/rocm-7.0.2/lib/librccl.so.1":       "librccl.so.1.0.70002",
		"opt/rocm-7.0.2/lib/librocm-core.so.1":  "librocm-core.so.1.0.70002",
		"etc/alternatives/rocm":                 "/opt/rocm-7.0.2",
		"opt/venv/lib/python3.12/dist-packages": "site-packages",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := scan(t, openRoot(t, dir), Options{}).ROCm
	if f.State != ROCmFound || f.Version != "7.0.2" || f.Source != "opt/rocm/.info/version" ||
		f.HIPVersion != "7.0.51831" || f.RCCLVersion != "2.26.6" {
		t.Errorf("%+v", f)
	}
	lines := strings.Join(sourceLines(f), "\n")
	for _, want := range []string{"opt/rocm/lib/librocm-core.so.1 7.0.2", "opt/rocm/lib/librccl.so.1 7.0.2",
		"site-packages/torch-2.8.0+rocm6.4.dist-info 6.4"} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is not among\n%s", want, lines)
		}
	}
	// Without its link the one installation is still found, and rpm's database stays out of it.
	if err := os.Remove(filepath.Join(dir, "etc/alternatives/rocm")); err != nil {
		t.Fatal(err)
	}
	if f := scan(t, openRoot(t, dir), Options{}).ROCm; f.Version != "7.0.2" ||
		f.Source != "opt/rocm-7.0.2/.info/version" || f.RCCLVersion != "2.26.6" {
		t.Errorf("without the link: %+v", f)
	}
}

// TestROCmLostLink: opt/rocm of AMD's packages leads over etc/alternatives, which a pod that mounts opt alone lacks.
// The user is not told to make a link that is there.
func TestROCmLostLink(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"6.4.1", "7.0.2"} {
		write(t, dir, "opt/rocm-"+version+"/.info/version", []byte(version+"-1\n"))
	}
	if err := os.Symlink("/etc/alternatives/rocm", filepath.Join(dir, "opt/rocm")); err != nil {
		t.Fatal(err)
	}
	f := scan(t, openRoot(t, dir), Options{})
	var message string
	for _, p := range f.Problems {
		if p.Code == v1alpha1.ProblemROCmAmbiguous {
			message = p.Message
		}
	}
	if f.ROCm.State != ROCmAmbiguous || f.ROCm.LostLink != "/etc/alternatives/rocm" ||
		!strings.Contains(message, "leads to /etc/alternatives/rocm, which is not mounted") {
		t.Errorf("%+v: %s", f.ROCm, message)
	}
	// With one installation there is nothing to be unsure about.
	if err := os.RemoveAll(filepath.Join(dir, "opt/rocm-6.4.1")); err != nil {
		t.Fatal(err)
	}
	if f := scan(t, openRoot(t, dir), Options{}); f.ROCm.State != ROCmFound || f.ROCm.Version != "7.0.2" ||
		f.ROCm.LostLink != "" {
		t.Errorf("%+v", f.ROCm)
	}
}

// TestROCmInUse: where opt/rocm is there, what is left over beside it never gives the version, also where opt/rocm's
// own file cannot be read; and the file that could not be read is told.
func TestROCmInUse(t *testing.T) {
	header := strings.NewReplacer("MAJOR 6", "MAJOR 7", "MINOR 4", "MINOR 0", "PATCH 3", "PATCH 2").Replace(coreHeader)
	const info, old = "opt/rocm/.info/version", "opt/rocm-6.2.4/.info/version"
	dpkg := "Package: rocm-core\nStatus: install ok installed\nVersion: 7.0.2.70002-1~22.04\n"
	for name, c := range map[string]struct {
		tree            memFS
		first           []string
		state, version  string
		unreadable      string // subject of ROCmUnreadable
		unreadableWords string
	}{
		"garbage, and its header": {memFS{info: "garbage", old: "6.2.4",
			"opt/rocm/include/rocm-core/rocm_version.h": header},
			nil, ROCmFound, "7.0.2", info, "7.0.2 is taken from opt/rocm/include/rocm-core/rocm_version.h"},
		"EPERM, and its header": {memFS{info: "!EPERM", old: "6.2.4", "opt/rocm/include/rocm_version.h": header}, nil,
			ROCmFound, "7.0.2", info, "Forbidden"},
		"EPERM, and its library": {memFS{info: "!EPERM", old: "6.2.4",
			"opt/rocm/lib/librocm-core.so.1": "librocm-core.so.1.0.70002"},
			nil, ROCmFound, "7.0.2", info, "7.0.2 is taken from opt/rocm/lib/librocm-core.so.1"},
		"no version file, and its header": {memFS{old: "6.2.4", "opt/rocm/include/rocm_version.h": header}, nil,
			ROCmFound, "7.0.2", "", ""},
		"garbage alone": {memFS{info: "garbage", old: "6.2.4"}, nil, ROCmUnreadable, "", info,
			"No ROCm version could be read"},
		"garbage, left over twice": {memFS{info: "!EIO", old: "6.2.4", "opt/rocm-6.4.1/.info/version": "6.4.1"}, nil,
			ROCmUnreadable, "", info, ""},
		"garbage, and a distribution's": {memFS{info: "garbage", "usr/include/rocm_version.h": coreHeader}, nil,
			ROCmUnreadable, "", info, ""},
		"garbage, and dpkg knows": {memFS{info: "garbage", old: "6.2.4", "var/lib/dpkg/status": dpkg}, nil, ROCmFound,
			"7.0.2", info, "7.0.2 is taken from var/lib/dpkg/status"},
		"its header too": {memFS{info: "garbage", old: "6.2.4",
			"opt/rocm/include/rocm_version.h": "!EPERM"}, nil, ROCmUnreadable, "", info, ""},
		"the workload's own unreadable": {memFS{"opt/mine/.info/version": "!EPERM", old: "6.2.4", info: "7.0.2"},
			[]string{"/opt/mine"}, ROCmFound, "7.0.2", "opt/mine/.info/version", ""},
		"a sibling tells": {memFS{info: "!EPERM", "opt/rocm/.info/version-dev": "7.0.2", old: "6.2.4"}, nil,
			ROCmFound, "7.0.2", info, ""},
		"library of another name": {memFS{"opt/rocm/lib/librccl.so.1": "librccl.so.1.2", old: "6.2.4"}, nil,
			ROCmFound, "6.2.4", "", ""},
		"left over, unreadable": {memFS{info: "7.0.2", old: "!EPERM"}, nil, ROCmFound, "7.0.2", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			facts := scan(t, c.tree, Options{ROCmPaths: c.first})
			if f := facts.ROCm; f.State != c.state || f.Version != c.version {
				t.Errorf("%s %s of %v; want %s %s", f.State, f.Version, sourceLines(f), c.state, c.version)
			}
			subject, message := "", ""
			for _, p := range facts.Problems {
				if p.Code == v1alpha1.ProblemROCmUnreadable {
					subject, message = p.Path, p.Message
				}
			}
			if subject != c.unreadable || !strings.Contains(message, c.unreadableWords) || len(message) > 400 {
				t.Errorf("ROCmUnreadable %q: %q; want %q with %q", subject, message, c.unreadable, c.unreadableWords)
			}
			if lines := strings.Join(sourceLines(facts.ROCm), " "); c.unreadable != "" &&
				!strings.Contains(lines, c.unreadable+" !") {
				t.Errorf("the unreadable source is not listed: %s", lines)
			}
		})
	}
}

// TestROCmDisagreements: what a process may load beside the ROCm that is reported, of another release.
func TestROCmDisagreements(t *testing.T) {
	const info, core, usr = "opt/rocm/.info/version", "opt/rocm/core/.info/version", "usr/lib/x86_64-linux-gnu/"
	const (
		librccl1    = "Package: librccl1\nStatus: install ok installed\nVersion: 5.4.3-3\n\n"
		libamdhip64 = "Package: libamdhip64-5\nStatus: install ok installed\nVersion: 5.7.1-6\n\n"
	)
	for name, c := range map[string]struct {
		tree  memFS
		first []string
		want  string // the message's beginning; "" for none
	}{
		"one":           {memFS{info: "7.0.2-56", "opt/rocm/lib/librccl.so.1": "librccl.so.1.0.70002"}, nil, ""},
		"builds of one": {memFS{info: "7.0.2-56", "opt/rocm/.info/version-dev": "7.0.2-1"}, nil, ""},
		"package, core": {memFS{info: "7.0.2-56", core: "7.14.0"}, nil, "ROCm 7.14.0 (opt/rocm/core/.info/version) " +
			"is a newer release than ROCm 7.0.2 (opt/rocm/.info/version): which one"},
		"half upgraded": {memFS{info: "7.0.2-56", "opt/rocm/include/rocm_version.h": coreHeader}, nil, ""},
		"beside it":     {memFS{info: "7.0.2-56", "opt/rocm-6.4.1/.info/version": "6.4.1-83"}, nil, ""},
		"Fedora's as well": {memFS{info: "7.0.2-56", "usr/include/rocm-core/rocm_version.h": coreHeader}, nil,
			"ROCm 6.4.3 (usr/include/rocm-core/rocm_version.h) is an older release"},
		"an older librccl": {memFS{info: "7.0.2-56", "opt/rocm/lib/librccl.so.1": "librccl.so.1.0.60401"}, nil,
			"librccl (opt/rocm/lib/librccl.so.1) is of ROCm 6.4.1, an older release than ROCm 7.0.2 " +
				"(opt/rocm/.info/version): which one"},
		"a newer librccl": {memFS{info: "7.0.2-56", "opt/rocm/lib/librccl.so.1": "librccl.so.1.0.70100"}, nil,
			"librccl (opt/rocm/lib/librccl.so.1) is of ROCm 7.1.0, a newer release"},
		"Debian's librccl": {memFS{info: "7.0.2-56", usr + "librccl.so.1": "librccl.so.1.0",
			"var/lib/dpkg/status": "Package: librccl1\nStatus: install ok installed\nVersion: 5.4.3-3\n"}, nil,
			"librccl (librccl1 5.4.3-3) is of ROCm 5.4.3, an older release than ROCm 7.0.2"},
		"Debian 13's own pair": {memFS{"var/lib/dpkg/status": librccl1 + libamdhip64,
			usr + "librccl.so.1": "librccl.so.1.0"}, nil, ""},
		"Debian's own, beside its librocm-core": {memFS{"var/lib/dpkg/status": librccl1 + libamdhip64,
			usr + "librccl.so.1": "librccl.so.1.0", usr + "librocm-core.so.1": "librocm-core.so.1.0.60103"}, nil, ""},
		"Debian's librccl, AMD's ROCm by dpkg": {memFS{"var/lib/dpkg/status": librccl1 +
			"Package: rocm-core\nStatus: install ok installed\nVersion: 7.0.2.70002-56\n"},
			nil, "librccl (librccl1 5.4.3-3) is of ROCm 5.4.3, an older release than ROCm 7.0.2"},
		"Debian's pair, AMD's ROCm": {memFS{info: "7.0.2-56",
			"var/lib/dpkg/status": librccl1 + libamdhip64, usr + "librccl.so.1": "librccl.so.1.0"},
			nil, "ROCm 5.7.1 (libamdhip64-5 5.7.1-6) is an older release than ROCm 7.0.2"},
		"AMD's wheel": {memFS{info: "7.0.2-56",
			"opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.12.0a20260203.dist-info/METADATA": ""}, nil,
			"ROCm 7.12.0a20260203 (opt/venv/"},
		"PyTorch's wheel": {memFS{info: "7.0.2-56",
			"opt/venv/lib/python3.12/site-packages/torch-2.8.0+rocm6.4.dist-info/METADATA": ""}, nil, ""},
		"the workload says": {memFS{info: "7.0.2-56", core: "7.14.0", "opt/mine/.info/version": "6.4.1"},
			[]string{"/opt/mine"}, ""},
		"it says two": {memFS{"opt/mine/.info/version": "6.4.1", "opt/other/.info/version": "7.0.2"},
			[]string{"/opt/mine", "/opt/other"}, "ROCm 7.0.2 (opt/other/.info/version) is a newer release"},
		"its older librccl": {memFS{info: "7.0.2", "opt/rocm/lib/librccl.so.1": "librccl.so.1.0.60401"},
			[]string{"/opt/rocm"}, "librccl (opt/rocm/lib/librccl.so.1) is of ROCm 6.4.1"},
		"a nightly of its own": {memFS{info: "7.14.0a20260601", core: "7.14.0"}, nil, ""},
	} {
		f := scan(t, c.tree, Options{ROCmPaths: c.first})
		message := ""
		for _, p := range f.Problems {
			if p.Code == v1alpha1.ProblemROCmAmbiguous {
				message = p.Message
			}
		}
		if f.ROCm.State != ROCmFound || !strings.HasPrefix(message, c.want) || (message == "") != (c.want == "") ||
			len(message) > 400 {
			t.Errorf("%s: %s %q, expected %q", name, f.ROCm.State, message, c.want)
		}
	}
}

// TestROCmLostCoreLink: a link that is there is not to be re-created, and a wheel is no package to reinstall.
func TestROCmLostCoreLink(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"7.13", "7.14"} {
		write(t, dir, "opt/rocm/core-"+version+"/.info/version", []byte(version+".0\n"))
	}
	message := func() string {
		for _, p := range scan(t, openRoot(t, dir), Options{}).Problems {
			if p.Code == v1alpha1.ProblemROCmAmbiguous {
				return p.Message
			}
		}
		return ""
	}
	if got := message(); !strings.Contains(got, "no opt/rocm/core: 7.13.0") ||
		!strings.Contains(got, "update-alternatives") || strings.Contains(got, "Link opt/rocm") {
		t.Errorf("without a link: %q", got)
	}
	if err := os.Symlink("/etc/alternatives/rocm-core", filepath.Join(dir, "opt/rocm/core")); err != nil {
		t.Fatal(err)
	}
	if got := message(); !strings.Contains(got,
		"opt/rocm/core leads to /etc/alternatives/rocm-core, which is not mounted") || strings.Contains(got, "Link ") {
		t.Errorf("with a link: %q", got)
	}
	for tree, want := range map[string]string{
		"usr/lib/python3/dist-packages/rocm_sdk_core-x.y.dist-info/METADATA": "pip show rocm-sdk-core",
		"usr/lib/python3/dist-packages/_rocm_sdk_core/lib/libx.so":           "pip show rocm-sdk-core",
		"opt/rocm/.info/version": "rpm -qf",
	} {
		for _, p := range scan(t, memFS{tree: "?"}, Options{}).Problems {
			if p.Code == v1alpha1.ProblemROCmUnreadable &&
				(!strings.Contains(p.Message, want) || strings.Contains(p.Message, "Reinstall")) {
				t.Errorf("%s: %q, expected %q", tree, p.Message, want)
			}
		}
	}
}
