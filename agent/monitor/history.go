package monitor

import (
	"fmt"
	"slices"
	"time"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// holdTime is how long something that happened, rather than is, stays among the problems.
const holdTime = 15 * time.Minute

// history is what the monitor remembers of the node in this boot. With the process it forgets all but what the CommNode
// holds (see earlier); what is wrong in itself, discover finds without it.
type history struct {
	started bool
	boot    seen[string]
	driver  driver

	gpus  sightings[string]
	model map[string]string
	links sightings[link]
	ports sightings[port]
	dead  map[port]bool // ports that carried nothing while others of their GPU did

	errors   counters[errorKey]
	metrics  map[string]*discover.Metrics
	modes    map[string]*mode
	firmware map[firmwareKey]*seen[uint64]

	events events
}

func newHistory() history {
	return history{started: true, gpus: sightings[string]{}, model: map[string]string{},
		links: sightings[link]{}, ports: sightings[port]{}, dead: map[port]bool{}, errors: counters[errorKey]{},
		metrics: map[string]*discover.Metrics{}, modes: map[string]*mode{}, firmware: map[firmwareKey]*seen[uint64]{}}
}

// look compares the facts with what was seen before. It returns the problems that this adds to the facts' own, and the
// changes since the last look, for the log. A problem of the facts that it knows more of, it takes out of them.
func (h *history) look(f *discover.Facts, now time.Time) (problems, changes []v1alpha1.Problem) {
	l := &look{history: h, facts: f, now: now}
	if was, rebooted := h.boot.look(stated(f.BootID)); rebooted {
		l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemNodeRebooted, subject{},
			"The node was rebooted: boot id was %s, is %s.", was, f.BootID)
		h.started = false
	}
	if !h.started {
		boot := h.boot
		*h = newHistory()
		h.boot = boot
	}
	l.checkDriver()
	l.lostGPUs()
	l.lostLinks()
	l.lostPorts()
	for i := range f.GPUs {
		g := &f.GPUs[i]
		l.countErrors(g)
		l.throttling(g)
		if g.Metrics != nil {
			h.metrics[g.PCIAddress] = g.Metrics
		}
	}
	l.repartition()
	l.newFirmware()
	h.events.expire(now)
	return append(l.found, h.events.problems()...), l.changes
}

// look is one comparison of the facts with the history.
type look struct {
	*history
	facts          *discover.Facts
	now            time.Time
	found, changes []v1alpha1.Problem
}

// subject is a problem that says only what it is about.
type subject = v1alpha1.Problem

// note makes a change for the log.
func (l *look) note(severity, code string, about subject, format string, args ...any) v1alpha1.Problem {
	about.Severity, about.Code, about.Message = severity, code, fmt.Sprintf(format, args...)
	l.changes = append(l.changes, about)
	return about
}

// happened notes a Warning, and holds it as a problem with its time.
func (l *look) happened(rank int, code string, about subject, format string, args ...any) {
	p := l.note(v1alpha1.SeverityWarning, code, about, format, args...)
	p.Message = "At " + stamp(l.now) + ": " + p.Message
	l.events.hold(p, rank, l.now)
}

// named says that discover has a problem of this subject already, which knows more than that it was there before.
func (l *look) named(about subject) bool {
	return slices.ContainsFunc(l.facts.Problems, func(p v1alpha1.Problem) bool {
		return p.Subject() == about.Subject()
	})
}

// problems are the held ones. More than two of a code become one, so that a node whose every GPU is hot still has room
// for what else is wrong.
func (e events) problems() []v1alpha1.Problem {
	groups := map[string][]event{}
	var order []string
	for _, held := range e {
		code := held.problem.Code
		if groups[code] == nil {
			order = append(order, code)
		}
		groups[code] = append(groups[code], held)
	}
	var list []v1alpha1.Problem
	for _, code := range order {
		group := groups[code]
		slices.SortStableFunc(group, func(a, b event) int { return b.rank - a.rank })
		alike := make([]v1alpha1.Problem, len(group))
		for i, held := range group {
			alike[i] = held.problem
		}
		list = append(list, foldMany(alike)...)
	}
	return list
}

// foldMany makes one problem of more than two alike, the worst first: it has the message of the worst, and the GPUs of
// all. Which of them lost links join, the message says as far as it fits.
func foldMany(alike []v1alpha1.Problem) []v1alpha1.Problem {
	if len(alike) <= 2 {
		return alike
	}
	worst := &alike[0]
	var gpus, links []string
	for i := range alike {
		a := &alike[i]
		if a.GPU != "" {
			gpus = append(gpus, a.GPU)
		}
		if a.PeerGPU != "" {
			gpus, links = append(gpus, a.PeerGPU), append(links, a.Subject())
		}
	}
	slices.Sort(gpus)
	which := worst.Subject()
	if len(links) > 0 {
		which = someLinks(links)
	}
	if which != "" {
		which = "; " + which
	}
	return []v1alpha1.Problem{{Severity: worst.Severity, Code: worst.Code, GPUs: slices.Compact(gpus),
		Message: fmt.Sprintf("%d of this kind%s: %s", len(alike), which, worst.Message)}}
}

// someLinks names links, in order and as far as they fit.
func someLinks(links []string) string {
	const most = 120 // characters
	slices.Sort(links)
	text := links[0]
	for _, link := range links[1:] {
		if len(text)+len(link) >= most {
			return text + " ..."
		}
		text += " " + link
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
