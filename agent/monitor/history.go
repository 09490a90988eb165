package monitor

import (
	"fmt"
	"sort"
	"time"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// holdTime is how long something that happened, rather than is, stays among the problems.
const holdTime = 15 * time.Minute

// history is what the monitor remembers of the node: what was there in this boot, and error counters. It forgets with
// the process; what is wrong in itself, discover finds without it.
type history struct {
	started  bool
	boot     string
	driver   string
	gpus     map[string]seen
	links    map[link]bool
	counters map[string]counter
	held     []held
}

type seen struct {
	model string
	last  time.Time
	lost  bool
}

type link struct{ from, to string }

type counter struct {
	uncorrectable, correctable *uint64
	risen                      uint64
	since, last                time.Time
}

// held is an event that stays a problem for a while.
type held struct {
	problem v1alpha1.Problem
	until   time.Time
}

// look compares the facts with what was seen before. It returns the problems that this adds to the facts' own, and the
// changes since the last look, for the log.
func (h *history) look(f *discover.Facts, now time.Time) (problems, changes []v1alpha1.Problem) {
	note := func(severity, code, subject, format string, args ...any) v1alpha1.Problem {
		p := v1alpha1.Problem{Severity: severity, Code: code, Subject: subject, Message: fmt.Sprintf(format, args...)}
		changes = append(changes, p)
		return p
	}
	driver := f.Driver.Kind + " " + f.Driver.Version + f.Driver.SrcVersion
	switch {
	case !h.started:
		h.reset(f, driver)
	case f.BootID != "" && h.boot != "" && f.BootID != h.boot:
		note(v1alpha1.SeverityWarning, v1alpha1.ProblemNodeRebooted, "boot", "The node was rebooted: boot id was %s, is %s.", h.boot, f.BootID)
		h.reset(f, driver)
	case f.Driver.Kind != discover.DriverUnknown && driver != h.driver:
		p := note(v1alpha1.SeverityWarning, v1alpha1.ProblemDriverChanged, "amdgpu",
			"The driver changed without a reboot: was %q, is %q. Results of earlier runs are of the other driver; run again.", h.driver, driver)
		h.held = append(h.held, held{p, now.Add(holdTime)})
		h.driver, h.counters = driver, map[string]counter{}
	}
	// With GPUs hidden or unreadable, one that is not in sight is not known to be gone.
	certain := len(f.HiddenNodes) == 0 && len(f.UnreadableNodes) == 0 && f.GenerationStable
	known := map[string]bool{}
	for i := range f.Problems {
		known[f.Problems[i].Subject] = true
	}
	present := map[string]bool{}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		present[g.PCIAddress] = true
		if s, ok := h.gpus[g.PCIAddress]; ok && s.lost {
			note(v1alpha1.SeverityWarning, v1alpha1.ProblemGPULost, g.PCIAddress, "The GPU is back; it was last seen at %s.", stamp(s.last))
		}
		h.gpus[g.PCIAddress] = seen{model: g.Model, last: now}
		problems = append(problems, h.count(g, now, note)...)
	}
	if certain {
		problems = append(problems, h.lostGPUs(present, known, note)...)
		problems = append(problems, h.lostLinks(f, present, known, note)...)
	}
	kept := h.held[:0]
	for _, e := range h.held {
		if now.Before(e.until) {
			kept = append(kept, e)
			problems = append(problems, e.problem)
		}
	}
	h.held = kept
	return problems, changes
}

type noteFunc func(severity, code, subject, format string, args ...any) v1alpha1.Problem

func (h *history) reset(f *discover.Facts, driver string) {
	*h = history{started: true, boot: f.BootID, driver: driver, gpus: map[string]seen{}, links: map[link]bool{},
		counters: map[string]counter{}}
}

