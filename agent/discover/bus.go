package discover

import (
	"fmt"
	"path"
	"sort"
	"strings"
)

const (
	drmDir = "sys/class/drm"
	// firstRenderMinor is where DRM's render nodes begin (drivers/gpu/drm/drm_drv.c); KFD writes 0 where it knows none.
	firstRenderMinor = 128
)

// pciBus is what the PCI bus shows.
type pciBus struct {
	gpus      []PCIGPU
	addresses map[string]bool // of every function
	err       *ReadError      // why it could not be listed
	unread    []*ReadError
}

// readPCIBus lists AMD's data-centre GPUs: class 0x1200 (processing accelerator), or a display class (0x0380, and
// 0x0300 or 0x0302 of old cards) with a device id that the table knows.
func readPCIBus(r *reader) pciBus {
	var bus pciBus
	names, rerr := r.dir(pciDir)
	if rerr != nil {
		bus.err = rerr
		return bus
	}
	sort.Strings(names)
	hex := func(path string) (uint64, bool) {
		n := field(r, path, parseHexFile, &bus.unread)
		if n == nil {
			return 0, false
		}
		return *n, true
	}
	bus.gpus, bus.addresses = []PCIGPU{}, make(map[string]bool, len(names))
	for _, name := range names {
		dir := pciDir + "/" + name
		if strings.HasPrefix(name, ".") {
			continue
		}
		bus.addresses[name] = true
		if vendor, ok := hex(dir + "/vendor"); !ok || vendor != amdVendorID {
			continue
		}
		class, ok := hex(dir + "/class")
		accelerator := class>>8 == 0x1200
		if !ok || (!accelerator && class>>16 != 0x03) {
			continue
		}
		id, ok := hex(dir + "/device")
		if !ok {
			continue
		}
		model, known := LookupModel(id)
		if !known && !accelerator {
			continue
		}
		g := PCIGPU{PCIAddress: name, DeviceID: fmt.Sprintf("0x%04x", id), Model: model.Name}
		// A copied tree may have no links, so that none is there does not say that no driver is bound.
		if target, rerr := r.link(dir + "/driver"); rerr == nil {
			g.Driver = printable([]byte(path.Base(target)), 64)
		}
		bus.gpus = append(bus.gpus, g)
	}
	return bus
}

// readRenderNodes lists the minors of DRM's render nodes. Nil where the directory is not there, as in a dump of KFD
// alone, or could not be listed.
func readRenderNodes(r *reader) (map[uint64]bool, []*ReadError) {
	names, rerr := r.dir(drmDir)
	if rerr != nil {
		if rerr.Class == ClassMissing {
			return nil, nil
		}
		return nil, []*ReadError{rerr}
	}
	minors := map[uint64]bool{}
	for _, name := range names {
		if digits, found := strings.CutPrefix(name, "renderD"); found {
			if minor, err := parseUint([]byte(digits)); err == nil {
				minors[minor] = true
			}
		}
	}
	return minors, nil
}

// countRenderNodes counts the devices whose render node exists.
func (f *Facts) countRenderNodes() {
	f.RenderNodes = nil
	if f.renderMinors == nil {
		return
	}
	count := 0
	for i := range f.Devices {
		if minor := f.Devices[i].RenderMinor; minor != nil && f.renderMinors[*minor] {
			count++
		}
	}
	f.RenderNodes = &count
}
