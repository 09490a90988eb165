package prometheus

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/internal/metrics"
	"rcclx.io/commgroup-operator/internal/reasons"
)

func TestEachAlertIsTested(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Alerts() {
		if seen[a.Name] {
			t.Errorf("two alerts are called %s", a.Name)
		}
		seen[a.Name] = true
		var fires, quiet, pending bool
		for _, test := range a.Tests {
			fires = fires || len(test.Fires) > 0
			pending = pending || test.Pending > 0
			quiet = quiet || len(test.Fires) == 0 && test.Pending == 0
		}
		if !fires || !quiet || pending != (a.For > 0) {
			t.Errorf("%s: a test where it fires %v, where it is quiet %v, where it is pending %v; it has for %v",
				a.Name, fires, quiet, pending, a.For)
		}
		if a.Severity != Critical && a.Severity != Warning {
			t.Errorf("%s has the severity %q", a.Name, a.Severity)
		}
	}
}

// The text of an alert says which group, and each label that tells its alerts apart.
func TestTextsNameTheCulprit(t *testing.T) {
	for _, a := range Alerts() {
		for _, test := range a.Tests {
			for _, f := range test.Fires {
				for name, value := range f.Labels {
					if !strings.Contains(f.Summary+f.Description, value) {
						t.Errorf("%s says nothing of its label %s=%q: %s %s",
							a.Name, name, value, f.Summary, f.Description)
					}
				}
			}
		}
	}
}

func TestEachAlertHasItsPage(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "runbooks", "alerts")
	pages := map[string]bool{"README.md": true}
	for _, a := range Alerts() {
		pages[a.Name+".md"] = true
		got, err := os.ReadFile(filepath.Join(folder, a.Name+".md"))
		if err != nil {
			t.Errorf("%s has no runbook page: %v; run make generate", a.Name, err)
		} else if string(got) != string(a.Markdown()) {
			t.Errorf("the runbook page of %s is out of date: run make generate", a.Name)
		}
		if len(a.Page.Look) == 0 || len(a.Page.Do) == 0 || a.Page.Meaning == "" || a.Page.Impact == "" ||
			a.Page.Silence == "" {
			t.Errorf("the runbook page of %s lacks a part", a.Name)
		}
		for _, reason := range a.Page.Reasons {
			if len(reasons.Find(reason)) == 0 {
				t.Errorf("%s speaks of the reason %s, which docs/reasons.md does not have", a.Name, reason)
			}
			if !strings.Contains(string(got), "](../reasons/"+reason+".md)") {
				t.Errorf("the page of %s does not link to the page of the reason %s", a.Name, reason)
			}
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !pages[f.Name()] {
			t.Errorf("docs/runbooks/alerts/%s is the page of no alert: delete it", f.Name())
		}
	}
}

// Whoever is called for a run that did not pass finds the page of its reason from the alert.
func TestEachReasonOfABadRunHasItsAlert(t *testing.T) {
	elsewhere := map[string]string{
		"Inconclusive": "a verdict of its own", "MeshMismatch": "verdict Inconclusive",
		"WaitingForMembers":   "a run at work",
		"RunPodUnschedulable": "verdict Skipped", "TooFewMembers": "verdict Skipped",
		"WaitingForQueue": "verdict Skipped",
	}
	linked := map[string]bool{}
	for _, a := range Alerts() {
		if a.Name == "CommGroupFailed" || a.Name == "CommGroupRunErrored" {
			for _, reason := range a.Page.Reasons {
				linked[reason] = true
			}
		}
	}
	all := toMend(validated, stage, network)
	for _, reason := range all {
		if _, ok := elsewhere[reason]; ok == linked[reason] {
			t.Errorf("%s: linked from CommGroupFailed or CommGroupRunErrored %v, excepted %v",
				reason, linked[reason], ok)
		}
	}
	if len(all) < 40 || len(toMend(settings)) < 10 {
		t.Errorf("only %d reasons of runs and %d of settings were found: do the headings of docs/reasons.md still fit?",
			len(all), len(toMend(settings)))
	}
}

// Of a finished run few pods are left: what tells to read their logs says which, and what to do without.
func TestLogsOfRunPodsAreLookedForWhereTheyAre(t *testing.T) {
	for _, a := range Alerts() {
		if a.Name == "CommGroupRunStuck" {
			continue // a run is at work there
		}
		for _, text := range a.Page.Look {
			if strings.Contains(text, "rcclx.io/role=run") && text != runLogs {
				t.Errorf("%s: most run pods are gone when it fires: %s", a.Name, text)
			}
		}
	}
}

func TestSeriesNamesOnlyTheContractsLabels(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a series with a label that its metric does not have was taken")
		}
	}()
	of(metrics.RunActive, labels{"node": "x"}, "1")
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "", time.Minute: "1m", 90 * time.Minute: "90m",
		2 * time.Hour: "2h"} {
		if got := duration(d); got != want {
			t.Errorf("duration(%v) = %q, want %q", d, got, want)
		}
	}
}

// promtool reads the rules, and runs each alert's and recording rule's unit tests.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: make promtool installs it as root (Debian package prometheus)")
	}
	folder := t.TempDir()
	for name, write := range map[string]func() ([]byte, error){"rules.yaml": Rules, "rules_test.yaml": RuleTests} {
		text, err := write()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
