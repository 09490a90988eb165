package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/dashboards/prometheus"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/testenv"
)

func allPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := pages(reasons.All(), prometheus.Alerts())
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPages: each reason's page says what its own text has, and each alert is in the index.
func TestPages(t *testing.T) {
	files := allPages(t)
	for _, s := range reasons.All() {
		for _, e := range s.Entries {
			text, w := files["docs/runbooks/reasons/"+e.Reason+".md"], words[e.Reason]
			want := slices.Concat(w.Seen, []string{w.Means, w.Escalate, w.Ends, s.Anchor}, w.Causes,
				aligned(slices.Concat(w.Look, w.OnNode)), w.Do)
			if !w.Plain && e.Next != "none" {
				want = append(want, "## What to do\n", moved(e.Next)[1:])
			}
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("the page of %s lacks %q:\n%s", e.Reason, part, text)
				}
			}
			if !strings.Contains(files["docs/runbooks/README.md"], "(reasons/"+e.Reason+".md)") {
				t.Errorf("%s is not in the index", e.Reason)
			}
		}
	}
	for _, a := range prometheus.Alerts() {
		for _, reason := range a.Page.Reasons {
			if !strings.Contains(files["docs/runbooks/reasons/"+reason+".md"], "(../alerts/"+a.Name+".md)") {
				t.Errorf("the page of %s does not name the alert %s", reason, a.Name)
			}
		}
	}
}

// quiet are next steps that ask nobody to act.
var quiet = regexp.MustCompile("^(none\\b|wait\\b|see `|use it\\b)")

// TestOwnText: a reason that somebody has to act upon has a message, causes, commands, a cure and whom to call; a plain
// state has three lines, and none whose next step is an act is called plain.
func TestOwnText(t *testing.T) {
	for _, s := range reasons.All() {
		for _, e := range s.Entries {
			w := words[e.Reason]
			if w.Means == "" {
				t.Errorf("%s: what it means is not said", e.Reason)
			}
			if w.Plain {
				if len(w.Seen)+len(w.Causes)+len(w.Look)+len(w.OnNode)+len(w.Do) > 0 || w.Escalate != "" {
					t.Errorf("%s is called plain and says more than three lines", e.Reason)
				}
				if !quiet.MatchString(e.Next) {
					t.Errorf("%s is called plain, and docs/reasons.md asks to act: %s", e.Reason, e.Next)
				}
				continue
			}
			for what, n := range map[string]int{"message as the code writes it": len(w.Seen),
				"command": len(w.Look) + len(w.OnNode), "cure": len(w.Do), "second cause": len(w.Causes) - 1,
				"end": len(w.Ends)} {
				if told := what == "cure" && e.Next != "none"; n < 1 && !told {
					t.Errorf("%s: no %s", e.Reason, what)
				}
			}
			if _, setting := wordsSettings[e.Reason]; w.Escalate == "" && !setting {
				t.Errorf("%s: whom to call, and when, is not said", e.Reason)
			}
		}
	}
}

// TestCodes: each code of problems.go is in the index, and leads to a page that names it.
func TestCodes(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(testenv.Root(), "api", "v1alpha1", "problems.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\tProblem\w+ *= `).FindAll(source, -1)
	if len(names) == 0 || len(names) != len(codes) {
		t.Errorf("api/v1alpha1/problems.go has %d codes, and codes.go %d", len(names), len(codes))
	}
	files := allPages(t)
	for _, code := range codes {
		reason := v1alpha1.ReasonOfProblem(code)
		if code == reason {
			continue
		}
		if !strings.Contains(files["docs/runbooks/README.md"], "- `"+code+"`: [") ||
			!strings.Contains(files["docs/runbooks/reasons/"+reason+".md"], "`"+code+"`") {
			t.Errorf("%s, of the reason %s, is not in the index or not on its page", code, reason)
		}
	}
}

// TestOnePart: each reason's text stands in one place.
func TestOnePart(t *testing.T) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n != len(words) {
		t.Errorf("%d texts, %d reasons: one is in two of the files words_*.go", n, len(words))
	}
}

// TestNoPadding: what stands on many pages tells a reader nothing about the one that is open.
func TestNoPadding(t *testing.T) {
	on := map[string][]string{}
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		w := words[reason]
		for _, text := range slices.Concat([]string{w.Means, w.Escalate}, w.Seen, w.Causes, w.Do) {
			for _, sentence := range strings.SplitAfter(text, ". ") {
				if sentence = strings.TrimSpace(sentence); len(sentence) > 20 &&
					!slices.Contains(on[sentence], reason) {
					on[sentence] = append(on[sentence], reason)
				}
			}
		}
	}
	for sentence, of := range on {
		if len(of) > 2 {
			t.Errorf("%q stands on the pages of %v: say it of each, or of none", sentence, of)
		}
	}
}

// TestCommandsFindSomething: pages of runs without pods do not send to their logs, and where logs of run pods are told,
// it is told which are there.
func TestCommandsFindSomething(t *testing.T) {
	files := allPages(t)
	for name, text := range files {
		// kubectl shows 10 lines of each pod that a selector finds, unless told otherwise.
		if logs := strings.Count(text, "kubectl logs -n NAMESPACE -l "+
			"rcclx.io/commgroup=GROUP,rcclx.io/role=run"); logs != strings.Count(text, runLogs) ||
			!strings.Contains(runLogs, "--tail=-1") {
			t.Errorf("%s: most run pods are gone when the run is over, and that is not told", name)
		}
	}
	for _, reason := range []string{"NodeBusy", "WaitingForQueue", "RunPodUnschedulable", "RunPodNotStarted"} {
		if text := files["docs/runbooks/reasons/"+reason+".md"]; strings.Contains(text,
			"kubectl logs -n NAMESPACE") || strings.Contains(text, "commgroup results") {
			t.Errorf("%s: nothing ran, so there is no result or log:\n%s", reason, text)
		}
	}
	for _, reason := range []string{"RuntimeImageMissing", "InvalidSchedule"} {
		if text := files["docs/runbooks/reasons/"+reason+".md"]; strings.Contains(text, "get nodes") {
			t.Errorf("%s is not of nodes:\n%s", reason, text)
		}
	}
}

// TestCommitted: no page is there that no reason has any more.
func TestCommitted(t *testing.T) {
	files := allPages(t)
	found, err := filepath.Glob("../../docs/runbooks/reasons/*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("%d pages, %v", len(found), err)
	}
	for _, path := range found {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if files[name] == "" {
			t.Errorf("%s is of no reason: remove it", name)
		}
	}
	for name := range files {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("%v; run hack/generate.sh", err)
		}
	}
}

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		page, want string
	}{
		"a reason without a text": {"## Condition `Accepted`\n| `Newcomer` | b | c |\n",
			"has Newcomer in the section Condition Accepted"},
		"words on a reason that left": {"## Condition `Accepted`\n| `Accepted` | b | none |\n",
			"docs/reasons.md does not have"},
	} {
		sections, err := reasons.Parse(tc.page)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pages(sections, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
