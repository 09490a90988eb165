// Package compat holds the rules on which versions and models fit together, as data with their sources, and the pure
// functions that apply them. It knows nothing of sysfs or Kubernetes.
package compat

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// Level says how much a broken rule weighs.
type Level string

// The levels. What could not be compared gives no finding at all: it is neither a pass nor a fault.
const (
	Error   Level = "Error"
	Warning Level = "Warning"
)

// Finding is one broken rule.
type Finding struct {
	Level Level
	// Rule is its name: ROCmMinimum, DriverWindow or FP8Encoding.
	Rule string
	// Message says what was seen, what was expected and what to do; Seen is its first part, without what to do. Source
	// is where the rule is from.
	Message, Seen, Source string
}

func finding(level Level, rule, source, seen, next string) *Finding {
	return &Finding{Level: level, Rule: rule, Source: source, Seen: seen, Message: seen + ": " + next + "."}
}

// The names of the rules.
const (
	RuleROCmMinimum  = "ROCmMinimum"
	RuleDriverWindow = "DriverWindow"
	RuleFP8Encoding  = "FP8Encoding"

	// RuleScratchReclaim and RuleSlowScratch have no check here: who applies them knows the environment and the runtime
	// of the processes.
	RuleScratchReclaim = "ScratchReclaim"
	RuleSlowScratch    = "SlowScratch"
)

// CheckROCm holds a ROCm user space against what GPUs of a target (gfx942) need. It is nil where they fit, where the
// target has no rule, and where the version is not one or too short to tell.
func CheckROCm(gfxTarget, rocm string) *Finding {
	row, ok := minimumOf(gfxTarget)
	v, parsed := ParseVersion(rocm)
	if !ok || !parsed || !v.Less(row.rocm) {
		return nil
	}
	return finding(row.level, RuleROCmMinimum, row.source,
		fmt.Sprintf("ROCm %s is older than %s, which %s (%s) needs", v, row.rocm, row.target, row.models),
		fmt.Sprintf("use an image or installation with ROCm %s or newer", row.rocm))
}

// ROCmFits says whether a ROCm user space is certainly new enough for GPUs of a target. known is false where the target
// is not in the table, or the version is not one or too short to tell; fits is then false, too.
func ROCmFits(gfxTarget, rocm string) (fits, known bool) {
	row, ok := minimumOf(gfxTarget)
	v, parsed := ParseVersion(rocm)
	if !ok || !parsed {
		return false, false
	}
	fits = v.reaches(row.rocm)
	return fits, fits || v.Less(row.rocm)
}

// MinimumROCm is the oldest ROCm release that GPUs of a target need, for example 6.4; "" where none is asked for or
// known.
func MinimumROCm(gfxTarget string) string {
	if row, ok := minimumOf(gfxTarget); ok {
		return row.rocm.String()
	}
	return ""
}

func minimumOf(gfxTarget string) (row minimumRow, ok bool) {
	for _, row := range minimums {
		if row.target == gfxTarget {
			return row, true
		}
	}
	return minimumRow{}, false
}

// CheckDriver holds a version of the amdgpu module (/sys/module/amdgpu/version) against a ROCm user space. It is nil
// where they fit, and where one is not known: an in-tree driver has no version, and releases after the tables' last are
// not in them. Far apart is not supported, and often works: it is a Warning.
func CheckDriver(driver, rocm string) *Finding {
	row, ok := driverOf(driver)
	if !ok {
		return nil
	}
	v, parsed := ParseVersion(rocm)
	if !parsed {
		return nil
	}
	r, ok := v.release()
	oldest, newest, after := row.window()
	var advice string
	switch {
	case v.Less(oldest): // also "5", of which the minor does not matter
		advice = fmt.Sprintf("use ROCm %s or newer, or an older driver", oldest)
	case ok && after != nil && !r.Less(*after):
		advice = fmt.Sprintf("update the driver, or use ROCm %s or older", newest)
	default:
		return nil
	}
	return finding(Warning, RuleDriverWindow, row.source,
		fmt.Sprintf("amdgpu %s (driver of %s) is supported with ROCm %s to %s, and this is ROCm %s",
			driver, row.of(), oldest, newest, v), advice)
}

