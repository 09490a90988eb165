package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestColoursChangeNothingElse: without its escapes a coloured table is the plain one, so that columns stay aligned.
func TestColoursChangeNothingElse(t *testing.T) {
	group := &state.Group{Status: state.Status{Origin: v1alpha1.OriginSimulated,
		Settings: []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Required",
			Effective: v1alpha1.EffectiveNotInEffect, Verified: v1alpha1.VerifiedUnknown,
			Reason: "NotBuilt", Message: "no"}},
		Culprits: []v1alpha1.Culprit{{Node: "n", Kind: "GPU", Name: "0000:05:00.0", Reason: "SlowGPU",
			Message: "slow"}},
	}}
	for _, c := range []struct{ kind, status, reason string }{{"Ready", "False", "SlowGPU"},
		{"Accepted", "True", "Accepted"}, {"Running", "False", "RunFinished"}, {"Simulated", "True", "Simulated"}} {
		group.Status.Conditions = append(group.Status.Conditions, condition(c.kind, c.status, c.reason))
	}
	show := func(w *Terminal) string {
		var b bytes.Buffer
		w.Writer = &b
		for _, err := range []error{Notice(w, group), Conditions(w, group), Settings(w, group.Status.Settings),
			Culprits(w, group.Status.Culprits), Title(w, "Title")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	plain, coloured := show(&Terminal{}), show(&Terminal{Colour: true})
	if got := escapes.ReplaceAllString(coloured, ""); got != plain {
		t.Errorf("without escapes:\n%s\nplain:\n%s", got, plain)
	}
	if strings.Contains(plain, "\x1b") {
		t.Error("escapes without colours")
	}
	for _, want := range []string{"\x1b[31;1mFalse", "\x1b[32mTrue", "\x1b[31;1mNotInEffect",
		"\x1b[31;1mGPU 0000:05:00.0 on node n", "\x1b[33mSIMULATED", "\x1b[1mTitle"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("no %q in %q", want, coloured)
		}
	}
	if strings.Contains(coloured, "\x1b[31;1mFalse\x1b[0;22m  RunFinished") {
		t.Error("Running False is nothing bad")
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]string{{"A", "MESSAGE"}, {"first", strings.Repeat("word ", 20)}, {"second", "short"}}
	var b bytes.Buffer
	if err := table(&Terminal{Writer: &b, Columns: 50}, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines, want a heading, three of the message, and one:\n%s", len(lines), b.String())
	}
	words := 0
	for _, line := range lines {
		if len(line) > 50 {
			t.Errorf("%d characters in %q, want at most 50", len(line), line)
		}
		words += strings.Count(line, "word")
	}
	if words != 20 {
		t.Errorf("%d words, want all 20", words)
	}
	if !strings.HasPrefix(lines[2], "        word") {
		t.Errorf("%q is not under its column", lines[2])
	}
	// Too narrow to wrap, or not a terminal: as it is.
	for _, columns := range []int{0, 20} {
		b.Reset()
		if err := table(&Terminal{Writer: &b, Columns: columns}, rows); err != nil ||
			strings.Count(b.String(), "\n") != 3 {
			t.Errorf("with %d columns:\n%s", columns, b.String())
		}
	}
}

func TestWrapKeepsEachWord(t *testing.T) {
	text := "a " + strings.Repeat("z", 150) + " b c " + strings.Repeat("word ", 50)
	got := wrap(&bytes.Buffer{}, text)
	if strings.Join(strings.Fields(got), " ") != strings.TrimSpace(text) {
		t.Errorf("words were lost or changed: %q", got)
	}
	for _, line := range strings.Split(got, "\n") {
		if !strings.HasPrefix(line, "  ") || len(line) > 120 && !strings.Contains(line, "zzz") {
			t.Errorf("line %q", line)
		}
	}
}

func condition(kind, status, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason}
}
