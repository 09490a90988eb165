// Package runarchive is what is kept of a run after the next one has replaced its results in the CommGroup's status: the controller
// writes one ConfigMap a run, and kubectl commgroup reads them, or files of the same form, to compare two runs.
package runarchive

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Version of the record's form. A reader refuses a newer one.
const Version = 1

// Record is one run: what was asked, what was there, and what was measured. Bandwidths are in 10^6 bytes per second.
type Record struct {
	// Version of this form.
	Version int `json:"version"`
	// Namespace and Name of the CommGroup.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Origin: Simulated where any fact or number came from the simulator.
	Origin v1alpha1.Origin          `json:"origin"`
	Run    *v1alpha1.GroupRunStatus `json:"run"`
	// Summary is the run's entry in the group's history.
	Summary *v1alpha1.RunSummary `json:"summary,omitempty"`
	// Requested is nil where the spec had changed before the run was recorded.
	Requested *Requested               `json:"requested,omitempty"`
	Members   v1alpha1.MemberCounts    `json:"members"`
	Settings  []v1alpha1.SettingStatus `json:"settings,omitempty"`
	// Inventory counts the members by what they are and run.
	Inventory []v1alpha1.InventoryItem `json:"inventory,omitempty"`
	Libraries []Library                `json:"libraries,omitempty"`
	Results   []Series                 `json:"results"`
	// Transport between nodes and Span, the results over several nodes; absent with span Node.
	Transport  string                      `json:"transport,omitempty"`
	Span       []v1alpha1.SpanResultSeries `json:"span,omitempty"`
	Checks     []v1alpha1.PerformanceCheck `json:"checks,omitempty"`
	Culprits   []v1alpha1.Culprit          `json:"culprits,omitempty"`
	DataErrors []v1alpha1.DataErrors       `json:"dataErrors,omitempty"`
}

// Requested is the part of the spec that decides what a run measures.
type Requested struct {
	Span         v1alpha1.Span             `json:"span,omitempty"`
	RanksPerNode int32                     `json:"ranksPerNode,omitempty"`
	Mesh         []v1alpha1.MeshDimension  `json:"mesh,omitempty"`
	Image        string                    `json:"image,omitempty"`
	LibraryPath  string                    `json:"libraryPath,omitempty"`
	Env          []v1alpha1.EnvVar         `json:"env,omitempty"`
	DDA          v1alpha1.DDASpec          `json:"dda,omitzero"`
	LowPrecision v1alpha1.LowPrecisionSpec `json:"lowPrecision,omitzero"`
	Warmup       int32                     `json:"warmupIterations,omitempty"`
	Iterations   int32                     `json:"iterations,omitempty"`
}

// Library is one build of the communication library, and how many members loaded it.
type Library struct {
	v1alpha1.LibraryFacts `json:",inline"`
	Nodes                 int `json:"nodes"`
}

// Series is a series of the group with the noise of its members.
type Series struct {
	v1alpha1.GroupResultSeries `json:",inline"`
	// NoisePercent is, for each size, the members' median of the coefficient of variation over the repeats; -1 where no member
	// told it. Absent where none told any.
	NoisePercent []int32 `json:"noisePercent,omitempty"`
}

// FromStatus is the record of the run that the group's status speaks of; nil where it has none. nodes are the group's CommTasks.
func FromStatus(group *v1alpha1.CommGroup, nodes []v1alpha1.CommTask) *Record {
	s := &group.Status
	if s.Run == nil {
		return nil
	}
	reports := reportsOf(s.Run, nodes)
	r := &Record{
		Version: Version, Namespace: group.Namespace, Name: group.Name, Origin: s.Origin, Run: s.Run.DeepCopy(), Members: s.Members,
		Settings: s.Settings, Inventory: s.Inventory, Libraries: libraries(reports), Results: make([]Series, 0, len(s.Results)),
		Checks: s.Checks, Culprits: s.Culprits, DataErrors: s.DataErrors, Requested: requested(group),
	}
	for i := range s.History {
		if s.History[i].ID == s.Run.ID {
			r.Summary = s.History[i].DeepCopy()
		}
	}
	noise := noiseOf(reports)
	for i := range s.Results {
		r.Results = append(r.Results, Series{GroupResultSeries: s.Results[i], NoisePercent: noise.of(&s.Results[i])})
	}
	if s.Span != nil && s.Span.RunID == s.Run.ID {
		r.Transport, r.Span = s.Span.Transport, s.Span.Results
	}
	return r
}

// requested is nil where the spec is another one than the run measured.
func requested(group *v1alpha1.CommGroup) *Requested {
	if group.Status.Run.Generation != group.Generation {
		return nil
	}
	spec := &group.Spec
	r := &Requested{Span: spec.Span, RanksPerNode: spec.RanksPerNode, Mesh: spec.Mesh, Image: spec.Runtime.Image,
		LibraryPath: spec.Runtime.LibraryPath, Env: spec.OwnVariables(), DDA: spec.DDA, LowPrecision: spec.LowPrecision, Iterations: spec.Benchmark.Iterations}
	if w := spec.Benchmark.WarmupIterations; w != nil {
		r.Warmup = *w
	}
	return r
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

func libraries(reports []*v1alpha1.NodeRunStatus) []Library {
	var out []Library
	at := map[v1alpha1.LibraryFacts]int{}
	for _, r := range reports {
		if r.Library == nil {
			continue
		}
		i, seen := at[*r.Library]
		if !seen {
			i = len(out)
			at[*r.Library] = i
			out = append(out, Library{LibraryFacts: *r.Library})
		}
		out[i].Nodes++
	}
	slices.SortStableFunc(out, func(a, b Library) int { return cmp.Compare(b.Nodes, a.Nodes) })
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
