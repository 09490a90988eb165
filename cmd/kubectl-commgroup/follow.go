package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// redrawAfter is how often a live line is drawn again.
	redrawAfter = 2 * time.Second
	// watchAgain is the pause before a watch that ended is started again.
	watchAgain = time.Second
)

// each calls look with the group as it is and after each change, until look says stop, and tick now and then. Without a
// name it does so for all groups of the namespace; look has no group then at the beginning.
func (f *follower) each(ctx context.Context, look func(*state.Group) (stop bool, err error), tick func() error) error {
	ticker := f.options.clock.NewTicker(redrawAfter)
	defer ticker.Stop()
	for {
		of := []client.ListOption{client.InNamespace(f.namespace)}
		if f.name != "" {
			of = append(of,
				client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", f.name)})
		}
		w, err := f.client.Watch(ctx, &v1alpha1.CommGroupList{}, of...)
		if err != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("watching %s: %w", watched(f.namespace, f.name), err))
		}
		stop, err := f.eachOf(ctx, w, look, ticker.C(), tick)
		w.Stop()
		if stop || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.options.clock.After(watchAgain):
		}
	}
}

// eachOf serves one watch until it ends.
func (f *follower) eachOf(ctx context.Context, w watch.Interface, look func(*state.Group) (bool, error),
	ticks <-chan time.Time, tick func() error) (bool, error) {
	var group *state.Group
	if f.name != "" {
		var err error
		if group, err = state.Load(ctx, f.client, client.ObjectKey{Namespace: f.namespace, Name: f.name}); err != nil {
			return false, cmp.Or(ctx.Err(), explained(ctx, f.client, f.namespace, f.name, err))
		}
	}
	if stop, err := look(group); stop || err != nil {
		return stop, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-ticks:
			if tick != nil {
				if err := tick(); err != nil {
					return false, err
				}
			}
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return false, nil // made anew
			}
			stored, ok := event.Object.(*v1alpha1.CommGroup)
			if !ok || f.name != "" && stored.Name != f.name {
				continue
			}
			if event.Type == watch.Deleted && f.name != "" {
				return false, fmt.Errorf("CommGroup %s/%s was deleted", f.namespace, f.name)
			}
			group, err := state.Of(ctx, f.client, stored)
			if err != nil {
				return false,
					cmp.Or(ctx.Err(), fmt.Errorf("reading the CommRuns of %s: %w", watched(f.namespace, f.name), err))
			}
			if stop, err := look(group); stop || err != nil {
				return stop, err
			}
		}
	}
}

// watched names in words what is watched.
func watched(namespace, name string) string {
	switch {
	case name != "":
		return fmt.Sprintf("CommGroup %s/%s", namespace, name)
	case namespace != "":
		return "the CommGroups of namespace " + namespace
	}
	return "all CommGroups"
}

// runOver says whether the group's last run is over and of its present spec, and no other one is asked for.
func runOver(group *state.Group) bool {
	s := &group.Status
	return s.Settled() && s.ObservedGeneration == group.Generation && s.Run.Generation == group.Generation &&
		len(s.Requests) == 0 && !s.RunSuspended
}

// progressLine says where the group's run is.
func progressLine(g *state.Group) string {
	m, run := g.Status.Members, g.Status.Run
	why := "no status yet"
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionRunning); c != nil {
		why = c.Message
		if r := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionAccepted); r != nil &&
			r.Status != "True" {
			why = r.Message
		}
	}
	if run == nil || run.Phase != v1alpha1.RunPhaseRunning {
		return fmt.Sprintf("no run is going on; %d of %d members report: %s", m.Reporting, m.Selected, why)
	}
	done := m.Passed + m.Failed + m.Inconclusive + m.Errored + m.Skipped
	// some may have left the group since
	text := fmt.Sprintf("run %s: %d of %d members done", run.ID, done, max(m.Selected, done+m.Running+m.Pending))
	for _, part := range []struct {
		n    int32
		what string
	}{{m.Passed, "passed"}, {m.Failed, "failed"}, {m.Errored, "errors"}, {m.Inconclusive, "inconclusive"},
		{m.Skipped, "skipped"}, {m.Running, "running"}, {m.Pending, "waiting"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	if s := g.Status.Span; s != nil && s.RunID == run.ID && s.Stage != v1alpha1.StageNodes {
		text += fmt.Sprintf("; over several nodes: stage %s, %d of %d members, %d tests",
			s.Stage, s.Present, s.Members, len(s.Tests))
		if l := s.Localization; l != nil {
			text += fmt.Sprintf(", search for the culprit %s in round %d of at most %d",
				strings.ToLower(string(l.State)), l.Rounds, l.MaxRounds)
		}
	}
	return text
}

// maxSteps is up to how many members a live line reads their steps: of more, each look would cost the API server too
// much.
const maxSteps = 64

// progress shows a run as it goes on: one live line on a terminal, else a line for each change.
type progress struct {
	*follower
	began time.Time
	group *state.Group
	step  string
	last  string
	drawn bool
}

func (p *progress) show(g *state.Group) error {
	p.group = g
	if p.live {
		return p.draw()
	}
	line := progressLine(g)
	if line == p.last {
		return nil
	}
	p.last = line
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// tick draws the live line again, with the step that the members are at.
func (p *progress) tick(ctx context.Context) error {
	if !p.live || p.group == nil {
		return nil
	}
	if run := p.group.Status.Run; run != nil && run.Phase == v1alpha1.RunPhaseRunning &&
		p.group.Status.Members.Selected <= maxSteps {
		var nodes v1alpha1.CommTaskList
		if err := p.client.List(ctx, &nodes, client.InNamespace(p.namespace),
			client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(p.name)}); err == nil {
			p.step = stepOf(run.ID, nodes.Items) // without an answer the line stays as it is
		}
	}
	return p.draw()
}

// stepOf is the step that most members are at, in words.
func stepOf(runID string, nodes []v1alpha1.CommTask) string {
	counts := map[string]int{}
	best, running := "", 0
	for i := range nodes {
		r := nodes[i].Status.Run
		if r == nil || r.ID != runID || r.Phase != v1alpha1.NodeRunRunning || r.Step == "" {
			continue
		}
		running++
		counts[r.Step]++
		if best == "" || counts[r.Step] > counts[best] || counts[r.Step] == counts[best] && r.Step < best {
			best = r.Step
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; %d of %d at %s", counts[best], running, best)
}

func (p *progress) draw() error {
	line := report.Visible(fmt.Sprintf("[%s] %s%s",
		p.options.clock.Since(p.began).Round(time.Second), progressLine(p.group), p.step))
	if c := p.out.Columns; c > 1 {
		line = cut(line, c-1)
	}
	p.drawn = true
	_, err := fmt.Fprint(p.out.Writer, "\r"+line+"\x1b[K")
	return err
}

// clear takes the live line away.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out.Writer, "\r\x1b[K")
		p.drawn = false
	}
}

// cut shortens a line to at most width characters.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	if width < 4 {
		return string([]rune(line)[:max(width, 0)])
	}
	return string([]rune(line)[:width-3]) + "..."
}
