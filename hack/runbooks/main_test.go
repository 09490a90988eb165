package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/dashboards/prometheus"
	"rcclx.io/commgroup-operator/internal/reasons"
)

// TestPages: each reason has a page with what to look at and what to do, and each alert is in the index.
func TestPages(t *testing.T) {
	files, err := pages(reasons.All(), prometheus.Alerts())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range reasons.All() {
		for _, e := range s.Entries {
			text := files["docs/runbooks/reasons/"+e.Reason+".md"]
			_, look, _ := strings.Cut(text, "## How to look\n")
			look, do, found := strings.Cut(look, "## What to do\n")
			if !found || !strings.Contains(look, "kubectl") || !strings.Contains(do, "- ") || !strings.Contains(text, s.Anchor) {
				t.Errorf("the page of %s is\n%s", e.Reason, text)
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

// TestCommandsFindSomething: pages of runs without pods do not send to their logs, and where logs of run pods are told, it is told which are there.
func TestCommandsFindSomething(t *testing.T) {
	files, err := pages(reasons.All(), prometheus.Alerts())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		// kubectl shows 10 lines of each pod that a selector finds, unless told otherwise.
		if logs := strings.Count(text, "kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP"); logs != strings.Count(text, runLogs) || !strings.Contains(runLogs, "--tail=-1") {
			t.Errorf("%s: most run pods are gone when the run is over, and that is not told", name)
		}
	}
	for _, reason := range []string{"NodeBusy", "WaitingForQueue", "RunPodUnschedulable", "RunPodNotStarted"} {
		if text := files["docs/runbooks/reasons/"+reason+".md"]; strings.Contains(text, "kubectl logs -n NAMESPACE") || strings.Contains(text, "commgroup results") {
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
	files, err := pages(reasons.All(), prometheus.Alerts())
	if err != nil {
		t.Fatal(err)
	}
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
		"an unknown section":          {"## New\n| `A` | b | c |\n", `"New"`},
		"words on a reason that left": {"## Condition `Accepted`\n| `A` | b | c |\n", "docs/reasons.md does not have"},
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
