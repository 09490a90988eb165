// Package runrecord makes the CommRun of a run that is over: what is kept of it after the next one has replaced its results in the
// CommGroup's status. kubectl commgroup compares two of them, of the cluster or of files.
package runrecord

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Kind of the object.
const Kind = "CommRun"

// maxJSONBytes bounds what a reader takes.
const maxJSONBytes = 8 << 20

// Of is the CommRun of the run that the group's status speaks of; nil where it has none. tasks are the group's CommTasks.
func Of(group *v1alpha1.CommGroup, tasks []v1alpha1.CommTask) *v1alpha1.CommRun {
	s := &group.Status
	if s.Run == nil {
		return nil
	}
	run := s.Run
	out := &v1alpha1.CommRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: v1alpha1.CommRunName(group.Name, run.Number)},
		Spec: v1alpha1.CommRunSpec{
			Group: v1alpha1.GroupReference{Name: group.Name, UID: string(group.UID)}, ID: run.ID, Number: run.Number,
			Generation: run.Generation, Since: run.Since, Trigger: run.Trigger, Request: run.Request,
			Template: templateOf(group),
		},
		Status: v1alpha1.CommRunStatus{
			Verdict: run.Verdict, StartTime: run.StartTime.DeepCopy(), FinishTime: run.FinishTime,
			Members: s.Members, Origin: s.Origin, Inventory: s.Inventory, Settings: s.Settings,
			DataErrors: s.DataErrors, Culprits: s.Culprits, Checks: s.Checks, Advice: s.Advice,
		},
	}
	reports := reportsOf(run, tasks)
	out.Status.Libraries = libraries(reports)
	for i := range s.History {
		if s.History[i].ID == run.ID {
			out.Status.Summary = s.History[i].DeepCopy()
		}
	}
	noise := noiseOf(reports)
	for i := range s.Results {
		series := *s.Results[i].DeepCopy()
		series.NoisePercent = noise.of(&series)
		out.Status.Results = append(out.Status.Results, series)
	}
	if s.Span != nil && s.Span.RunID == run.ID {
		out.Status.Span = s.Span
	}
	return out
}

// templateOf is nil where the spec is another one than the run measured.
func templateOf(group *v1alpha1.CommGroup) *v1alpha1.RunTemplate {
	if group.Status.Run.Generation != group.Generation {
		return nil
	}
	spec := group.Spec.DeepCopy()
	spec.Runtime.Env = spec.OwnVariables()
	return &v1alpha1.RunTemplate{RanksPerNode: spec.RanksPerNode, Span: spec.Span, Mesh: spec.Mesh, Network: spec.Network, Runtime: spec.Runtime,
		DDA: spec.DDA, LowPrecision: spec.LowPrecision, Benchmark: spec.Benchmark}
}

