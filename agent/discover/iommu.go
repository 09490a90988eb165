package discover

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

const (
	iommuDir    = "sys/kernel/iommu_groups"
	cmdlinePath = "proc/cmdline"
	// maxIOMMUGroups bounds the search for GPUs in a tree that has no links to their groups.
	maxIOMMUGroups = 1024
)

// parseCommandLine says what the kernel's command line makes of the IOMMU, and by which word. The kernel takes words in
// their order, so that the last one counts (drivers/iommu/iommu.c, iommu_set_def_domain_type): iommu= is a list with pt
// and nopt (arch/x86/kernel/pci-dma.c, iommu_setup), amd_iommu=pt means nothing, and no IOMMU is started after
// iommu=off, amd_iommu=off or intel_iommu=off. Without a word it is not known: the kernel's own default is by its
// configuration (CONFIG_IOMMU_DEFAULT_PASSTHROUGH), and there may be no IOMMU.
func parseCommandLine(data []byte) (HostSettings, error) {
	words := strings.Fields(string(data))
	if len(words) == 0 {
		return HostSettings{}, errEmpty
	}
	h := HostSettings{IOMMUSource: cmdlinePath}
	off := ""
	pass := func(on bool, word string) {
		h.IOMMU, h.IOMMUWord = IOMMUTranslated, printable([]byte(word), 64)
		if on {
			h.IOMMU = IOMMUPassthrough
		}
	}
	for _, word := range words {
		if word == "--" { // what follows is for init
			break
		}
		name, value, _ := strings.Cut(word, "=")
		switch strings.ReplaceAll(name, "-", "_") {
		case "iommu":
			for item := range strings.SplitSeq(value, ",") {
				switch item {
				case "pt", "nopt":
					pass(item == "pt", word)
				case "off":
					off = word
				}
			}
		case "iommu.passthrough":
			if on, ok := kernelBool(value); ok {
				pass(on, word)
			}
		case "amd_iommu", "intel_iommu":
			if slices.Contains(strings.Split(value, ","), "off") {
				off = word
			}
		}
	}
	if off != "" {
		h.IOMMU, h.IOMMUWord = IOMMUOff, printable([]byte(off), 64)
	}
	return h, nil
}

// kernelBool reads a value as kstrtobool does (lib/kstrtox.c).
func kernelBool(value string) (on, ok bool) {
	switch v := strings.ToLower(value); {
	case v == "":
	case strings.HasPrefix(v, "on"), strings.ContainsAny(v[:1], "yt1"):
		return true, true
	case strings.HasPrefix(v, "of"), strings.ContainsAny(v[:1], "nf0"):
		return false, true
	}
	return false, false
}

// parseIOMMUType reads an IOMMU group's type (drivers/iommu/iommu.c, iommu_group_show_type); "" for one that says
// nothing of the driver's own DMA, as of a device that a virtual machine has.
func parseIOMMUType(data []byte) (string, error) {
	switch kind := string(bytes.TrimSpace(data)); kind {
	case "":
		return "", errEmpty
	case "identity":
		return IOMMUPassthrough, nil
	case "DMA", "DMA-FQ":
		return IOMMUTranslated, nil
	}
	return "", nil
}

// iommuGroups are the host's IOMMU groups as far as they matter: what becomes of the addresses of single functions, and
// of all, where all groups are alike.
type iommuGroups struct {
	present, empty bool
	of             map[string]string
	all            string
	unread         []*ReadError
}

// readIOMMUGroups looks at each group for functions; searched says that the GPUs' own links to their groups did not
// tell.
func readIOMMUGroups(r *reader, searched bool) iommuGroups {
	g := iommuGroups{of: map[string]string{}}
	names, rerr := r.dir(iommuDir)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			g.unread = append(g.unread, rerr)
		}
		return g
	}
	groups := numbers(names)
	g.present, g.empty = true, len(groups) == 0
	if !searched || len(groups) > maxIOMMUGroups {
		return g
	}
	kinds := map[string]bool{}
	for _, n := range groups {
		dir := iommuDir + "/" + strconv.Itoa(n)
		kind := field(r, dir+"/type", parseIOMMUType, &g.unread)
		if kind == nil {
			kind = new(string)
		}
		kinds[*kind] = true
		functions, _ := r.dir(dir + "/devices")
		for _, address := range functions {
			g.of[address] = *kind
		}
	}
	if len(kinds) == 1 {
		g.all = sortedKeys(kinds)[0]
	}
	return g
}

// applyIOMMU takes what the kernel shows of the GPUs' groups before what its command line asks for.
func (f *Facts) applyIOMMU(g iommuGroups) {
	f.addUnread(g.unread...)
	if g.empty {
		f.Host.IOMMU, f.Host.IOMMUSource = IOMMUOff, iommuDir
		return
	}
	known := 0
	var translated []string
	for i := range f.GPUs {
		gpu := &f.GPUs[i]
		mode := gpu.iommu
		if mode == "" {
			mode = g.of[gpu.PCIAddress]
		}
		if mode == "" && len(g.of) == 0 {
			mode = g.all // a copy without the groups' lists of devices
		}
		if mode != "" {
			known++
		}
		if mode == IOMMUTranslated {
			translated = append(translated, gpu.PCIAddress)
		}
	}
	switch {
	case len(translated) > 0:
		f.Host.IOMMU, f.Host.IOMMUSource, f.Host.TranslatedGPUs = IOMMUTranslated, iommuDir, translated
	case known > 0 && known == len(f.GPUs):
		f.Host.IOMMU, f.Host.IOMMUSource = IOMMUPassthrough, iommuDir
	}
}
