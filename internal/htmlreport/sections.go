package htmlreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

func conditionsGrid(group *state.Group, now time.Time) grid {
	t := grid{Caption: "Conditions", Titled: true, Stack: true,
		Head: []string{"Condition", "Status", "Reason", "Message", "Since"}}
	conditions := report.OrderedConditions(group)
	messages := report.ConditionMessages(conditions)
	for i, c := range conditions {
		row := []cell{plain(c.Type), badge(string(c.Status), conditionTone(c)), plain(c.Reason), plain(messages[i]),
			plain(c.LastTransitionTime.UTC().Format("2006-01-02 15:04 UTC") + ", " +
				strings.ReplaceAll(ago(now.Sub(c.LastTransitionTime.Time))+" ago", " ", "\u00a0"))}
		t.Rows = append(t.Rows, gridRow{Cells: row})
	}
	return t
}

// conditionTone: Running and Simulated are neither good nor bad.
func conditionTone(c metav1.Condition) tone {
	switch {
	case c.Type == v1alpha1.ConditionRunning, c.Type == v1alpha1.ConditionSimulated:
		return toneInfo
	case c.Status == metav1.ConditionTrue:
		return toneGood
	case c.Status == metav1.ConditionFalse &&
		(c.Reason == v1alpha1.ReasonNotRequested || c.Reason == v1alpha1.ReasonPublishOff):
		return toneMute
	case c.Status == metav1.ConditionFalse &&
		(c.Type == v1alpha1.ConditionSettingsInEffect || c.Type == v1alpha1.ConditionSettingsPublished):
		return toneWarn // a group may be Ready without
	case c.Status == metav1.ConditionFalse:
		return toneBad
	default:
		return toneWarn
	}
}

func settingsGrid(settings []v1alpha1.SettingStatus) grid {
	t := grid{Caption: "Settings", Titled: true, Stack: true,
		Head: []string{"Setting", "Requested", "Effective", "Why", "Sizes", "Verified", "Usable"}}
	for i := range settings {
		s := &settings[i]
		row := gridRow{Cells: []cell{plain(s.Name), plain(s.Requested), badge(string(s.Effective), effectiveTone(s)),
			plain(s.Reason), plain(dashed(report.SizeRange(*s))), badge(string(s.Verified), verifiedTone(s)),
			badge(cmp.Or(string(s.Usable), unknown), usableTone(s))}}
		notes := make([]string, 0, 2)
		if len(s.Warnings) > 0 {
			notes = append(notes, "Warning: "+strings.Join(s.Warnings, ", "))
		}
		if s.Message != "" {
			notes = append(notes, s.Message)
		}
		row.Note = strings.Join(notes, ". ")
		t.Rows = append(t.Rows, row)
	}
	return t
}

// dashed takes the terminal's sign for nothing into this page's.
func dashed(s string) string {
	if s == "-" {
		return unknown
	}
	return s
}

func effectiveTone(s *v1alpha1.SettingStatus) tone {
	switch s.Effective {
	case v1alpha1.EffectiveInEffect:
		return toneGood
	case v1alpha1.EffectivePartial:
		return toneInfo
	case v1alpha1.EffectiveNotInEffect:
		if s.Requested == string(v1alpha1.FeatureDisabled) {
			return toneMute
		}
		return toneWarn
	default:
		return toneWarn
	}
}

func verifiedTone(s *v1alpha1.SettingStatus) tone {
	switch s.Verified {
	case v1alpha1.VerifiedConfirmed:
		return toneGood
	case v1alpha1.VerifiedNotConfirmed:
		return toneWarn
	default:
		return toneMute
	}
}

func usableTone(s *v1alpha1.SettingStatus) tone {
	switch s.Usable {
	case v1alpha1.ResultsUsable:
		return toneGood
	case v1alpha1.ResultsNotUsable:
		return toneBad
	case v1alpha1.ResultsUnknown:
		return toneWarn
	default:
		return toneMute
	}
}