// driverOf is the row of a module's version: the last one of its major.minor that it reaches.
func driverOf(driver string) (row driverRow, ok bool) {
	v, parsed := ParseVersion(driver)
	if !parsed {
		return driverRow{}, false
	}
	have, _ := v.release()
	for _, d := range drivers {
		if of, _ := d.module.release(); of == have && v.reaches(d.module) {
			row, ok = d, true
		}
	}
	return row, ok
}

// window is the range of ROCm releases that a driver is supported with: the published one, widened by the year that AMD
// grants to user spaces since 6.4. after is the first known release that is too new; nil where the newest known one is
// not, so that a newer one cannot be judged.
func (d driverRow) window() (oldest, newest Version, after *Version) {
	oldest, newest = d.oldest, d.newest
	at := slices.IndexFunc(releases, func(r releaseRow) bool { return r.rocm == d.rocm })
	if at >= 0 {
		for _, r := range releases[at:] {
			if !r.rocm.Less(yearRule) && newest.Less(r.rocm) && withinYear(releases[at].date, r.date) {
				newest = r.rocm
			}
		}
	}
	for _, r := range releases {
		if newest.Less(r.rocm) {
			return oldest, newest, &r.rocm
		}
	}
	return oldest, newest, nil
}

// of says which release a driver is of: "ROCm 6.2", "release 30.10 and ROCm 7.0".
func (d driverRow) of() string {
	if own := "ROCm " + d.rocm.String(); d.name != own {
		return "release " + d.name + " and " + own
	}
	return d.name
}

func withinYear(from, to string) bool {
	a, errA := time.Parse(time.DateOnly, from)
	b, errB := time.Parse(time.DateOnly, to)
	return errA == nil && errB == nil && !b.After(a.AddDate(1, 0, 0))
}

// ScratchRuntimeCode is the HIP runtime (hipRuntimeGetVersion: 6.4.43484) from which, with ScratchFirmware, the library
// starts without HSA_NO_SCRATCH_RECLAIM=1 (rccl src/rccl_wrap.cc validHsaScratchEnvSetting).
const ScratchRuntimeCode = 60443484

// ScratchFirmware is the MEC firmware, as KFD writes it, from which the library starts on GPUs of a target without
// HSA_NO_SCRATCH_RECLAIM=1. ruled is false for a target that the library does not look at.
func ScratchFirmware(gfxTarget string) (least uint64, ruled bool) {
	for _, row := range scratch {
		if row.target == gfxTarget {
			return row.firmware, true
		}
	}
	return 0, false
}

// SlowScratch says whether the library is slow on GPUs of a target with a HIP runtime (hipRuntimeGetVersion) where
// HSA_NO_SCRATCH_RECLAIM is not 1.
func SlowScratch(gfxTarget string, runtimeCode int) bool {
	return slices.ContainsFunc(slowScratch, func(row slowScratchRow) bool {
		return row.target == gfxTarget && runtimeCode >= row.runtimeCode
	})
}

// FP8Encoding is how GPUs of a target encode FP8 numbers: FNUZ or OCP; "" where that is not known or they have none.
func FP8Encoding(gfxTarget string) string {
	for _, row := range encodings {
		if row.target == gfxTarget {
			return row.encoding
		}
	}
	return ""
}

// CheckFP8 says whether targets of one communicator encode FP8 differently: RCCLX's FP8 sends numbers as they are
// encoded, so that the same byte is another number on the other side. It is nil where fewer than two known encodings
// meet.
func CheckFP8(gfxTargets []string) *Finding {
	of := map[string][]string{}
	for _, target := range gfxTargets {
		if e := FP8Encoding(target); e != "" && !slices.Contains(of[e], target) {
			of[e] = append(of[e], target)
		}
	}
	if len(of) < 2 {
		return nil
	}
	var sides []string
	for e, targets := range of {
		sort.Strings(targets)
		sides = append(sides, strings.Join(targets, ", ")+" uses "+e)
	}
	sort.Strings(sides)
	return finding(Error, RuleFP8Encoding, encodingSource,
		"FP8 is encoded differently, "+strings.Join(sides, ", ")+", so that data would be wrong on the other side",
		"turn FP8 (low precision) off, or make a group for each model")
}
