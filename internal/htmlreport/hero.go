package htmlreport

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// hero is what stands at the top: the state in a word, why in a sentence, and what to do.
type hero struct {
	Tone     tone
	Word     string
	Reason   string
	Sentence string
	Next     string
	// Remarks are about the status itself: it is of an older spec, for example.
	Remarks []string
}

// culpritView is one culprit with its next step.
type culpritView struct {
	Title, Reason, Node string
	Seen, Next, Page    string
	Commands            []string
}

// newHero says how the group is. It says "ready" only where the condition Ready is true of this generation of the spec.
func newHero(group *state.Group) hero {
	s := &group.Status
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	h := hero{Tone: toneWarn, Word: "Not ready"}
	if ready == nil {
		h = hero{Tone: toneMute, Word: "No status yet",
			Sentence: "The manager has not written a status for this CommGroup.", Next: "See whether the manager " +
				"runs: kubectl get deployments -A -l app.kubernetes.io/name=commgroup-manager"}
	} else {
		h.Reason, h.Sentence = ready.Reason, ready.Message
		h.Next = reasons.NextStep(ready.Reason)
		h.Tone, h.Word = readyWord(s, ready)
	}
	if !group.DeletionTimestamp.IsZero() {
		h.Tone, h.Word = toneMute, "Being deleted"
	}
	if s.ObservedGeneration < group.Generation && ready != nil {
		h.Remarks = append(h.Remarks,
			fmt.Sprintf("The status speaks of generation %d of the spec; the present one is %d.",
				s.ObservedGeneration, group.Generation))
		if h.Tone == toneGood {
			h.Tone, h.Word = toneInfo, "Ready for an older spec"
		}
	}
	if s.Members.Stale > 0 {
		h.Remarks = append(h.Remarks,
			fmt.Sprintf("%d nodes were rebooted or changed since they were measured: their results no longer count.",
				s.Members.Stale))
	}
	return h
}

func readyWord(s *state.Status, ready *metav1.Condition) (tone, string) {
	if ready.Status == metav1.ConditionTrue {
		return toneGood, "Ready"
	}
	running := s.Run != nil && s.Run.Phase == v1alpha1.RunPhaseRunning
	switch {
	case running && (len(s.Culprits) == 0 || s.EarlierCulpritsRun() != ""):
		return toneInfo, "Run in progress"
	case running:
		return toneBad, "Run in progress, fault found"
	case s.Run == nil:
		return toneWarn, "Not ready"
	}
	switch s.Run.Verdict {
	case v1alpha1.VerdictFail:
		return toneBad, "Failed"
	case v1alpha1.VerdictError:
		return toneBad, "Could not be measured"
	case v1alpha1.VerdictInconclusive:
		return toneWarn, "Inconclusive"
	case v1alpha1.VerdictSkipped:
		return toneWarn, "Skipped"
	default:
		return toneWarn, "Not ready"
	}
}

// newCulprits gives each culprit what was seen, the next step and commands to look further.
func newCulprits(group *state.Group) []culpritView {
	out := make([]culpritView, 0, len(group.Status.Culprits))
	for i := range group.Status.Culprits {
		c := &group.Status.Culprits[i]
		v := culpritView{Title: explain.Culprit(c), Reason: c.Reason, Node: c.Node}
		seen, next := reasons.Split(c.Message)
		look := "Read the node's status: the commands below."
		if len(c.Nodes()) == 0 {
			look = "Read what was measured over several nodes, below."
		}
		v.Seen, v.Next = reasons.Sentence(seen), next
		v.Next = cmp.Or(v.Next, reasons.Sentence(reasons.NextStep(c.Reason)), look)
		v.Page = report.RunbookPage(c.Reason)
		for _, node := range c.Nodes() {
			v.Commands = append(v.Commands, nodeCommands(group, node)...)
		}
		out = append(out, v)
	}
	return out
}

// moreCulprits counts those after the first, and their nodes; empty where there is none.
func moreCulprits(all []culpritView) string {
	if len(all) < 2 {
		return ""
	}
	nodes := map[string]bool{}
	for _, c := range all[1:] {
		if c.Node != "" {
			nodes[c.Node] = true
		}
	}
	switch len(nodes) {
	case 0:
		return fmt.Sprintf("and %d more", len(all)-1)
	case 1:
		return fmt.Sprintf("and %d more on 1 node", len(all)-1)
	}
	return fmt.Sprintf("and %d more on %d nodes", len(all)-1, len(nodes))
}

// nodeCommands are for copying: they only look.
func nodeCommands(group *state.Group, node string) []string {
	return []string{
		fmt.Sprintf("kubectl commgroup topology %s -n %s", word(node), word(group.Namespace)),
		fmt.Sprintf("kubectl get commtask %s -n %s -o yaml",
			word(v1alpha1.CommTaskName(group.Name, node)), word(group.Namespace)),
		fmt.Sprintf("kubectl describe node %s", word(node)),
	}
}

// word is a name for a shell: names that are no Kubernetes names are quoted, since somebody will paste the line.
func word(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) < 0 && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
