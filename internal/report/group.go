package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// SimulatedNotice is printed above everything that came from the simulator.
const SimulatedNotice = "SIMULATED: no GPU was used. Facts and numbers come from the simulator, not from hardware."

// Notice prints the simulation notice where the group's origin calls for it.
func Notice(w io.Writer, group *state.Group) error {
	if group.Status.Origin != v1alpha1.OriginSimulated {
		return nil
	}
	_, err := fmt.Fprintln(w, Paint(w, Warn, SimulatedNotice))
	return err
}

// conditionOrder puts the summary first and then follows the way that a group goes.
var conditionOrder = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAccepted, v1alpha1.ConditionAgentsReporting,
	v1alpha1.ConditionCompatible,
	v1alpha1.ConditionRunning, v1alpha1.ConditionValidated, v1alpha1.ConditionSettingsInEffect,
	v1alpha1.ConditionSettingsPublished, v1alpha1.ConditionSimulated,
}

// OrderedConditions are a group's conditions, the summary first.
func OrderedConditions(group *state.Group) []metav1.Condition {
	rank := func(c metav1.Condition) int {
		if i := slices.Index(conditionOrder, c.Type); i >= 0 {
			return i
		}
		return len(conditionOrder)
	}
	conditions := slices.Clone(group.Status.Conditions)
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(rank(a), rank(b)) })
	return conditions
}

// ConditionMessages are the conditions' messages. Ready takes over the words of what keeps it: a message of hundreds of
// characters is told once, and the second time only by the name of the first condition that has it.
func ConditionMessages(conditions []metav1.Condition) []string {
	const leastRepeated = 40
	said := map[string]string{}
	out := make([]string, len(conditions))
	for i := range conditions {
		message := conditions[i].Message
		first, again := said[message]
		if out[i] = message; again && len(message) > leastRepeated {
			out[i] = "as " + first
		} else {
			said[message] = conditions[i].Type
		}
	}
	return out
}

// Conditions prints a group's conditions, the summary first.
func Conditions(w io.Writer, group *state.Group) error {
	rows := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	conditions := OrderedConditions(group)
	messages := ConditionMessages(conditions)
	for i, c := range conditions {
		status := string(c.Status)
		if c.ObservedGeneration != 0 && c.ObservedGeneration < group.Generation {
			status += " (of generation " + fmt.Sprint(c.ObservedGeneration) + ")"
		}
		rows = append(rows, []string{c.Type, status, c.Reason, messages[i]})
	}
	return tonedTable(w, rows, func(heading, cell string, row []string) Tone {
		if heading != "STATUS" {
			return Plain
		}
		return conditionTone(row[0], cell, row[2])
	})
}

// conditionTone is how a condition's status is meant: most are good when they are True.
func conditionTone(kind, status, reason string) Tone {
	switch {
	case kind == v1alpha1.ConditionRunning:
		return Plain
	case kind == v1alpha1.ConditionSimulated:
		if status == string(metav1.ConditionTrue) {
			return Warn
		}
		return Plain
	case reason == v1alpha1.ReasonPublishOff || reason == v1alpha1.ReasonSimulatedResults:
		return Plain
	}
	return toneOf(status)
}

// Settings prints each setting requested, effective and verified, and whether its results are usable.
func Settings(w io.Writer, settings []v1alpha1.SettingStatus) error {
	if len(settings) == 0 {
		_, err := fmt.Fprintln(w, "no settings reported yet")
		return err
	}
	rows := [][]string{{"SETTING", "REQUESTED", "EFFECTIVE", "REASON", "SIZES", "VERIFIED", "USABLE"}}
	for _, s := range settings {
		rows = append(rows, []string{s.Name, s.Requested, string(s.Effective), s.Reason, SizeRange(s),
			string(s.Verified), cmp.Or(string(s.Usable), unknown)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, s := range settings {
		if s.Message == "" && len(s.Warnings) == 0 {
			continue
		}
		name := s.Name
		if len(s.Warnings) > 0 {
			name += " WARNING " + strings.Join(s.Warnings, ", ")
		}
		if _, err := fmt.Fprintln(w, wrap(w, name+": "+s.Message)); err != nil {
			return err
		}
	}
	return nil
}

// SizeRange is the range of message sizes that a setting acts on.
func SizeRange(s v1alpha1.SettingStatus) string {
	switch {
	case s.MinBytes == nil && s.MaxBytes == nil:
		return unknown
	case s.MaxBytes == nil:
		return units.Bytes(*s.MinBytes) + " and up"
	case s.MinBytes == nil:
		return upTo(*s.MaxBytes)
	default:
		return units.Bytes(*s.MinBytes) + " and up, " + upTo(*s.MaxBytes)
	}
}

// upTo prints an upper bound; one byte less than a round size is "below" it.
func upTo(maxBytes int64) string {
	if below := maxBytes + 1; below%(1<<10) == 0 {
		return "below " + units.Bytes(below)
	}
	return "up to " + units.Bytes(maxBytes)
}

// CulpritsTitle heads the culprits, and says where they are an earlier run's.
func CulpritsTitle(s *state.Status) string {
	if earlier := s.EarlierCulpritsRun(); earlier != "" {
		return fmt.Sprintf("Culprits of run %s, which run %s repeats", earlier, s.Run.ID)
	}
	return "Culprits"
}

// Culprits prints whom the verdict blames, or that there is nobody.
func Culprits(w io.Writer, culprits []v1alpha1.Culprit) error {
	for _, c := range culprits {
		if _, err := fmt.Fprintf(w, "%s: %s\n%s\n",
			Paint(w, Bad, explain.Culprit(&c)), c.Reason, wrap(w, c.Message)); err != nil {
			return err
		}
	}
	if pages := RunbookPages(culprits); len(pages) > 0 {
		_, err := fmt.Fprintln(w, wrap(w, "what to do, step by step: "+strings.Join(pages, ", ")))
		return err
	}
	return nil
}

// RunbookPages are the pages for the culprits' reasons, each once.
func RunbookPages(culprits []v1alpha1.Culprit) []string {
	var pages []string
	for i := range culprits {
		if page := RunbookPage(culprits[i].Reason); page != "" && !slices.Contains(pages, page) {
			pages = append(pages, page)
		}
	}
	return pages
}

// RunbookPage is the page for a reason in the operator's repository; empty where it has none.
func RunbookPage(reason string) string {
	if len(reasons.Find(reason)) == 0 {
		return ""
	}
	return "docs/runbooks/reasons/" + reason + ".md"
}
