package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandLineIOMMU(t *testing.T) {
	for line, want := range map[string]string{ // the mode and the word that decides
		"ro quiet":              " ",
		"ro iommu=pt":           "Passthrough iommu=pt",
		"iommu=pt,force":        "Passthrough iommu=pt,force",
		"iommu=force,pt":        "Passthrough iommu=force,pt",
		"iommu=ptx":             " ",
		"not_iommu=pt":          " ",
		"iommu=nopt":            "Translated iommu=nopt",
		"iommu.passthrough=1":   "Passthrough iommu.passthrough=1",
		"iommu.passthrough=Yes": "Passthrough iommu.passthrough=Yes",
		"iommu.passthrough=on":  "Passthrough iommu.passthrough=on",
		"iommu.passthrough=0":   "Translated iommu.passthrough=0",
		"iommu.passthrough=off": "Translated iommu.passthrough=off",
		"iommu.passthrough=":    " ",
		"iommu.passthrough":     " ",
		// The last word counts.
		"iommu=pt iommu.passthrough=0": "Translated iommu.passthrough=0",
		"iommu.passthrough=0 iommu=pt": "Passthrough iommu=pt",
		"iommu=pt iommu=nopt":          "Translated iommu=nopt",
		"iommu=pt iommu.passthrough=x": "Passthrough iommu=pt",
		// No IOMMU at all.
		"amd_iommu=off":                "Off amd_iommu=off",
		"amd-iommu=off":                "Off amd-iommu=off",
		"amd_iommu=fullflush,off":      "Off amd_iommu=fullflush,off",
		"intel_iommu=off":              "Off intel_iommu=off",
		"iommu=off":                    "Off iommu=off",
		"iommu=pt amd_iommu=off":       "Off amd_iommu=off",
		"amd_iommu=off iommu=pt":       "Off amd_iommu=off",
		"amd_iommu=pt":                 " ",
		"amd_iommu=pt_off":             " ",
		"amd_iommu=on":                 " ",
		"intel_iommu=on iommu=pt":      "Passthrough iommu=pt",
		"ro -- iommu=pt amd_iommu=off": " ",
	} {
		h, err := parseCommandLine([]byte(line + "\n"))
		if got := h.IOMMU + " " + h.IOMMUWord; err != nil || got != want {
			t.Errorf("%q: %q, %v; expected %q", line, got, err, want)
		}
	}
	if _, err := parseCommandLine([]byte("\n")); err == nil {
		t.Error("an empty command line was read")
	}
}

