package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestStatusShowsAdvice: only where there is some.
func TestStatusShowsAdvice(t *testing.T) {
	const title = "\nSettings worth it, by the A/B numbers\n"
	group := &v1alpha1.CommGroup{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), title); got != want {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Status.Advice = []v1alpha1.SettingAdvice{{Name: "dda.AllReduce/BFloat16", State: v1alpha1.WorthYes}}
	}
}

// TestStatusShowsHistory: only once a run is over.
func TestStatusShowsHistory(t *testing.T) {
	group := &v1alpha1.CommGroup{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\nLast runs\n"); got != want {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Status.History = []v1alpha1.RunSummary{{ID: "1-1"}}
	}
}

// TestStatusShowsGating: whom a dry run would mark is seen without YAML.
func TestStatusShowsGating(t *testing.T) {
	group := &v1alpha1.CommGroup{}
	for _, want := range []bool{false, true} {
		var b bytes.Buffer
		if err := printStatus(&b, group, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\nGating\n"); got != want || want && !strings.Contains(b.String(), "would gate node-a") {
			t.Errorf("shown: %v, expected %v:\n%s", got, want, b.String())
		}
		group.Spec.Gating.Mode, group.Status.WouldGate = v1alpha1.GatingDryRun, []string{"node-a"}
	}
}