func adviceGrid(advice []v1alpha1.SettingAdvice) grid {
	t := grid{Caption: "Is it worth it, by the A/B numbers", Stack: true, Head: []string{"Setting", "Worth it",
		"Wins (less time)", "Loses (more time)", "Largest error", "Memory a rank", "Recommended"}}
	for i := range advice {
		a := &advice[i]
		e, memory := unknown, unknown
		if a.ErrorPPM != nil {
			e = units.Percent(*a.ErrorPPM)
		}
		if a.MemoryBytes != nil {
			memory = units.Bytes(*a.MemoryBytes)
		}
		worth := map[v1alpha1.WorthState]tone{v1alpha1.WorthYes: toneGood, v1alpha1.WorthMixed: toneInfo,
			v1alpha1.WorthNo: toneMute}[a.State]
		t.Rows = append(t.Rows, gridRow{Cells: []cell{plain(a.Name), badge(string(a.State), cmp.Or(worth, toneWarn)),
			plain(dashed(report.Bands(a, "Wins", 1))), plain(dashed(report.Bands(a, "Loses", -1))),
			number(e), number(memory), plain(a.Recommend)}, Note: a.Message})
	}
	return t
}

func errorsGrid(all []v1alpha1.DataErrors) grid {
	t := grid{Caption: "Errors against an fp32 reference with random data", Head: []string{"Collective", "Datatype",
		"Data", "Size", "Variant", "Max error", "Mean error", "NaN", "Overflowed", "Checked"}}
	for i := range all {
		e := &all[i]
		variant := string(e.Variant)
		if e.Placement == v1alpha1.InPlace {
			variant += " in place"
		}
		for j := range min(len(e.Collectives), len(e.SizeBytes)) {
			t.Rows = append(t.Rows, gridRow{Cells: []cell{plain(string(e.Collectives[j])), plain(string(e.Datatype)),
				plain(string(e.Data)), number(units.Bytes(e.SizeBytes[j])), plain(variant),
				number(itemAt(e.MaxErrorPPM, j, units.Percent)), number(itemAt(e.MeanErrorPPM, j, units.Percent)),
				number(counted(e.NaNElements, j)), number(counted(e.OverflowElements, j)),
				number(itemAt(e.CheckedElements, j, decimal))}})
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b gridRow) int {
		return cmp.Or(cmp.Compare(a.Cells[0].Text, b.Cells[0].Text), cmp.Compare(a.Cells[1].Text, b.Cells[1].Text),
			cmp.Compare(a.Cells[2].Text, b.Cells[2].Text))
	})
	return t
}

func decimal(n int64) string { return fmt.Sprint(n) }

func itemAt(values []int64, i int, text func(int64) string) string {
	if i >= len(values) {
		return unknown
	}
	return text(values[i])
}

// counted is of a list that is left out where all of it is zero.
func counted(values []int64, i int) string {
	if len(values) == 0 {
		return "0"
	}
	return itemAt(values, i, decimal)
}

// checkView is one check with a bar of its percentage.
type checkView struct {
	Measurement, Source, Node, State string
	Tone                             tone
	// Numbers are what was measured and expected in words; Percent is empty where they do not compare.
	Numbers, Percent string
	// Width of the bar in percent of 125, and where 100 % is; empty without a percentage.
	Width, Mark string
	Mode        string
	CausesHead  string
	Causes      []string
}

func newChecks(all []v1alpha1.PerformanceCheck) []checkView {
	out := make([]checkView, 0, len(all))
	for i := range all {
		c := &all[i]
		v := checkView{Measurement: c.Measurement, Source: c.Source, Node: c.Node, State: string(c.State),
			Numbers: checkNumbers(c), Mode: "decides the verdict", CausesHead: "Look at:",
			Causes: c.Causes, Tone: toneWarn}
		if c.Mode != v1alpha1.JudgingEnforce {
			v.Mode = "only reported"
		}
		switch {
		case c.State == v1alpha1.CheckMet:
			v.Tone = toneGood
		case c.State == v1alpha1.CheckNotMet && c.Mode == v1alpha1.JudgingEnforce:
			v.Tone = toneBad
		case c.State == v1alpha1.CheckNotMeasured:
			v.CausesHead = "Why:"
			if c.Mode != v1alpha1.JudgingEnforce {
				v.Tone = toneMute
			}
		}
		if c.Percent != nil {
			v.Percent = fmt.Sprintf("%d %%", *c.Percent)
			v.Width, v.Mark = coordinate(float64(min(max(*c.Percent, 0), 125))*160/125), coordinate(100.0*160/125)
		}
		out = append(out, v)
	}
	return out
}