// lostGPUs are GPUs that were there in this boot and are not now.
func (h *history) lostGPUs(present, known map[string]bool, note noteFunc) []v1alpha1.Problem {
	var problems []v1alpha1.Problem
	for _, address := range sortedKeys(h.gpus) {
		s := h.gpus[address]
		if present[address] {
			continue
		}
		p := v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemGPULost, Subject: address,
			Message: fmt.Sprintf("This %s was here at %s and is gone from KFD. Look for its address in the kernel log; drain the node and power-cycle it.", s.model, stamp(s.last))}
		if !s.lost {
			note(p.Severity, p.Code, p.Subject, "%s", p.Message)
			s.lost = true
			h.gpus[address] = s
		}
		if !known[address] {
			problems = append(problems, p)
		}
	}
	return problems
}

// lostLinks are xGMI links between present GPUs that were there in this boot and are not now.
func (h *history) lostLinks(f *discover.Facts, present, known map[string]bool, note noteFunc) []v1alpha1.Problem {
	now := map[link]bool{}
	for i := range f.Mesh.Pairs {
		for j, l := range f.Mesh.Pairs[i] {
			if l != nil && l.Type == discover.LinkXGMI {
				now[link{f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress}] = true
			}
		}
	}
	var lost []link
	for l, up := range h.links {
		switch {
		case now[l]:
			if !up {
				note(v1alpha1.SeverityWarning, v1alpha1.ProblemLinkLost, l.from+"->"+l.to, "The xGMI link is back.")
				h.links[l] = true
			}
		case present[l.from] && present[l.to]:
			lost = append(lost, l)
		}
	}
	for l := range now {
		if _, ok := h.links[l]; !ok {
			h.links[l] = true
		}
	}
	sort.Slice(lost, func(i, j int) bool {
		if lost[i].from != lost[j].from {
			return lost[i].from < lost[j].from
		}
		return lost[i].to < lost[j].to
	})
	var problems []v1alpha1.Problem
	told := map[string]bool{}
	for _, l := range lost {
		pair := l.from + "<->" + l.to
		if l.to < l.from {
			pair = l.to + "<->" + l.from
		}
		if h.links[l] {
			note(v1alpha1.SeverityError, v1alpha1.ProblemLinkLost, l.from+"->"+l.to, "The xGMI link is gone; it was there earlier in this boot.")
			h.links[l] = false
		}
		if !known[pair] && !told[pair] {
			told[pair] = true
			problems = append(problems, v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemLinkLost, Subject: pair,
				Message: "The xGMI link between these GPUs was there earlier in this boot and is gone. Look for XGMI in the kernel log; power-cycle the node."})
		}
	}
	return problems
}

// count follows a GPU's xGMI error counters. A counter that falls was reset with the driver.
func (h *history) count(g *discover.GPU, now time.Time, note noteFunc) []v1alpha1.Problem {
	c := h.counters[g.PCIAddress]
	if ue := g.XGMIUncorrectableErrors; ue != nil {
		if c.uncorrectable != nil && *ue > *c.uncorrectable {
			note(v1alpha1.SeverityError, v1alpha1.ProblemXGMIUncorrectableErrors, g.PCIAddress,
				"%d more uncorrectable xGMI errors, %d since the driver was loaded.", *ue-*c.uncorrectable, *ue)
		}
		c.uncorrectable = ue
	}
	if ce := g.XGMICorrectableErrors; ce != nil {
		if c.correctable != nil && *ce > *c.correctable {
			if c.risen == 0 || now.Sub(c.last) >= holdTime {
				c.risen, c.since = 0, now
			}
			c.risen += *ce - *c.correctable
			c.last = now
			note(v1alpha1.SeverityWarning, v1alpha1.ProblemXGMICorrectableErrors, g.PCIAddress,
				"%d more correctable xGMI errors, %d since the driver was loaded.", *ce-*c.correctable, *ce)
		}
		c.correctable = ce
	}
	h.counters[g.PCIAddress] = c
	if c.risen == 0 || now.Sub(c.last) >= holdTime {
		return nil
	}
	return []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemXGMICorrectableErrors, Subject: g.PCIAddress,
		Message: fmt.Sprintf("%d correctable xGMI errors since %s, and rising. A link of this GPU is marginal: measure its links, and reseat or replace it if they are slow.", c.risen, stamp(c.since))}}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
