package prometheus

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/internal/metrics"
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
			t.Errorf("%s: a test where it fires %v, where it is quiet %v, where it is pending %v; it has for %v", a.Name, fires, quiet, pending, a.For)
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
						t.Errorf("%s says nothing of its label %s=%q: %s %s", a.Name, name, value, f.Summary, f.Description)
					}
				}
			}
		}
	}
}

func TestEachAlertHasItsPage(t *testing.T) {
	reasons, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
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
		if len(a.Page.Look) == 0 || len(a.Page.Do) == 0 || a.Page.Meaning == "" || a.Page.Impact == "" || a.Page.Silence == "" {
			t.Errorf("the runbook page of %s lacks a part", a.Name)
		}
		for _, reason := range a.Page.Reasons {
			if !strings.Contains(string(reasons), "`"+reason+"`") {
				t.Errorf("%s speaks of the reason %s, which docs/reasons.md does not have", a.Name, reason)
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

func TestSeriesNamesOnlyTheContractsLabels(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a series with a label that its metric does not have was taken")
		}
	}()
	of(metrics.RunActive, labels{"node": "x"}, "1")
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "", time.Minute: "1m", 90 * time.Minute: "90m", 2 * time.Hour: "2h"} {
		if got := duration(d); got != want {
			t.Errorf("duration(%v) = %q, want %q", d, got, want)
		}
	}
}

// promtool reads the rules, and runs each alert's and recording rule's unit tests.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: hack/setup.sh installs it as root (Debian package prometheus)")
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
