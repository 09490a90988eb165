package reasons

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestParse(t *testing.T) {
	got, err := Parse("# Head\n\n## Condition `Accepted`\nSome words.\n| reason | seen | next step |\n|---|---|---|\n" +
		"| `NoNodesMatched` | nothing \\| left | compare `a|b` with [that](x.md) |\n\n## Empty\n\n" +
		"## Settings (`status.settings[].reason`)\n| reason | why |\n|---|---|\n| `Active` | it acts |\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Section{
		{Title: "Condition Accepted", Anchor: "condition-accepted", Text: "Some words.", Entries: []Entry{
			{Section: "Condition Accepted", Reason: "NoNodesMatched", Seen: "nothing | left",
				Next: "compare `a|b` with [that](x.md)"}}},
		{Title: "Settings (status.settings[].reason)", Anchor: "settings-statussettingsreason", Entries: []Entry{
			{Section: "Settings (status.settings[].reason)", Reason: "Active", Seen: "it acts"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if plain := Plain(want[0].Entries[0].Next); plain != "compare a|b with that" {
		t.Errorf("plain text is %q", plain)
	}
	for name, page := range map[string]string{
		"a row before any heading": "| `A` | b | c |\n",
		"too many cells":           "## H\n| `A` | b | c | d |\n",
		"one cell":                 "## H\n| `A` |\n",
	} {
		if _, err := Parse(page); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPage: the page that commands are built with can be read, and each reason that a node or group ends with has a
// next step.
func TestPage(t *testing.T) {
	if n := len(All()); n < 10 {
		t.Fatalf("%d sections", n)
	}
	for _, reason := range []string{v1alpha1.ReasonSlowLink, v1alpha1.ReasonRankHung, v1alpha1.ReasonWrongData,
		v1alpha1.ReasonTooFewMembers, v1alpha1.ReasonAgentNotReporting} {
		if NextStep(reason) == "" {
			t.Errorf("%s has no next step", reason)
		}
	}
	if next := NextStep(v1alpha1.ReasonAllPassed); next != "" {
		t.Errorf("AllPassed asks for %q", next)
	}
	if found := Find(v1alpha1.ReasonClockSkew); len(found) != 2 {
		t.Errorf("ClockSkew stands in %d sections, expected 2", len(found))
	}
	if slices.ContainsFunc(All(), func(s Section) bool {
		return strings.ContainsAny(s.Title, "`[") && !strings.Contains(s.Title, "[]")
	}) {
		t.Error("a title has markup")
	}
}

// TestRowsStandAlone: a row is quoted out of its table by commands, reports and runbooks, so its next step is an act of
// its own and does not point to the row above or at nothing but the message.
func TestRowsStandAlone(t *testing.T) {
	pointsAway := regexp.MustCompile(
		`(?i)^(the same\b|ditto|as above|likewise|the message\b|see the message|the event has\b)|\b(row|one) above\b`)
	for _, s := range All() {
		for _, e := range s.Entries {
			for what, text := range map[string]string{"what was seen": e.Seen, "next step": e.Next} {
				if found := pointsAway.FindString(Plain(text)); found != "" {
					t.Errorf("%s, %s: %s %q says %q and cannot be read without its table: say it whole",
						s.Title, e.Reason, what, text, found)
				}
			}
			if e.Next == "" {
				t.Errorf("%s, %s has no next step: say none where there is nothing to do", s.Title, e.Reason)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("## A\n| `B` | c | d |\n")
	f.Add("| `\\| | ` |")
	f.Fuzz(func(t *testing.T, page string) {
		sections, err := Parse(page)
		if err != nil {
			return
		}
		for _, s := range sections {
			for _, e := range s.Entries {
				if e.Reason == "" || e.Section != s.Title {
					t.Errorf("row %+v in section %q", e, s.Title)
				}
				Plain(e.Next)
			}
		}
	})
}
