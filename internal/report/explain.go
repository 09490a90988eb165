package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/state"
)

// settingsSection is the part of docs/reasons.md that explains settings; some words stand there and elsewhere.
const settingsSection = "Settings"

// Explain says of each setting why it is in effect or not: what was asked, what stops it, on which nodes and with which
// library build, what the measurement shows, and what to change.
func Explain(w io.Writer, group *state.Group, nodes []Member, settings []v1alpha1.SettingStatus) error {
	for i := range settings {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := explainSetting(w, group, nodes, &settings[i]); err != nil {
			return err
		}
	}
	return nil
}

func explainSetting(w io.Writer, group *state.Group, nodes []Member, s *v1alpha1.SettingStatus) error {
	if _, err := fmt.Fprintln(w, Paint(w, Bold, s.Name)); err != nil {
		return err
	}
	effective := Paint(w, toneOf(string(s.Effective)), string(s.Effective)) + " (" + s.Reason + ")"
	if s.MinBytes != nil || s.MaxBytes != nil {
		effective += ", for messages: " + SizeRange(*s)
	}
	lines := [][2]string{
		{"requested", orUnknown(s.Requested)},
		{"effective", effective},
		{"verified", Paint(w, toneOf(string(s.Verified)), string(s.Verified))},
		{"usable", Paint(w, toneOf(string(s.Usable)), string(s.Usable))},
	}
	seen, next := reasonText(s)
	if s.Reason == v1alpha1.SettingReasonUnknown && libraryKnown(nodes) {
		seen, next = "whether this library lets the setting act is not known",
			"go by what was measured: verified, and worth it"
	}
	lines = append(lines, [2]string{"why", seen}, [2]string{"seen", s.Message})
	var steps []string
	for _, warning := range worstFirst(s.Warnings) {
		e := entry(warning, "Warnings")
		lines = append(lines, [2]string{"warning", warning + ": " + reasons.Plain(e.Seen)})
		steps = append(steps, warning+": "+reasons.Plain(e.Next))
	}
	if next != "" {
		steps = append(steps, next)
	}
	lines = append(lines, [2]string{"library", LibraryBuilds(nodes)})
	for _, text := range disagreeing(s, nodes) {
		lines = append(lines, [2]string{"nodes", text})
	}
	for i := range group.Status.Advice {
		if a := &group.Status.Advice[i]; a.Name == s.Name || strings.HasPrefix(a.Name, s.Name+"/") {
			lines = append(lines,
				[2]string{"worth it", strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(a.Name, s.Name), "/") +
					" " + string(a.State) + ": " + a.Message)})
			if step := adviceStep(s, a); step != "" {
				steps = append(steps, step)
			}
		}
	}
	if len(steps) == 0 {
		steps = []string{"none"}
	}
	for _, step := range steps {
		lines = append(lines, [2]string{"next step", step})
	}
	lines = append(lines, [2]string{"more", "docs/reasons.md, " + settingsSection + ", " + s.Reason})
	for _, l := range lines {
		if strings.TrimSpace(l[1]) == "" {
			continue
		}
		if err := labelled(w, l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

// worstFirst are warnings with those in front that make results wrong without an error.
func worstFirst(warnings []string) []string {
	out := slices.Clone(warnings)
	slices.SortStableFunc(out, func(a, b string) int {
		rank := func(word string) int {
			return slices.Index([]string{v1alpha1.WarningWrongData, v1alpha1.WarningTailHazard,
				v1alpha1.WarningOverflow, v1alpha1.WarningUnderflow}, word)
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out
}

// adviceStep is what to do by the A/B numbers; empty where they ask for nothing, or the setting does not act.
func adviceStep(s *v1alpha1.SettingStatus, a *v1alpha1.SettingAdvice) string {
	acts := s.Effective == v1alpha1.EffectiveInEffect || s.Effective == v1alpha1.EffectivePartial
	const published = "; what publish.choice WhereWorthIt publishes has it so"
	switch {
	case !acts || a.Recommend == "" || a.Recommend == "on" || overMost(a.Recommend, s.MaxBytes):
		return ""
	case a.Recommend != "off":
		return "by the numbers set " + a.Recommend + published
	case strings.HasPrefix(s.Name, "dda."):
		return "by the numbers switch it off: dda.mode Disabled" + published
	}
	return "by the numbers switch it off: name in lowPrecision.collectives only the others" + published
}

// overMost says whether a recommended limit, "name=bytes", lies over what another gate lets the setting have anyhow.
func overMost(recommend string, most *int64) bool {
	_, value, _ := strings.Cut(recommend, "=")
	limit, err := strconv.ParseInt(value, 10, 64)
	return err == nil && most != nil && limit > *most
}

// labelled prints "  label      text" with the text wrapped under itself.
func labelled(w io.Writer, label, text string) error {
	const width = 13
	room := 120
	if c := columns(w); c > width+lastMin {
		room = min(room, c)
	}
	for i, line := range broken(text, room-width) {
		head := ""
		if i == 0 {
			head = label
		}
		if _, err := fmt.Fprintf(w, "  %-*s%s\n", width-2, head, line); err != nil {
			return err
		}
	}
	return nil
}

// entry is the page's row of a word in the section whose title begins so.
func entry(word, section string) reasons.Entry {
	for _, e := range reasons.Find(word) {
		if strings.HasPrefix(e.Section, section) {
			return e
		}
	}
	return reasons.Entry{}
}

// reasonText is what the page says of a setting's reason, and what to do next. A setting that acts but was not
// confirmed has a next step too, and one that acts as asked has none.
func reasonText(s *v1alpha1.SettingStatus) (seen, next string) {
	e := entry(s.Reason, settingsSection)
	seen, next = reasons.Plain(e.Seen), reasons.Plain(e.Next)
	if next == "none" {
		next = ""
	}
	acts := s.Effective == v1alpha1.EffectiveInEffect || s.Effective == v1alpha1.EffectivePartial
	if s.Effective == v1alpha1.EffectivePartial {
		// The page's words are for settings that act on nothing that was measured.
		switch s.Reason {
		case v1alpha1.SettingReasonAboveThreshold:
			seen, next = "it acts on a part of the measured sizes only; the others are above the largest "+
				"size of the feature", "to have it for larger messages, too, raise the limit that is named: "+
				"dda.allReduceFlatMaxBytes or dda.allReduceTreeMaxBytes"
		case v1alpha1.SettingReasonBelowThreshold:
			seen, next = "it acts on a part of the measured sizes only; the others are below the least size "+
				"of the feature", ""
		default:
			seen = "it acts on a part of what was measured only; for the rest: " + seen
		}
	}
	switch {
	case acts && s.Verified == v1alpha1.VerifiedNotConfirmed:
		next = reasons.Plain(entry(v1alpha1.ReasonNotVerified, "Condition SettingsInEffect").Next)
	case s.Effective == v1alpha1.EffectiveInEffect && s.Verified == v1alpha1.VerifiedConfirmed:
		next = ""
	}
	return seen, next
}

// libraryKnown says whether a member's ranks loaded a library that was identified.
func libraryKnown(nodes []Member) bool {
	return slices.ContainsFunc(nodes, func(n Member) bool {
		return n.Status.Run != nil && n.Status.Run.Library != nil &&
			!slices.Contains([]string{"", "unknown"}, n.Status.Run.Library.Flavor)
	})
}

// LibraryBuilds names the builds that the members' ranks loaded, the most frequent first.
func LibraryBuilds(nodes []Member) string {
	counts := map[string]int{}
	for i := range nodes {
		r := nodes[i].Status.Run
		if r == nil || r.Library == nil {
			continue
		}
		text := Library(&nodes[i])
		if r.Library.BuildHash != "" {
			text += ", build " + r.Library.BuildHash
		}
		counts[text]++
	}
	return countedNames(counts, "no member has loaded one yet")
}

// countedNames names values with how many nodes have each, the most frequent first, at most five.
func countedNames(counts map[string]int, none string) string {
	const most = 5
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, nodesWord(counts[name])))
	}
	if more := len(names) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(parts, "; "), none)
}

func nodesWord(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// maxNodesNamed bounds the names of nodes in one line.
const maxNodesNamed = 5

// disagreeing names the nodes on which the setting is otherwise than in the group as a whole.
func disagreeing(s *v1alpha1.SettingStatus, nodes []Member) []string {
	type state struct{ effective, reason, verified, usable string }
	by := map[state][]string{}
	for i := range nodes {
		r := nodes[i].Status.Run
		if r == nil || nodes[i].Spec.Run == nil || r.ID != nodes[i].Spec.Run.ID {
			continue
		}
		for j := range r.Settings {
			if n := &r.Settings[j]; n.Name == s.Name && (n.Effective != s.Effective || n.Reason != s.Reason ||
				n.Verified != s.Verified || n.Usable != s.Usable) {
				k := state{string(n.Effective), n.Reason, string(n.Verified), string(n.Usable)}
				by[k] = append(by[k], nodes[i].Spec.NodeName)
			}
		}
	}
	var out []string
	for k, names := range by {
		slices.Sort(names)
		text := strings.Join(names[:min(len(names), maxNodesNamed)], ", ")
		if more := len(names) - maxNodesNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		text = fmt.Sprintf("otherwise on %s: %s (%s), %s", text, k.effective, k.reason, k.verified)
		if k.usable != "" {
			text += ", " + k.usable
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
