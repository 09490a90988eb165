package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// Groups prints one line for each group; namespaced puts the namespace first.
func Groups(w io.Writer, groups []state.Group, namespaced bool) error {
	rows := [][]string{{"NAME", "READY", "REASON", "MEMBERS", "VERDICT", "EFFECTIVE", "BUS GB/s", "GROUP GB/s",
		"LAST RUN", "ORIGIN", "CULPRIT"}}
	if namespaced {
		rows[0] = append([]string{"NAMESPACE"}, rows[0]...)
	}
	for i := range groups {
		g := &groups[i]
		s := &g.Status
		status, reason, verdict, bandwidth, overNodes, last, culprit := unknown, unknown, unknown, unknown,
			unknown, unknown, unknown
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil {
			status, reason = string(c.Status), c.Reason
		}
		if r := s.Run; r != nil {
			verdict = cmp.Or(string(r.Verdict), string(r.Phase))
			if r.FinishTime != nil {
				last = r.FinishTime.UTC().Format("2006-01-02 15:04 UTC")
			}
		}
		if s.Headline != nil {
			bandwidth, overNodes = units.GBps(s.Headline.BusBandwidthMBps), GroupHeadline(s)
		}
		if len(s.Culprits) > 0 {
			culprit = explain.Culprit(&s.Culprits[0])
			if earlier := s.EarlierCulpritsRun(); earlier != "" {
				culprit += " (run " + earlier + ")"
			}
		}
		row := []string{g.Name, status, reason, orUnknown(s.Members.Summary), verdict, orUnknown(s.Effective),
			bandwidth, overNodes, last, orUnknown(string(s.Origin)), culprit}
		if namespaced {
			row = append([]string{g.Namespace}, row...)
		}
		rows = append(rows, row)
	}
	return table(w, rows)
}

// GroupHeadline is what one communicator over the nodes reached, in GB/s; with the nodes where they were not all
// members.
func GroupHeadline(s *state.Status) string {
	if s.Headline == nil || s.Headline.GroupBusBandwidthMBps == nil {
		return unknown
	}
	text := units.GBps(*s.Headline.GroupBusBandwidthMBps)
	if n := s.Headline.GroupNodes; n > 0 && n != s.Members.Selected {
		text += fmt.Sprintf(" on %d nodes", n)
	}
	return text
}

const (
	// noticeAfter is how long a manager may take to see a change before its silence is remarked.
	noticeAfter = 30 * time.Second
	// cleanupAfter is when a manager has released a group that is being deleted: it waits two minutes at most.
	cleanupAfter = 150 * time.Second
	// FindManager is the next step where the manager is silent.
	FindManager = "is the manager running? kubectl get pods -A -l app.kubernetes.io/name=commgroup-manager"
)

// Remarks say what a group's status alone does not: that it is of an older spec, that there is none, or that nobody
// ends its deletion, or that the nodes' reports ran out and nobody saw it. now is the time by about the API server's
// clock; nodes may be left out.
func Remarks(g *state.Group, nodes []Member, now time.Time) []string {
	age := func(t metav1.Time) time.Duration { return now.Sub(t.Time).Round(time.Second) }
	s := &g.Status
	if d := g.DeletionTimestamp; d != nil {
		text := fmt.Sprintf("being deleted since %s (%s ago)", d.UTC().Format("2006-01-02 15:04:05 UTC"), age(*d))
		if len(g.Finalizers) > 0 {
			text += ", waiting for " + strings.Join(g.Finalizers, ", ")
			if age(*d) > cleanupAfter {
				text += fmt.Sprintf("; a manager would have released it by now: %s. "+
					"With none to come back, remove the finalizer by hand and delete what has the label %s=%s",
					FindManager, v1alpha1.LabelGroupUID, g.UID)
			}
		}
		return []string{text}
	}
	var out []string
	switch {
	case len(s.Conditions) == 0 && age(g.CreationTimestamp) > noticeAfter:
		out = append(out, fmt.Sprintf("no status yet, %s after it was made: %s", age(g.CreationTimestamp), FindManager))
	case len(s.Conditions) == 0:
		out = append(out, "no status yet: the manager has not come to it")
	case s.ObservedGeneration < g.Generation:
		out = append(out, fmt.Sprintf("the status is of generation %d and the spec has generation %d: "+
			"the manager has not come to it; if that stays so, %s", s.ObservedGeneration, g.Generation, FindManager))
	}
	if s.Members.Stale > 0 {
		out = append(out, fmt.Sprintf("the results of %s no longer count: rebooted or changed after they were measured",
			nodesWord(int(s.Members.Stale))))
	}
	if n := ranOut(nodes, now); n > 0 && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAgentsReporting) {
		out = append(out, fmt.Sprintf("the reports of %s have run out, and the status does not say so: %s",
			nodesWord(n), FindManager))
	}
	return out
}

// ranOut counts the nodes whose facts hold no longer, with a minute for clocks and for the manager to see it.
func ranOut(nodes []Member, now time.Time) int {
	count := 0
	for i := range nodes {
		f := nodes[i].Facts()
		if f != nil && now.After(f.ObservedTime.Add(time.Duration(f.ValidForSeconds)*time.Second+time.Minute)) {
			count++
		}
	}
	return count
}

// RemarkLines prints the remarks on a group.
func RemarkLines(w io.Writer, g *state.Group, nodes []Member, now time.Time) error {
	for _, text := range Remarks(g, nodes, now) {
		if err := Note(w, text); err != nil {
			return err
		}
	}
	return nil
}

// Note prints a remark on its own line; nothing where it is empty.
func Note(w io.Writer, text string) error {
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, Paint(w, Warn, "NOTE: "+text))
	return err
}
