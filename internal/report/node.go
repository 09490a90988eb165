package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// MaxNodes is how many members a list shows, unless all are asked for.
const MaxNodes = 32

// Nodes prints one line for each member: what it is, its mesh, and its verdict alone. The worst come first: whom the
// group's status names, then by verdict, then in the order of ranks. After limit lines, where it is not zero, the
// others are counted.
func Nodes(w io.Writer, group *state.Group, nodes []Member, limit int) error {
	blamed := Blamed(group, nodes)
	sorted := make([]*Member, 0, len(nodes))
	severity := make(map[*Member]int, len(nodes))
	for i := range nodes {
		verdict, _ := Outcome(&nodes[i])
		sorted = append(sorted, &nodes[i])
		if severity[&nodes[i]] = Severity(verdict); blamed[nodes[i].Spec.NodeName] != "" {
			severity[&nodes[i]] = -1
		}
	}
	slices.SortStableFunc(sorted, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(severity[a], severity[b]), cmp.Compare(a.Spec.Ranks.First, b.Spec.Ranks.First),
			cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	shown := sorted
	if limit > 0 {
		shown = sorted[:min(len(sorted), limit)]
	}
	rows := [][]string{{"NODE", "RANKS", "GPUS", "MODEL", "GFX", "MODE", "ROCM", "DRIVER", "XGMI MESH", "LIBRARY",
		"VERDICT", "REASON"}}
	for _, n := range shown {
		rows = append(rows, nodeRow(n, blamed[n.Spec.NodeName]))
	}
	if err := table(w, rows); err != nil || len(shown) == len(sorted) {
		return err
	}
	_, err := fmt.Fprintln(w, wrap(w, fmt.Sprintf("and %d more: %s. --all-members lists them",
		len(sorted)-len(shown), byVerdict(sorted[len(shown):]))))
	return err
}

// byVerdict counts nodes that stand the worst first: "2 Inconclusive, 40 Pass".
func byVerdict(nodes []*Member) string {
	var order []v1alpha1.Verdict
	counts := map[v1alpha1.Verdict]int{}
	for _, n := range nodes {
		verdict, _ := Outcome(n)
		if counts[verdict]++; counts[verdict] == 1 {
			order = append(order, verdict)
		}
	}
	parts := make([]string, 0, len(order))
	for _, v := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], cmp.Or(string(v), "without a verdict")))
	}
	return strings.Join(parts, ", ")
}

// Severity orders verdicts, the worst first; what is not known stands before a pass.
func Severity(v v1alpha1.Verdict) int {
	order := []v1alpha1.Verdict{v1alpha1.VerdictFail, v1alpha1.VerdictError, v1alpha1.VerdictInconclusive,
		v1alpha1.VerdictSkipped, "", v1alpha1.VerdictPass}
	return slices.Index(order, v)
}

// Blamed are the nodes that the group's status names, each with the first reason: what the group's stage found stands
// in no node's own verdict, which is of the node alone. Of very many culprits the list has no room for all: nodes give
// names to the others.
func Blamed(group *state.Group, nodes []Member) map[string]string {
	blamed := map[string]string{}
	for i := range group.Status.Culprits {
		c := &group.Status.Culprits[i]
		for _, name := range c.Nodes() {
			blamed[name] = cmp.Or(blamed[name], c.Reason)
		}
	}
	for _, name := range culpritsByIndex(group, nodes) {
		blamed[name] = cmp.Or(blamed[name], group.Status.Span.Reason, v1alpha1.ReasonCulpritFound)
	}
	return blamed
}

// culpritsByIndex are the names of the members that the group's stage has as culprits by their index.
func culpritsByIndex(group *state.Group, nodes []Member) []string {
	stage := group.Status.Span
	if stage == nil || stage.CulpritSet == "" {
		return nil
	}
	set, _ := parseMembers(stage.CulpritSet)
	var out []string
	for i := range nodes {
		if a := nodes[i].Spec.Session; a != nil && a.RunID == stage.RunID && set.has(int(a.Index)) {
			out = append(out, nodes[i].Spec.NodeName)
		}
	}
	slices.Sort(out)
	return out
}

// MoreCulprits names the culprits of the group's stage that the list of culprits has no room for; empty where it has
// all.
func MoreCulprits(group *state.Group, nodes []Member) string {
	listed := Blamed(&state.Group{Status: state.Status{Culprits: group.Status.Culprits}}, nil)
	more := slices.DeleteFunc(culpritsByIndex(group, nodes), func(name string) bool { return listed[name] != "" })
	if len(more) == 0 {
		return ""
	}
	return fmt.Sprintf("more culprits than the list has room for (members %s in all): %s",
		group.Status.Span.CulpritSet, namesOf(more[:min(len(more), maxIndexes)], len(more)))
}

// Verdict is a node's verdict and reason in words, with what the group's status blames it for where it passed alone.
func Verdict(n *Member, blamed string) (verdict, reason string) {
	v, reason := Outcome(n)
	if v == v1alpha1.VerdictPass && blamed != "" {
		return "Pass alone", "culprit: " + blamed
	}
	return orUnknown(string(v)), orUnknown(reason)
}

func nodeRow(n *Member, blamed string) []string {
	h := n.Hardware()
	verdict, reason := Verdict(n, blamed)
	return []string{n.Spec.NodeName, n.Spec.Ranks.Summary, orUnknown(h.GPUs), orUnknown(h.Model), orUnknown(h.GFX),
		orUnknown(h.Mode), orUnknown(h.ROCm), orUnknown(h.Driver), orUnknown(h.Mesh), Library(n), verdict, reason}
}