// checkNumbers says what was measured and expected; missing numbers are told, never zero.
func checkNumbers(c *v1alpha1.PerformanceCheck) string {
	switch {
	case c.MeasuredMBps == nil && c.ExpectedMBps == nil:
		return "nothing to compare"
	case c.MeasuredMBps == nil:
		return "not measured, expected " + units.GBps(*c.ExpectedMBps) + " GB/s"
	case c.ExpectedMBps == nil:
		return units.GBps(*c.MeasuredMBps) + " GB/s measured, no expectation"
	default:
		return units.GBps(*c.MeasuredMBps) + " GB/s measured, " + units.GBps(*c.ExpectedMBps) + " GB/s expected"
	}
}

func optional(mbps *int64) string {
	if mbps == nil {
		return unknown
	}
	return units.GBps(*mbps)
}

func inventoryGrid(items []v1alpha1.InventoryItem) grid {
	t := grid{Caption: "What the members are and run", Head: []string{"Property", "Value", "Nodes", "For example"}}
	values := map[string]int{}
	for _, i := range items {
		values[i.Property]++
	}
	for _, i := range items {
		value := plain(i.Value)
		if values[i.Property] > 1 || i.Value == "unknown" {
			value = badge(i.Value, toneWarn)
		}
		t.Rows = append(t.Rows,
			gridRow{Cells: []cell{plain(i.Property), value, number(fmt.Sprint(i.Nodes)), plain(i.Example)}})
	}
	return t
}

func historyGrid(s *state.Status) grid {
	t := grid{Caption: "Last runs", Stack: true, Head: []string{"Run", "Trigger", "Verdict", "Reason", "Started",
		"Took", "Passed", "GPU-minutes", "Bus GB/s", "Group GB/s", "Culprit"}}
	for i := range s.History {
		h := &s.History[i]
		took := unknown
		if h.FinishTime != nil {
			took = h.FinishTime.Sub(h.StartTime.Time).Round(time.Second).String()
		}
		verdict := badge("aborted", toneMute)
		if h.Verdict != "" {
			verdict = badge(string(h.Verdict), verdictTone(h.Verdict))
		}
		t.Rows = append(t.Rows, gridRow{Cells: []cell{plain(h.ID), plain(h.Trigger), verdict, plain(h.Reason),
			plain(h.StartTime.UTC().Format("2006-01-02 15:04 UTC")), number(took), number(orUnknown(h.Members)),
			number(fmt.Sprint(h.GPUMinutes)), number(optional(h.BusBandwidthMBps)), number(report.GroupFigure(h)),
			plain(h.Culprit)}})
	}
	return t
}

// conditionsNotMet sums up the members' preconditions, the worst first.
func conditionsNotMet(nodes []report.Member) grid {
	type key struct{ name, state string }
	type line struct {
		key
		nodes   map[string]bool
		example string
		message string
	}
	var lines []*line
	by := map[key]*line{}
	for i := range nodes {
		run := nodes[i].Status.Run
		if run == nil {
			continue
		}
		for _, p := range run.Preconditions {
			k := key{p.Name, p.State}
			if by[k] == nil {
				by[k] = &line{key: k, nodes: map[string]bool{}, example: nodes[i].Spec.NodeName, message: p.Message}
				lines = append(lines, by[k])
			}
			by[k].nodes[nodes[i].Spec.NodeName] = true
		}
	}
	order := []string{"Failed", "Unknown", "Warning"}
	slices.SortStableFunc(lines, func(a, b *line) int {
		return cmp.Compare(slices.Index(order, a.state), slices.Index(order, b.state))
	})
	t := grid{Caption: "Preconditions that were not met", Stack: true,
		Head: []string{"Precondition", "State", "Nodes", "For example"}}
	for _, l := range lines {
		tone := toneWarn
		if l.state == "Failed" {
			tone = toneBad
		}
		t.Rows = append(t.Rows, gridRow{Cells: []cell{plain(l.name), badge(l.state, tone),
			number(fmt.Sprint(len(l.nodes))), plain(l.example)}, Note: l.message})
	}
	return t
}

// nodeText is what one node said.
type nodeText struct{ Node, Text string }

// said collects a text of each node, the first few.
func said(nodes []report.Member, of func(*v1alpha1.NodeRunStatus) string) []nodeText {
	var out []nodeText
	for i := range nodes {
		run := nodes[i].Status.Run
		if run == nil || of(run) == "" {
			continue
		}
		if len(out) == maxNodeIssues {
			return append(out,
				nodeText{"further nodes", "more nodes said something; kubectl get commtasks -o yaml has it"})
		}
		out = append(out, nodeText{nodes[i].Spec.NodeName, of(run)})
	}
	return out
}
