package supportbundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/reasons"
)

// explained says what is in each place of a bundle.
var explained = []struct{ path, what string }{
	{"summary.md", "this page"},
	{"report.html", "the group as a page for a browser; no network is needed"},
	{"commgroup.yaml", "the CommGroup: spec and status"},
	{"members.csv", "all members in short"},
	{"commtasks/", "what each member has to do and has reported, the worst where there are many"},
	{"commnodes/", "what their monitors say of the same nodes"},
	{"runs/", "the runs that the operator keeps, the last one among them: what each measured, and what came of it"},
	{"events.txt", "events of the group, its nodes and pods"},
	{"pods/", "run pods and monitors: spec and status, and the end of each container's log"},
	{"manager/", "the manager's Deployment, pods and logs, who leads, and the monitors' DaemonSet"},
	{"nodes/", "Nodes: labels, taints, conditions and resources; no addresses and no annotations"},
	{"settings.yaml", "the ConfigMap that was published for jobs"},
	{"cluster.yaml", "versions of the API server, the CRDs and the program that made this"},
}

// caseWords tell how the group is: condition Ready, the run's verdict, culprits and what to do, and by whom it was
// written.
func (g *gatherer) caseWords() string {
	if g.group == nil {
		return "The CommGroup could not be read.\n"
	}
	var s strings.Builder
	status := &g.group.Status
	next := ""
	if ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready == nil {
		s.WriteString("- Ready: no status was written yet\n")
	} else {
		fmt.Fprintf(&s, "- Ready: %s (%s) since %s: %s\n",
			ready.Status, ready.Reason, when(ready.LastTransitionTime.Time), oneLine(ready.Message))
		next = reasons.NextStep(ready.Reason)
	}
	if run := status.Run; run != nil {
		fmt.Fprintf(&s, "- Run %s: %s %s, started %s\n", run.ID, run.Phase, run.Verdict, when(run.StartTime.Time))
	} else {
		s.WriteString("- Run: none yet\n")
	}
	const most = 5
	word := "Culprit"
	if earlier := status.EarlierCulpritsRun(); earlier != "" {
		word += " of run " + earlier
	}
	for i := range status.Culprits[:min(len(status.Culprits), most)] {
		c := &status.Culprits[i]
		fmt.Fprintf(&s, "- %s: %s (%s): %s\n", word, explain.Culprit(c), c.Reason, oneLine(c.Message))
		if i == 0 {
			_, own := reasons.Split(c.Message) // it knows where the fault showed; the reason's page speaks of all such
			next = cmp.Or(own, reasons.NextStep(c.Reason), next)
		}
	}
	if more := len(status.Culprits) - most; more > 0 {
		fmt.Fprintf(&s, "- and %d more culprits: report.html\n", more)
	}
	if next != "" {
		fmt.Fprintf(&s, "- Next step: %s\n", oneLine(next))
	}
	return s.String()
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func oneLine(s string) string { return scrub(strings.Join(strings.Fields(s), " ")) }

// summary is the page that a reader opens first.
func summary(b *Bundle, o Options, words string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# Support bundle of CommGroup %s/%s\n\nMade %s by kubectl commgroup %s.\n\n",
		o.Namespace, o.Name, o.Now.UTC().Format("2006-01-02 15:04:05 UTC"), o.Version)
	s.WriteString("## The case\n\n" + words + "\n")
	if len(b.Missing) == 0 {
		s.WriteString("Everything that is there was gathered.\n")
	} else {
		fmt.Fprintf(&s, "## What could not be gathered (%d)\n\n| part | what | why |\n|---|---|---|\n", len(b.Missing))
		for _, m := range b.Missing {
			fmt.Fprintf(&s, "| %s | %s | %s |\n", cellText(m.Path), cellText(m.What), cellText(m.Why))
		}
	}
	for _, n := range b.Notes {
		fmt.Fprintf(&s, "\n- %s", n)
	}
	s.WriteString("\n## What is in it\n\n| part | what |\n|---|---|\n")
	for _, e := range explained {
		if e.path != "summary.md" &&
			!slices.ContainsFunc(b.Files, func(f File) bool { return strings.HasPrefix(f.Path, e.path) }) {
			continue
		}
		fmt.Fprintf(&s, "| `%s` | %s |\n", e.path, e.what)
	}
	s.WriteString("\n## What was taken out\n\nNo Secret was read. Values of environment variables are " + redacted +
		" but for those of the library, the ROCm runtime and the operator; so are names of pull secrets and whatever " +
		"looks like a token, key or password in any text. Look through it all the same before you pass it on: " +
		"names of nodes, namespaces and images are in it.\n\n## Files\n\n")
	for _, f := range b.Files {
		fmt.Fprintf(&s, "- %s (%d bytes)\n", f.Path, len(f.Data))
	}
	return s.String()
}

// cellText fits into a table's cell.
func cellText(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
