package discover

import (
	"bytes"
	"strings"
)

const moduleDir = "sys/module/amdgpu"

// hostFacts is what the kernel and its amdgpu module say of themselves.
type hostFacts struct {
	kernelRelease, bootID          string
	settings                       HostSettings
	version, srcVersion, initState string
	versionErr, initErr, moduleErr *ReadError
	modulesSeen                    bool
	unread                         []*ReadError
}

// readHost reads the module and the kernel's values. proc, when not nil, answers for a root without a proc directory.
func readHost(r *reader, proc FS) hostFacts {
	var h hostFacts
	text := func(r *reader, path string) (string, *ReadError) {
		data, rerr := r.file(path)
		if rerr != nil {
			if rerr.Class != ClassMissing {
				h.unread = append(h.unread, rerr)
			}
			return "", rerr
		}
		return printable(data, 128), nil
	}
	_, modules := r.dir("sys/module")
	h.modulesSeen = modules == nil
	if _, h.moduleErr = r.dir(moduleDir); h.moduleErr == nil {
		h.version, h.versionErr = text(r, moduleDir+"/version")
		h.srcVersion, _ = text(r, moduleDir+"/srcversion")
		h.initState, h.initErr = text(r, moduleDir+"/initstate")
	} else if h.moduleErr.Class != ClassMissing {
		h.unread = append(h.unread, h.moduleErr)
	}
	pr := r
	if _, rerr := r.dir("proc/sys"); rerr != nil && rerr.Class == ClassMissing && proc != nil {
		// The kernel's own values cannot hang; they are memory of the kernel, not of a device.
		pr = &reader{fs: proc, hung: &hungReads{}, clock: r.clock}
	}
	h.kernelRelease, _ = text(pr, "proc/sys/kernel/osrelease")
	h.bootID, _ = text(pr, "proc/sys/kernel/random/boot_id")
	if settings := field(pr, cmdlinePath, parseCommandLine, &h.unread); settings != nil {
		h.settings = *settings
	}
	h.settings.NUMABalancing = field(pr, "proc/sys/kernel/numa_balancing", parseIntFile, &h.unread)
	return h
}

// printable is the text of a file on one line, without bytes that a terminal or JSON would choke on.
func printable(data []byte, limit int) string {
	text := strings.Map(func(c rune) rune {
		if c < 0x20 || c == 0x7f || c == '�' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(string(bytes.TrimSpace(data)), ""))
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// driverFacts says what kind of driver is there. Only the DKMS driver has a version file; a driver that is built into
// the kernel has no initstate, and then KFD's presence alone proves that it runs.
func driverFacts(h hostFacts, kfd bool) DriverFacts {
	d := DriverFacts{Kind: DriverUnknown, Version: h.version, SrcVersion: h.srcVersion, InitState: h.initState}
	if h.moduleErr != nil {
		// A tree without sys/module tells nothing; one with it, but without amdgpu and KFD, has no driver.
		if h.moduleErr.Class == ClassMissing && h.modulesSeen && !kfd {
			d.Kind = DriverNotLoaded
		}
		return d
	}
	unknown := func(e *ReadError) bool { return e != nil && e.Class != ClassMissing }
	switch {
	case h.initState != "" && h.initState != "live":
		d.Kind = DriverNotLoaded
	case h.version != "":
		d.Kind = DriverDKMS
	case unknown(h.versionErr) || unknown(h.initErr):
		d.Kind = DriverUnknown
	case h.initState == "live":
		d.Kind = DriverInTree
	case kfd:
		d.Kind = DriverBuiltIn
	default:
		// Module parameters of a built-in driver are there even where it found no device.
		d.Kind = DriverUnknown
	}
	return d
}
