package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/stage"
)

// check holds what must be true at every time.
func (w *groupWorld) check() {
	w.t.Helper()
	s := w.span()
	if s == nil {
		return
	}
	if len(s.Tests) > stage.MaxTests || len(s.Culprits) > stage.MaxCulprits {
		w.t.Fatalf("%d tests, %d culprits", len(s.Tests), len(s.Culprits))
	}
	if l := s.Localization; l != nil && l.Rounds > l.MaxRounds {
		w.t.Fatalf("%d rounds, and %d is the bound: %s", l.Rounds, l.MaxRounds, w.tests())
	}
	ids := map[string]bool{}
	for i := range s.Tests {
		if ids[s.Tests[i].ID] {
			w.t.Fatalf("test %s twice", s.Tests[i].ID)
		}
		ids[s.Tests[i].ID] = true
	}
	indexes := map[int32]string{}
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		a := w.commTasks[name].Spec.Session
		if a == nil || a.RunID != s.RunID {
			continue
		}
		if other := indexes[a.Index]; other != "" {
			w.t.Fatalf("%s and %s share index %d", name, other, a.Index)
		}
		indexes[a.Index] = name
		if s.Stage == v1alpha1.StageEnded && len(w.decided.CommTasks) == 0 && a.State != v1alpha1.SessionClosed {
			w.t.Fatalf("the stage ended and the session of %s is %s", name, a.State)
		}
	}
}

// accused are the nodes that a culprit is or lies on: both of a pair.
func (w *groupWorld) accused(c *v1alpha1.Culprit) []int {
	if a, b, pair := strings.Cut(c.Name, "<->"); pair {
		return []int{w.index[a], w.index[b]}
	}
	return []int{w.index[c.Node]}
}

// culprits as kind and name, with node places for names.
func (w *groupWorld) culprits() []string {
	var out []string
	for _, c := range w.span().Culprits {
		name := c.Name
		for node, i := range w.index {
			name = strings.ReplaceAll(name, node, fmt.Sprint(i))
		}
		if c.Kind == "GPU" || c.Kind == "NIC" || c.Kind == "Rank" {
			name = fmt.Sprintf("%d/%s", w.index[c.Node], name)
		}
		out = append(out, c.Kind+" "+name)
	}
	slices.Sort(out)
	return out
}

func (w *groupWorld) tests() string {
	var out []string
	for _, t := range w.span().Tests {
		out = append(out, fmt.Sprintf("%s{%s}=%s", t.ID, t.Set, t.Verdict))
	}
	return strings.Join(out, " ")
}
