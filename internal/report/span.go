package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// Span prints the group's stage of the last run: where it is, what it says, how the search went, each test, and the
// results of the group and of each dimension of the mesh. nodes give the names to the indexes in the sets of members;
// without a node's CommTask its name is left out. It prints nothing where the group has no such stage.
func Span(w io.Writer, group *state.Group, nodes []Member) error {
	s := group.Status.Span
	if s == nil {
		return nil
	}
	head := fmt.Sprintf("run %s, stage %s", s.RunID, s.Stage)
	if s.Members > 0 { // they are fixed once the nodes have passed alone
		head += fmt.Sprintf(": %d of %d members", s.Present, s.Members)
	}
	if s.Transport != "" {
		head += ", transport " + s.Transport
	}
	if s.Verdict != "" {
		head += fmt.Sprintf("; %s (%s)", s.Verdict, orUnknown(s.Reason))
	}
	lines := []string{head}
	for _, text := range []string{SpanMessage(group), s.Network} {
		if text != "" {
			lines = append(lines, wrap(w, text))
		}
	}
	if len(s.Left) > 0 || s.LeftSet != "" {
		lines = append(lines, wrap(w, fmt.Sprintf("went on without %s (index %s)",
			orUnknown(strings.Join(s.Left, ", ")), orUnknown(s.LeftSet))))
	}
	if text := MoreCulprits(group, nodes); text != "" {
		lines = append(lines, wrap(w, text))
	}
	if l := s.Localization; l != nil {
		lines = append(lines, Sizes(search(l)))
		if text := SearchMessage(s); text != "" {
			lines = append(lines, wrap(w, text))
		}
	}
	if names := Indexes(group, nodes); names != "" {
		lines = append(lines, wrap(w, "members by index: "+names))
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if err := spanTests(w, TestLines(group, nodes)); err != nil {
		return err
	}
	return spanResults(w, s.Results)
}

// SpanMessage is what the stage says of its outcome; where a condition has all of it, only which one.
func SpanMessage(group *state.Group) string {
	message := group.Status.Span.Message
	if message == "" {
		return ""
	}
	for _, c := range OrderedConditions(group) {
		if strings.Contains(c.Message, message) {
			return "What came of it is in the condition " + c.Type + "."
		}
	}
	return message
}

// SearchMessage is what the search for a culprit says, without the sentences that the stage's own message has already.
func SearchMessage(s *v1alpha1.SpanStatus) string {
	if s.Localization == nil {
		return ""
	}
	var kept []string
	for _, sentence := range sentences(s.Localization.Message) {
		confirmed, also := strings.CutPrefix(sentence, "Confirmed: ")
		if !strings.Contains(s.Message, strings.TrimSuffix(confirmed, ".")) {
			kept = append(kept, sentence)
		} else if also {
			kept = append(kept, "Confirmed.")
		}
	}
	return strings.Join(kept, " ")
}

// sentences splits text behind each full stop that a blank and a capital follow.
func sentences(text string) []string {
	var out []string
	begin := 0
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '.' && text[i+1] == ' ' && text[i+2] >= 'A' && text[i+2] <= 'Z' {
			out = append(out, text[begin:i+1])
			begin = i + 2
		}
	}
	if begin < len(text) {
		out = append(out, text[begin:])
	}
	return out
}

// maxIndexes bounds the list of names.
const maxIndexes = 32

// Indexes names the members of a group's stage, at most 32: "0 node-a, 1 node-b". Whom the status names and whom the
// stage went on without stand in the list whatever their index.
func Indexes(group *state.Group, nodes []Member) string {
	stage := group.Status.Span
	named := Blamed(group, nodes)
	for _, name := range stage.Left {
		named[name] = "left"
	}
	var members []*Member
	for i := range nodes {
		if a := nodes[i].Spec.Session; a != nil && a.RunID == stage.RunID {
			members = append(members, &nodes[i])
		}
	}
	byIndex := func(a, b *Member) int { return cmp.Compare(a.Spec.Session.Index, b.Spec.Session.Index) }
	slices.SortFunc(members, func(a, b *Member) int {
		if a, b := named[a.Spec.NodeName] != "", named[b.Spec.NodeName] != ""; a != b {
			if a {
				return -1
			}
			return 1
		}
		return byIndex(a, b)
	})
	shown := members[:min(len(members), maxIndexes)]
	slices.SortFunc(shown, byIndex)
	parts := make([]string, 0, len(shown))
	for _, n := range shown {
		parts = append(parts, fmt.Sprintf("%d %s", n.Spec.Session.Index, n.Spec.NodeName))
	}
	if more := len(members) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more (spec.session.index of each CommTask)", more))
	}
	return strings.Join(parts, ", ")
}

func search(l *v1alpha1.LocalizationStatus) string {
	text := fmt.Sprintf("search for the culprit of %s: %s after %s in %d of at most %s", StepName(l.Step), l.State,
		units.Counted(int64(l.Tests), "test"), l.Rounds, units.Counted(int64(l.MaxRounds), "round"))
	if l.Seconds != nil {
		text += fmt.Sprintf(", %s", time.Duration(*l.Seconds)*time.Second)
	}
	return text
}

// SpanResults prints the figures of the group and of each dimension of the mesh, where the run has any.
func SpanResults(w io.Writer, group *state.Group) error {
	if group.Status.Span == nil || len(group.Status.Span.Results) == 0 {
		return nil
	}
	if err := Title(w,
		"Over several nodes, run "+group.Status.Span.RunID+" (the tables above are of each node alone)"); err != nil {
		return err
	}
	return spanResults(w, group.Status.Span.Results)
}

// StepName names a step, with sizes as users read them; unknown where there is none.
func StepName(s *v1alpha1.Step) string {
	if s == nil {
		return unknown
	}
	return s.String()
}
