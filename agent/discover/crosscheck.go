package discover

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// checkBus holds KFD, the PCI bus and DRM's render nodes against each other. certain says that every node of KFD could
// be read: only then can a GPU be said to be absent from it. It returns how many GPUs are on the bus but not in KFD.
func checkBus(l *problemList, f *Facts, certain bool) int {
	absent := 0
	if certain {
		inKFD := map[string]bool{}
		for i := range f.GPUs {
			inKFD[f.GPUs[i].PCIAddress] = true
		}
		for i := range f.PCIGPUs {
			if p := &f.PCIGPUs[i]; !inKFD[p.PCIAddress] {
				absent++
				if len(f.GPUs) > 0 {
					notInKFD(l, f, p)
				}
			}
		}
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		switch {
		case !f.pciReadable || g.noDomain: // an old kernel's address may lack the domain
		case !f.pciAddresses[g.PCIAddress]:
			l.error(v1alpha1.ProblemGPULost, subject{GPU: g.PCIAddress},
				"KFD has this GPU, and the PCI bus does not (GPUs: KFD %d, PCI %d): it fell off the bus, "+
					"or was removed while this scan ran. Look for its address in the kernel log; power-cycle the node.",
				len(f.GPUs), len(f.PCIGPUs))
		case g.vanished:
			l.error(v1alpha1.ProblemGPULost, subject{GPU: g.PCIAddress},
				"It was on the PCI bus when the scan began, and not one file of it was left when it was read: "+
					"the GPU disappeared. Look again; look for its address in the kernel log.")
		}
	}
	checkRenderNodes(l, f)
	return absent
}

func notInKFD(l *problemList, f *Facts, p *PCIGPU) {
	if p.Driver != "" && p.Driver != "amdgpu" {
		l.warn(v1alpha1.ProblemGPUNotInKFD, subject{GPU: p.PCIAddress},
			"%s (%s) is on the PCI bus and bound to %s, so KFD does not have it (GPUs: "+
				"PCI %d, KFD %d). If no virtual machine shall have it, bind it to amdgpu.",
			p.Model, p.DeviceID, p.Driver, len(f.PCIGPUs), len(f.GPUs))
		return
	}
	l.error(v1alpha1.ProblemGPUNotInKFD, subject{GPU: p.PCIAddress},
		"%s (%s) is on the PCI bus but not in KFD (GPUs: PCI %d, KFD %d): the driver did not take it. "+
			"Look for its address in the kernel log; reload the driver or replace the GPU.",
		p.Model, p.DeviceID, len(f.PCIGPUs), len(f.GPUs))
}

// checkRenderNodes: a device is opened through its render node, by HIP and by what the device plugin hands out.
func checkRenderNodes(l *problemList, f *Facts) {
	if f.renderMinors == nil || !f.GenerationStable {
		return // while partitions are set anew, KFD and DRM follow each other
	}
	var gpus, names []string
	stated := 0
	for i := range f.Devices {
		d := &f.Devices[i]
		if d.RenderMinor == nil || *d.RenderMinor < firstRenderMinor {
			continue // KFD does not state one
		}
		stated++
		if f.renderMinors[*d.RenderMinor] {
			continue
		}
		if len(gpus) < 4 && (len(gpus) == 0 || gpus[len(gpus)-1] != d.PCIAddress) {
			gpus = append(gpus, d.PCIAddress)
		}
		names = append(names, fmt.Sprintf("renderD%d of %s", *d.RenderMinor, d.PCIAddress))
	}
	if len(names) == 0 {
		return
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
	}
	l.error(v1alpha1.ProblemRenderNodeMissing, gpusSubject(gpus),
		"%s%s not in sys/class/drm (devices: KFD %d, render nodes %d): HIP and the device plugin "+
			"cannot open a device without its node. Look for drm in the kernel log; reload the driver.",
		strings.Join(names[:min(len(names), 3)], ", "), more+isAre(len(names)), stated, stated-len(names))
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// checkFirmware: the GPUs of one model run the same microcode.
func checkFirmware(l *problemList, f *Facts) {
	modelOf := map[string]string{}
	var models []string
	for i := range f.GPUs {
		g := &f.GPUs[i]
		modelOf[g.PCIAddress] = g.Model
		if len(models) == 0 || models[len(models)-1] != g.Model {
			models = append(models, g.Model)
		}
	}
	told := map[string]bool{}
	for _, model := range models {
		if told[model] {
			continue
		}
		told[model] = true
		var texts, odd []string
		for _, kind := range []struct {
			name string
			of   func(*Device) *uint64
		}{{"MEC", func(d *Device) *uint64 { return d.FWVersion }},
			{"SDMA", func(d *Device) *uint64 { return d.SDMAVersion }}} {
			counts := map[string]int{}
			for i := range f.Devices {
				if version := stated(kind.of(&f.Devices[i])); version != nil &&
					modelOf[f.Devices[i].PCIAddress] == model {
					counts[fmt.Sprint(*version)]++
				}
			}
			if len(counts) < 2 {
				continue
			}
			usual := largest(counts)
			texts = append(texts, kind.name+" "+tallyCounts(counts))
			for i := range f.Devices {
				d := &f.Devices[i]
				version := stated(kind.of(d))
				if version != nil && modelOf[d.PCIAddress] == model && fmt.Sprint(*version) != usual && len(odd) < 4 &&
					!slices.Contains(odd, d.PCIAddress) {
					odd = append(odd, d.PCIAddress)
				}
			}
		}
		if len(texts) > 0 {
			l.warn(v1alpha1.ProblemMixedFirmware, gpusSubject(odd),
				"Devices of one model (%s) run different firmware: %s; expected the same on all. Update the firmware "+
					"package and reload the driver, or update the GPU's IFWI.", model, strings.Join(texts, "; "))
		}
	}
}
