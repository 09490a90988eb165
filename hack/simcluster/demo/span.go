package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// writeSpanSample renders the sample with as many nodes in the mesh as there are, and gives the file.
func (d *demo) writeSpanSample(ctx context.Context, folder string) (string, error) {
	text, err := d.kubectl(ctx, "kustomize", filepath.Join(d.Repo, folder))
	if err != nil {
		return "", err
	}
	fitted, err := fitMesh([]byte(text), d.Nodes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	file := d.State.Path("commgroup.yaml")
	return file, os.WriteFile(file, fitted, 0o644)
}

// fitMesh sets the size of the first dimension of the mesh, which has one rank of each node.
func fitMesh(manifest []byte, nodes int) ([]byte, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		return nil, err
	}
	mesh, found, err := unstructured.NestedSlice(object, "spec", "mesh")
	if err != nil || !found || len(mesh) == 0 {
		return nil, fmt.Errorf("spec.mesh: found %t, %d dimensions: %w", found, len(mesh), err)
	}
	first, ok := mesh[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec.mesh[0] is %v", mesh[0])
	}
	first["size"] = int64(nodes)
	if err := unstructured.SetNestedSlice(object, mesh, "spec", "mesh"); err != nil {
		return nil, err
	}
	return yaml.Marshal(object)
}

// unmeasured says what is missing of the results over several nodes; empty for nothing.
func unmeasured(group *state.Group) string {
	span := group.Status.Span
	if span == nil || span.Stage != v1alpha1.StageEnded || span.Verdict != v1alpha1.VerdictPass {
		return fmt.Sprintf("the group's stage has no good end: %+v", span)
	}
	dimensions := []string{"group"}
	for _, m := range group.Spec.Mesh {
		dimensions = append(dimensions, m.Name)
	}
	for _, dimension := range dimensions {
		measured := false
		for i := range span.Results {
			r := &span.Results[i]
			n := len(r.BusBandwidthMBps)
			measured = measured || r.Dimension == dimension && n > 0 && r.BusBandwidthMBps[n-1] > 0
		}
		if !measured {
			return "no result of dimension " + dimension
		}
	}
	return ""
}

// judgeSpan: the culprit is named with its kind, nothing that is healthy is blamed, and the group without it was
// measured.
func judgeSpan(group *state.Group, fault *Fault, finished bool, seen string) Outcome {
	named := ""
	for i := range group.Status.Culprits {
		c := &group.Status.Culprits[i]
		named = fmt.Sprintf("culprit %s (%s)", explain.Culprit(c), c.Reason)
		if !fault.names(c) {
			return Outcome{Done: finished,
				Seen: fmt.Sprintf("%s; what is healthy is blamed: %s: %s", seen, named, c.Message)}
		}
	}
	switch {
	case named == "":
		return Outcome{Done: finished, Seen: seen + "; no culprit is named"}
	case group.Status.Span == nil || group.Status.Span.Stage != v1alpha1.StageEnded:
		return Outcome{Done: finished, Seen: named + "; the group's stage has no end"}
	}
	if missing := unconfirmed(group.Status.Span, fault); missing != "" {
		return Outcome{Done: finished, Seen: named + "; " + missing}
	}
	return Outcome{Done: finished, Reached: finished, Seen: named}
}

// unconfirmed says what is missing of the proof that the culprit is the only one: the search has to have found it, and
// the group without it to be good. Empty for nothing.
func unconfirmed(span *v1alpha1.SpanStatus, fault *Fault) string {
	var last *v1alpha1.SpanTest // over the group
	tests := 0
	for i := range span.Tests {
		if t := &span.Tests[i]; t.Kind == v1alpha1.TestGroup {
			last, tests = t, tests+1
		}
	}
	l := span.Localization
	switch {
	case fault.Unsearched && l != nil:
		return fmt.Sprintf("a search was made, which is %s: %s", l.State, l.Message)
	case fault.Unsearched && (last == nil || last.Verdict != v1alpha1.VerdictFail):
		return fmt.Sprintf("the group's test did not fail: %+v", last)
	case fault.Unsearched:
		return ""
	case l == nil:
		return "no search was made"
	case l.State != v1alpha1.LocalizationFound:
		return fmt.Sprintf("the search is %s: %s", l.State, l.Message)
	case tests < 2:
		return "the group was not formed again without the culprit"
	case last.Verdict != v1alpha1.VerdictPass:
		return fmt.Sprintf("the group without the culprit is not good: %s %s %s", last.ID, last.Verdict, last.Reason)
	case !strings.Contains(l.Message, " Confirmed: "):
		return "the search says nothing of a confirmation: " + l.Message
	}
	return ""
}

// names says whether a culprit is the one that the fault over several nodes makes.
func (f *Fault) names(c *v1alpha1.Culprit) bool {
	if c.Kind != f.Kind || !oneOf(c.Reason, f.Reasons) {
		return false
	}
	for _, part := range f.Named {
		if !strings.Contains(c.Name, part) {
			return false
		}
	}
	return slices.Contains(c.Nodes(), FaultyNode)
}

// spanLine says where the group's stage is; empty where there is none now.
func spanLine(group *state.Group) string {
	s, run := group.Status.Span, group.Status.Run
	if s == nil || run == nil || s.RunID != run.ID || s.Stage == v1alpha1.StageNodes {
		return ""
	}
	line := fmt.Sprintf("stage %s, %d of %d members", s.Stage, s.Present, s.Members)
	if l := s.Localization; l != nil {
		line += fmt.Sprintf("; search %s, round %d, %d tests", l.State, l.Rounds, l.Tests)
	}
	if n := len(s.Tests); n > 0 {
		t := &s.Tests[n-1]
		line += fmt.Sprintf("; test %s over %s", t.ID, t.Set)
		if t.Verdict != "" {
			line += fmt.Sprintf(": %s %s", t.Verdict, t.Reason)
		}
	}
	return strings.TrimSpace(line)
}

// freeDeadline bounds how long pods may hold GPUs after the run: their agents' grace and the API's way.
const freeDeadline = time.Minute

// awaitFreeGPUs waits until no pod of the run holds GPUs.
func (d *demo) awaitFreeGPUs(ctx context.Context) error {
	began := time.Now()
	for {
		var pods corev1.PodList
		if err := d.client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}); err != nil {
			return err
		}
		var holders []string
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				holders = append(holders, p.Name)
			}
		}
		if len(holders) == 0 {
			d.say("\nNo pod holds GPUs any more, %.1f s after the outcome.", time.Since(began).Seconds())
			return nil
		}
		if time.Since(began) > freeDeadline {
			return fmt.Errorf("%s after the outcome these pods still hold GPUs: %s",
				freeDeadline, strings.Join(holders, ", "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}
