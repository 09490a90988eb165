package preflight

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// rocmPaths are the directories that a workload's own environment names for ROCm, in the order of AMD's tools.
func rocmPaths(environ []string) []string {
	n := Need{Environ: environ}
	var paths []string
	for _, name := range []string{"ROCM_PATH", "ROCM_HOME"} {
		if dir, ok := n.variable(name); ok && dir != "" {
			paths = append(paths, dir)
		}
	}
	return paths
}

// checkROCmVersion holds the ROCm of the ranks' own container against the GPUs and the host's driver (rcclx/compat).
func checkROCmVersion(f NodeFacts) Finding {
	d := f.Discovered
	if d == nil {
		return found(ROCmVersion, Unknown, -1, "the ranks' ROCm could not be read (%s)", orUnread(f.DiscoveredError))
	}
	if d.ROCm.State != discover.ROCmFound {
		return found(ROCmVersion, Unknown, -1, "the version of the ranks' ROCm is not known (%s)", whyNoROCm(d.ROCm))
	}
	have := fmt.Sprintf("the ranks have ROCm %s (/%s)", d.ROCm.Version, d.ROCm.Source)
	targets := d.GFXTargets()
	if len(targets) == 0 {
		return found(ROCmVersion, Unknown, -1, "%s, and of no GPU is it known what it needs", have)
	}
	open := ""
	for _, target := range targets {
		if finding := compat.CheckROCm(target, d.ROCm.Version); finding != nil {
			state := Failed
			if finding.Level != compat.Error {
				state = Warning
			}
			return found(ROCmVersion, state, -1, "%s, expected at least %s for %s", have,
				compat.MinimumROCm(target), target)
		}
		if _, known := compat.ROCmFits(target, d.ROCm.Version); !known {
			open = target
		}
	}
	if finding := compat.CheckDriver(d.Driver.Version, d.ROCm.Version); finding != nil {
		return found(ROCmVersion, Warning, -1, "%s, and %s", have, finding.Seen)
	}
	if text := d.ROCm.RCCLDiffers(); text != "" {
		return found(ROCmVersion, Warning, -1, "%s, but %s", have, text)
	}
	if open != "" {
		return found(ROCmVersion, Unknown, -1, "%s, and whether that does for %s is not known", have, open)
	}
	driver := "amdgpu " + d.Driver.Version
	if d.Driver.Version == "" {
		driver = "a driver without a version" // it came with the kernel: no rule is known for it
	}
	return met(ROCmVersion, "%s, for %s with %s", have, strings.Join(targets, " and "), driver)
}

// whyNoROCm is the first source that failed, or that there is none.
func whyNoROCm(r discover.ROCmFacts) string {
	if r.State == discover.ROCmAmbiguous {
		var all []string
		for _, s := range r.Sources {
			if s.Version != "" && len(all) < 3 {
				all = append(all, s.Version+" in /"+s.Path)
			}
		}
		return "several: " + strings.Join(all, ", ")
	}
	for _, s := range r.Sources {
		if s.Error != "" {
			return "/" + s.Path + ": " + s.Error
		}
	}
	return "no file, library or package tells it"
}
