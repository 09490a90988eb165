package discover

import (
	"fmt"
	"sort"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// checkCounters: errors since the driver was loaded, bad memory, and xGMI ports. Correctable errors count only when
// they rise, which takes two looks (agent/monitor).
func checkCounters(l *problemList, f *Facts) {
	for i := range f.GPUs {
		checkRAS(l, &f.GPUs[i])
	}
	checkPorts(l, f)
	checkMetrics(l, f)
}

func checkRAS(l *problemList, g *GPU) {
	if n := g.XGMIUncorrectableErrors; n != nil && *n > 0 {
		l.error(v1alpha1.ProblemXGMIUncorrectableErrors, subject{GPU: g.PCIAddress},
			"%d uncorrectable xGMI errors since the driver was loaded; expected none. Drain the node and reset the "+
				"GPU; if they come back, replace it.", *n)
	}
	uncorrectable := g.blocksWith(func(block string, c ErrorCounts) uint64 {
		if block == RASBlockXGMI {
			return 0 // told above
		}
		return c.Uncorrectable
	})
	if uncorrectable != "" {
		l.error(v1alpha1.ProblemUncorrectableErrors, subject{GPU: g.PCIAddress},
			"Uncorrectable errors since the driver was loaded, by block: %s; expected none. Drain the node and reset "+
				"the GPU; if they come back, replace it.", uncorrectable)
	}
	deferred := g.blocksWith(func(_ string, c ErrorCounts) uint64 {
		if c.Deferred == nil {
			return 0
		}
		return *c.Deferred
	})
	if deferred != "" {
		l.warn(v1alpha1.ProblemDeferredErrors, subject{GPU: g.PCIAddress},
			"Deferred errors since the driver was loaded, by block: %s; expected none. Data in memory is poisoned, "+
				"and what reads it fails: drain the node when it is idle, and reset the GPU.", deferred)
	}
	if n := g.RetiredPages; n != nil && (*n > 0 || g.unreservedPages > 0) {
		unreserved := ""
		if g.unreservedPages > 0 {
			unreserved = fmt.Sprintf(", and %d bad pages could not be taken out of use", g.unreservedPages)
		}
		l.warn(v1alpha1.ProblemRetiredPages, subject{GPU: g.PCIAddress},
			"%d pages of its memory are retired%s; expected none. Watch the number: the kernel log says when it "+
				"reaches the driver's threshold, and then the GPU must be replaced.", *n, unreserved)
	}
}

// blocksWith is "gfx 1, umc 3": the blocks with a count above zero, by name.
func (g *GPU) blocksWith(count func(string, ErrorCounts) uint64) string {
	var parts []string
	for block, c := range g.RAS {
		if n := count(block, c); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", block, n))
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// checkErrorFiles says which error counters nobody can read. The kernel makes a counter's file only for a block that
// counts (amdgpu_ras.c, amdgpu_ras_sysfs_create), so one that is there and answers EINVAL failed to count: it is no
// counter that this model does not have.
func checkErrorFiles(l *problemList, f *Facts) {
	count, first, gpus := 0, Unread{}, 0
	for _, u := range f.Unread {
		if unreadKind(u.Path) != "ras" || u.Class == ClassTimeout || u.Class == ClassMissing {
			continue
		}
		if count == 0 {
			first = u
		}
		count++
	}
	for i := range f.GPUs {
		if f.GPUs[i].rasUnread {
			gpus++
		}
	}
	if count > 0 {
		next := "Look at the kernel log, and look again."
		switch first.Class {
		case ClassForbidden:
			next = "Run privileged; where it is, a GPU may be resetting: look at the kernel log."
		case ClassMalformed:
			next = "The content is not what a kernel writes: look at the file, and report it if it is right."
		}
		l.warn(v1alpha1.ProblemErrorCountUnreadable, subject{Path: first.Path},
			"%d error counters of %d of the %d GPUs are there and cannot be read (this one: "+
				"%s: %s): errors that they count are not seen, and sums lack them. %s",
			count, gpus, len(f.GPUs), first.Class, first.Message, next)
	}
	var lacking []string
	example := ""
	for i := range f.GPUs {
		if lacks := f.lacksCounters(i); len(lacks) > 0 {
			if lacking = append(lacking, f.GPUs[i].PCIAddress); len(lacking) == 1 {
				example = strings.Join(lacks[:min(len(lacks), 3)], ", ")
			}
		}
	}
	if len(lacking) > 0 {
		l.warn(v1alpha1.ProblemErrorCountUnreadable, gpusSubject(lacking[:min(len(lacking), 4)]),
			"%d GPUs have no error counters where most others of their model on this node have them (the first "+
				"has no ras/%s): their errors are not seen. Look for RAS in the kernel log, and reload the driver.",
			len(lacking), example)
	}
}

// lacksCounters names, in order, the files with error counters that a GPU does not have and most others of its model on
// this node do. A virtual function sees what its host lets it see, and of what could not be listed nothing is known.
func (f *Facts) lacksCounters(gpu int) []string {
	g := &f.GPUs[gpu]
	if g.model.VF || g.vanished || g.rasUnread && g.rasFiles == nil {
		return nil
	}
	others, having := 0, map[string]int{}
	for i := range f.GPUs {
		o := &f.GPUs[i]
		if i == gpu || o.DeviceID != g.DeviceID || o.vanished || o.rasUnread && o.rasFiles == nil {
			continue
		}
		others++
		for name := range o.rasFiles {
			having[name]++
		}
	}
	var lacks []string
	for _, name := range sortedKeys(having) {
		if 2*having[name] > others && !g.rasFiles[name] {
			lacks = append(lacks, name)
		}
	}
	return lacks
}

// checkPorts compares each xGMI port with the same port of the node's other GPUs. A port that is down on most of them
// is no sign of a fault, and one alone is a weak one: the driver calls each state of a link but "active" down
// (amdgpu_get_xgmi_link_status in amdgpu_xgmi.c), also that of an idle link which saves power. Hence a warning.
func checkPorts(l *problemList, f *Facts) {
	known := 0
	up := map[int]int{}
	for i := range f.GPUs {
		m := f.GPUs[i].Metrics
		if f.GPUs[i].model.VF || m == nil || len(m.XGMIPorts) == 0 {
			continue
		}
		known++
		for port, state := range m.XGMIPorts {
			if state == XGMIPortUp {
				up[port]++
			}
		}
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.model.VF || g.Metrics == nil {
			continue
		}
		var down []int
		for port, state := range g.Metrics.XGMIPorts {
			if state == XGMIPortDown && 2*up[port] > known {
				down = append(down, port)
			}
		}
		if len(down) > 0 {
			l.warn(v1alpha1.ProblemXGMIPortDown, subject{GPU: g.PCIAddress},
				"xGMI port %s is down here and up on most other GPUs of this node (gpu_metrics; a port's number is "+
					"not a GPU's). Idle links can show this: look again under load, and measure the links of this GPU.",
				joinInts(down, xgmiPorts))
		}
	}
}

// checkMetrics says once for a node that its gpu_metrics are of a revision that this version does not know.
func checkMetrics(l *problemList, f *Facts) {
	count, first := 0, Unread{}
	for _, u := range f.Unread {
		if !u.revision { // the kernel itself may answer "not supported", as to a virtual function
			continue
		}
		if count == 0 {
			first = u
		}
		count++
	}
	if count == 0 {
		return
	}
	l.warn(v1alpha1.ProblemMetricsUnsupported, subject{Path: first.Path},
		"%s, on %d GPUs: temperatures, throttling and xGMI ports are unknown. The host's driver is newer than "+
			"this operator, as it can be newer than the ROCm of a container, whose tools then fail alike: "+
			"update the operator.", first.Message, count)
}
