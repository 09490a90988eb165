package compatible

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// rules applies what AMD and the library state of versions that fit together.
func (f *fitting) rules(in Input) {
	if broken := settings.MixedFP8(in.Spec, slices.Sorted(maps.Keys(in.Census[propGFX]))); broken != "" {
		f.fault(v1alpha1.ReasonMixedFP8Encodings, broken)
	}
	f.containerROCm(in)
	f.firmware(in)
}

// nodefacts.ContainerROCm holds the ROCm of each run's container against the node's GPUs and driver; where the
// container's is not known, the driver is held against the host's.
func (f *fitting) containerROCm(in Input) {
	inContainer := make(map[string]string, len(in.Outcomes))
	for i := range in.Outcomes {
		if version := nodefacts.ContainerROCm(in.Outcomes[i].Report); version != "" {
			inContainer[in.Outcomes[i].Node] = version
		}
	}
	var old, oldish, apart onNodes
	for _, cn := range in.Reporting {
		facts, node := cn.Status.Facts, cn.Name
		version, side := inContainer[node], "in the run's container"
		if found := compat.CheckROCm(facts.GFXTarget, version); found != nil && found.Level == compat.Error {
			old.add(found.Message, node)
			f.blame(node, v1alpha1.ReasonROCmTooOld, found.Message)
		} else if found != nil {
			oldish.add(found.Message, node)
		}
		if version == "" && facts.ROCm.State == "Found" {
			version, side = facts.ROCm.Version, "on the host"
		}
		if found := compat.CheckDriver(facts.Driver.Version, version); found != nil {
			apart.add(fmt.Sprintf("%s (ROCm %s)", strings.TrimSuffix(found.Message, "."), side), node)
		}
	}
	old.each(func(names, text string) {
		f.fault(v1alpha1.ReasonROCmTooOld,
			fmt.Sprintf("In the run's container on %s: %s", names, explain.Sentence(text)))
	})
	remark := func(reason string) func(names, text string) {
		return func(names, text string) {
			f.notes = append(f.notes, fmt.Sprintf("%s on %s: %s", reason, names, explain.Sentence(text)))
		}
	}
	oldish.each(remark(v1alpha1.ReasonROCmTooOld))
	apart.each(remark(v1alpha1.ReasonDriverMismatch))
}

// firmware that differs is a remark; a fault where some nodes need HSA_NO_SCRATCH_RECLAIM and others do not, so that a
// job without it fails on some nodes only.
func (f *fitting) firmware(in Input) {
	if len(in.Census[propGFX]) > 1 {
		return // other models have other firmware, and their mixture is said already
	}
	below := map[string][]string{}
	enough, least, target := 0, uint64(0), ""
	for _, cn := range in.Reporting {
		facts := cn.Status.Facts
		limit, ruled := compat.ScratchFirmware(facts.GFXTarget)
		if !ruled || facts.Firmware == nil {
			continue
		}
		least, target = limit, facts.GFXTarget // there is one target in the group
		version, err := strconv.ParseUint(facts.Firmware.MEC, 10, 64)
		switch {
		case err != nil: // "mixed", or not known
		case version < limit:
			below[facts.Firmware.MEC] = append(below[facts.Firmware.MEC], cn.Name)
		default:
			enough++
		}
	}
	if len(below) > 0 && enough > 0 {
		for _, version := range slices.Sorted(maps.Keys(below)) {
			message := fmt.Sprintf("MEC firmware %s on %s is older than %d, with which RCCL starts on %s only "+
				"with HSA_NO_SCRATCH_RECLAIM=1; %s newer firmware, so that a job without the variable fails on "+
				"some nodes only. Update the firmware of the older ones; the published settings set the variable.",
				version, explain.Names(below[version], 5), least, target, explain.NodesHave(int32(enough)))
			f.fault(v1alpha1.ReasonMixedFirmware, message)
			for _, node := range below[version] {
				f.blame(node, v1alpha1.ReasonMixedFirmware, message)
			}
		}
		return
	}
	mixed := mixture{property: propFirmware, what: "GPU firmware",
		advice: "No rule of the library looks at this difference."}
	if message, _ := mixed.find(in.Census[propFirmware]); message != "" {
		f.notes = append(f.notes, v1alpha1.ReasonMixedFirmware+": "+message)
	}
}