// Read takes a CommRun as JSON, as kubectl commgroup results -o json and kubectl get commrun -o json write it.
func Read(r io.Reader) (*v1alpha1.CommRun, error) {
	plain, err := io.ReadAll(io.LimitReader(r, maxJSONBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a CommRun: %w", err)
	}
	if len(plain) > maxJSONBytes {
		return nil, fmt.Errorf("more than %d bytes: no CommRun is so large", maxJSONBytes)
	}
	const next = "kubectl commgroup results NAME -o json writes one"
	var out v1alpha1.CommRun
	if err := json.Unmarshal(plain, &out); err != nil {
		return nil, fmt.Errorf("not a CommRun: %w; %s", err, next)
	}
	switch {
	case out.Kind != Kind:
		return nil, fmt.Errorf("expected kind %s, got %q; %s", Kind, out.Kind, next)
	case out.APIVersion != v1alpha1.GroupVersion.String():
		return nil, fmt.Errorf("expected a CommRun of %s, got one of %q; %s", v1alpha1.GroupVersion, out.APIVersion, next)
	case out.Spec.ID == "":
		return nil, errors.New("the CommRun has no spec.id; " + next)
	}
	for i := range out.Status.Results {
		s := &out.Status.Results[i]
		if len(s.LatencyNanoseconds) > len(s.SizeBytes) || len(s.BusBandwidthMBps) > len(s.SizeBytes) || len(s.NoisePercent) > len(s.SizeBytes) {
			return nil, fmt.Errorf("the CommRun of run %s is damaged: series %d has more figures than sizes", out.Spec.ID, i)
		}
	}
	return &out, nil
}

// RunNumber is the number in a run's id, which is generation-number; 0 where the id has another form.
func RunNumber(id string) int64 {
	_, tail, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(tail, 10, 64)
	if err != nil || number < 0 {
		return 0
	}
	return number
}

// reportsOf are the members' finished reports that count for the run: its own, and with a run of some nodes those of the runs
// before it back to the last one of all.
func reportsOf(run *v1alpha1.GroupRunStatus, nodes []v1alpha1.CommTask) []*v1alpha1.NodeRunStatus {
	var out []*v1alpha1.NodeRunStatus
	since := cmp.Or(run.Since, run.Number)
	for i := range nodes {
		a, r := nodes[i].Spec.Run, nodes[i].Status.Run
		if a == nil || r == nil || a.Stale != nil || r.ID != a.ID || r.Phase != v1alpha1.NodeRunFinished {
			continue
		}
		if number := RunNumber(r.ID); r.ID == run.ID || number >= since && number < run.Number {
			out = append(out, r)
		}
	}
	return out
}

func libraries(reports []*v1alpha1.NodeRunStatus) []v1alpha1.RunLibrary {
	var out []v1alpha1.RunLibrary
	at := map[v1alpha1.LibraryFacts]int{}
	for _, r := range reports {
		if r.Library == nil {
			continue
		}
		i, seen := at[*r.Library]
		if !seen {
			i = len(out)
			at[*r.Library] = i
			out = append(out, v1alpha1.RunLibrary{LibraryFacts: *r.Library})
		}
		out[i].Nodes++
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.RunLibrary) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out[:min(len(out), maxLibraries)]
}

// maxLibraries bounds how many builds a record names, the most frequent first.
const maxLibraries = 16

// noiseLimit is the largest noise that is told apart; more counts as it.
const noiseLimit = 100

// cell is one measurement of one series.
type cell struct {
	variant    v1alpha1.Variant
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
	placement  v1alpha1.Placement
	sizeBytes  int64
}

// noises counts how many members showed each percent of noise: of 12,500 members the values themselves would be too many.
type noises map[cell]*[noiseLimit + 1]int32

func noiseOf(reports []*v1alpha1.NodeRunStatus) noises {
	n := noises{}
	for _, r := range reports {
		for i := range r.Results {
			s := &r.Results[i]
			for j := range min(len(s.SizeBytes), len(s.NoisePercent)) {
				c := cell{s.Variant, s.Collective, s.Datatype, cmp.Or(s.Placement, v1alpha1.OutOfPlace), s.SizeBytes[j]}
				counts := n[c]
				if counts == nil {
					counts = &[noiseLimit + 1]int32{}
					n[c] = counts
				}
				counts[min(max(s.NoisePercent[j], 0), noiseLimit)]++
			}
		}
	}
	return n
}

func (n noises) of(s *v1alpha1.GroupResultSeries) []int32 {
	out := make([]int32, len(s.SizeBytes))
	known := false
	for i, size := range s.SizeBytes {
		out[i] = median(n[cell{s.Variant, s.Collective, s.Datatype, cmp.Or(s.Placement, v1alpha1.OutOfPlace), size}])
		known = known || out[i] >= 0
	}
	if !known {
		return nil
	}
	return out
}

// median of the counted values, the upper one of two; -1 where there is none.
func median(counts *[noiseLimit + 1]int32) int32 {
	if counts == nil {
		return -1
	}
	var total, below int32
	for _, c := range counts {
		total += c
	}
	for value, c := range counts {
		if below += c; below > total/2 {
			return int32(value)
		}
	}
	return noiseLimit
}