// TestOddCommandLines are of real machines, and traps.
func TestOddCommandLines(t *testing.T) {
	for name, want := range map[string]string{"cmdline-amd-recommended.txt": IOMMUPassthrough,
		"cmdline-hang-then-fixed.txt": IOMMUPassthrough, "cmdline-missing-iommu.txt": "",
		"cmdline-trap-iommu-ptx.txt": ""} {
		data, err := os.ReadFile(filepath.Join(fixtures(t), "text", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseCommandLine(data); err != nil || got.IOMMU != want {
			t.Errorf("%s: %+v, %v; expected %s", name, got, err, want)
		}
	}
}

// TestIOMMUGroups: what the kernel shows of the GPUs' groups goes before its command line.
func TestIOMMUGroups(t *testing.T) {
	const none, pt = "ro quiet\n", "ro iommu=pt\n"
	all := func(fs memFS, kind string) { // as on a machine, where each GPU links to its group
		for i, address := range addressesOf(fs) {
			fs[fmt.Sprintf("%s/%s/iommu_group/type", pciDir, address)] = kind
			fs[fmt.Sprintf("%s/%d/type", iommuDir, i)] = kind
		}
	}
	for name, c := range map[string]struct {
		cmdline string
		change  func(memFS)
		mode    string
		source  string
		want    []string
	}{
		"none to see, pt":   {pt, func(memFS) {}, IOMMUPassthrough, cmdlinePath, nil},
		"none to see, none": {none, func(memFS) {}, "", cmdlinePath, nil},
		"none to see, translated": {"ro iommu=nopt\n", func(memFS) {}, IOMMUTranslated, cmdlinePath,
			[]string{"Warning IOMMUNotPassthrough proc/cmdline"}},
		"nothing told":           {none, func(fs memFS) { all(fs, "unmanaged\n") }, "", cmdlinePath, nil},
		"identity by the kernel": {none, func(fs memFS) { all(fs, "identity\n") }, IOMMUPassthrough, iommuDir, nil},
		"translated all the same": {pt, func(fs memFS) { all(fs, "DMA-FQ\n") }, IOMMUTranslated, iommuDir,
			[]string{"Warning IOMMUNotPassthrough sys/kernel/iommu_groups"}},
		"translated, and asked so": {none, func(fs memFS) { all(fs, "DMA\n") }, IOMMUTranslated, iommuDir,
			[]string{"Warning IOMMUNotPassthrough sys/kernel/iommu_groups"}},
		"no group": {none, func(fs memFS) { fs[iommuDir+"/."] = "" }, IOMMUOff, iommuDir, nil},
		"a copy without links, with functions": {none, func(fs memFS) {
			for i, address := range addressesOf(fs) {
				fs[fmt.Sprintf("%s/%d/type", iommuDir, i)] = "identity\n"
				fs[fmt.Sprintf("%s/%d/devices/%s", iommuDir, i, address)] = ""
			}
			fs[iommuDir+"/99/type"] = "DMA\n"
			fs[iommuDir+"/99/devices/0000:f0:1f.0"] = ""
		}, IOMMUPassthrough, iommuDir, nil},
		"a copy without functions, all alike": {none, func(fs memFS) {
			fs[iommuDir+"/3/type"], fs[iommuDir+"/4/type"] = "identity\n", "identity\n"
		}, IOMMUPassthrough, iommuDir, nil},
		"a copy without functions, not alike": {pt, func(fs memFS) {
			fs[iommuDir+"/3/type"], fs[iommuDir+"/4/type"] = "identity\n", "DMA\n"
		}, IOMMUPassthrough, cmdlinePath, nil},
		"other GPUs' groups": {pt, func(fs memFS) {
			fs[iommuDir+"/3/type"], fs[iommuDir+"/3/devices/0000:f0:1f.0"] = "DMA\n", ""
		}, IOMMUPassthrough, cmdlinePath, nil},
		"one GPU is translated": {pt, func(fs memFS) {
			all(fs, "identity\n")
			fs[pciDir+"/0000:05:00.0/iommu_group/type"] = "DMA\n"
		}, IOMMUTranslated, iommuDir, []string{"Warning IOMMUNotPassthrough sys/kernel/iommu_groups"}},
		"a type that says nothing": {pt, func(fs memFS) { all(fs, "unmanaged\n") }, IOMMUPassthrough, cmdlinePath, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memTree(t, healthyTree)
			fs[cmdlinePath] = c.cmdline
			c.change(fs)
			f := scan(t, fs, Options{})
			if diff := cmp.Diff(append([]string{}, c.want...), problemLines(f)); diff != "" || f.Host.IOMMU != c.mode ||
				f.Host.IOMMUSource != c.source {
				t.Errorf("%+v, expected %s by %s; problems (-want +got):\n%s", f.Host, c.mode, c.source, diff)
			}
		})
	}
}

// addressesOf are the PCI addresses of a tree's GPUs.
func addressesOf(fs memFS) []string {
	seen := map[string]bool{}
	for name, text := range fs {
		if dir, found := strings.CutSuffix(name, "/class"); found && strings.HasPrefix(name, pciDir) &&
			strings.HasPrefix(text, "0x1200") {
			seen[strings.TrimPrefix(dir, pciDir+"/")] = true
		}
	}
	return sortedKeys(seen)
}