// Outcome is a node's verdict and reason in the run that it is assigned: the agent's report, or the controller's
// closure where there is none. Empty while the run goes on.
func Outcome(n *Member) (v1alpha1.Verdict, string) {
	run := n.Spec.Run
	if run == nil {
		return "", ""
	}
	if run.Stale != nil {
		return "", "stale: " + run.Stale.Reason // the node is no longer what was measured
	}
	if r := n.Status.Run; r != nil && r.ID == run.ID && r.Phase == v1alpha1.NodeRunFinished {
		return r.Verdict, r.Reason
	}
	if run.Closed != nil {
		return run.Closed.Verdict, run.Closed.Reason
	}
	if r := n.Status.Run; r != nil && r.ID == run.ID {
		return "", "running: " + r.Step
	}
	return "", "waiting"
}

// Driver is the version of the kernel driver, or its kind where it has none.
func Driver(d v1alpha1.DriverFacts) string {
	if d.Version != "" {
		return d.Version
	}
	return d.Kind
}

// MeshWords is the state of a mesh with its count of links.
func MeshWords(x v1alpha1.XGMIFacts) string {
	if x.ExpectedLinks == nil {
		return fmt.Sprintf("%s (%d links)", x.Mesh, x.Links)
	}
	return fmt.Sprintf("%s (%d/%d links)", x.Mesh, x.Links, *x.ExpectedLinks)
}

// Library is the communication library that a node's ranks loaded.
func Library(n *Member) string {
	if n.Status.Run == nil || n.Status.Run.Library == nil {
		return unknown
	}
	l := n.Status.Run.Library
	if l.Imitates != "" {
		return fmt.Sprintf("%s %s (imitates %s)", l.Flavor, l.Version, l.Imitates)
	}
	return l.Flavor + " " + l.Version
}

// nodePreconditions prints what the last run's ranks would need and did not find on the node.
func nodePreconditions(w io.Writer, n *Member) error {
	if n.Status.Run == nil {
		return nil
	}
	for _, p := range n.Status.Run.Preconditions {
		subject := ""
		if p.Rank != nil {
			subject = fmt.Sprintf(" (rank %d)", *p.Rank)
		}
		if _, err := fmt.Fprintln(w,
			wrap(w, fmt.Sprintf("precondition %s %s%s: %s", p.Name, p.State, subject, p.Message))); err != nil {
			return err
		}
	}
	return nil
}

// HasPreconditions says whether any node lists preconditions that were not met.
func HasPreconditions(nodes []Member) bool {
	return slices.ContainsFunc(nodes, func(n Member) bool {
		return n.Status.Run != nil && len(n.Status.Run.Preconditions) > 0
	})
}

// Preconditions prints what was not met on the members, one line for each precondition and state, the worst first.
func Preconditions(w io.Writer, nodes []Member) error {
	type line struct {
		first v1alpha1.PreconditionStatus
		node  string
		nodes map[string]bool
	}
	var lines []*line
	for i := range nodes {
		if nodes[i].Status.Run == nil {
			continue
		}
		name := nodes[i].Spec.NodeName
		for _, p := range nodes[i].Status.Run.Preconditions {
			at := slices.IndexFunc(lines, func(l *line) bool {
				return l.first.Name == p.Name && l.first.State == p.State
			})
			if at < 0 {
				at = len(lines)
				lines = append(lines, &line{first: p, node: name, nodes: map[string]bool{}})
			}
			lines[at].nodes[name] = true
		}
	}
	severity := []string{"Failed", "Unknown", "Warning"}
	slices.SortStableFunc(lines, func(a, b *line) int {
		return cmp.Compare(slices.Index(severity, a.first.State), slices.Index(severity, b.first.State))
	})
	rows := [][]string{{"PRECONDITION", "STATE", "NODES", "FOR EXAMPLE"}}
	for _, l := range lines {
		rows = append(rows, []string{l.first.Name, l.first.State, fmt.Sprint(len(l.nodes)), l.node})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, wrap(w, l.first.Name+" on "+l.node+": "+l.first.Message)); err != nil {
			return err
		}
	}
	return nil
}

// HasRASVerdicts says whether the library's RAS service was asked on any node and answered.
func HasRASVerdicts(nodes []Member) bool {
	return slices.ContainsFunc(nodes, func(n Member) bool {
		return n.Status.Run != nil && n.Status.Run.RASVerdict != ""
	})
}

// RASVerdicts prints what the library's RAS service said on each node whose ranks were late.
func RASVerdicts(w io.Writer, nodes []Member) error {
	for i := range nodes {
		if run := nodes[i].Status.Run; run != nil && run.RASVerdict != "" {
			if _, err := fmt.Fprintln(w, wrap(w, nodes[i].Spec.NodeName+": "+run.RASVerdict)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Problems prints what is wrong with a node or could not be read.
func Problems(w io.Writer, problems []v1alpha1.Problem) error {
	for _, p := range problems {
		subject := p.Subject()
		if subject != "" {
			subject = " " + subject
		}
		if _, err := fmt.Fprintln(w,
			wrap(w, fmt.Sprintf("%s %s%s: %s", p.Severity, p.Code, subject, p.Message))); err != nil {
			return err
		}
	}
	return nil
}
