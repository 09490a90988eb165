package state

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	running   = v1alpha1.RunPhaseRunning
	finished  = v1alpha1.RunPhaseFinished
	aborted   = v1alpha1.RunPhaseAborted
	suspended = v1alpha1.RunPhaseSuspended
)

// pool is the CommGroup ml/pool.
func pool() *v1alpha1.CommGroup {
	return &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "pool", UID: "uid-pool"}}
}

// shortly is the state of a run as the CommGroup repeats it.
func shortly(number int64, phase v1alpha1.RunPhase) *v1alpha1.GroupRunStatus {
	return &v1alpha1.GroupRunStatus{ID: fmt.Sprintf("1-%d", number), Number: number, Phase: phase}
}

// commRun is one of the pool, whose results and culprits tell its number.
func commRun(number int64, trigger string, phase v1alpha1.RunPhase) v1alpha1.CommRun {
	_, run := (&Group{ObjectMeta: pool().ObjectMeta, Status: Status{Run: shortly(number, phase)}}).Objects()
	run.Status = v1alpha1.CommRunStatus{GroupRunStatus: *shortly(number, phase), RunResults: measured(number)}
	run.Status.Trigger, run.Status.Culprits = trigger, []v1alpha1.Culprit{{Name: fmt.Sprint(number)}}
	return *run
}

// measured is something of everything that a run shows, all of which tells the number.
func measured(number int64) v1alpha1.RunResults {
	text := fmt.Sprint(number)
	return v1alpha1.RunResults{
		Inventory:  []v1alpha1.InventoryItem{{Property: "GPUModel", Value: text}},
		Libraries:  []v1alpha1.RunLibrary{{LibraryFacts: v1alpha1.LibraryFacts{Version: text}, Nodes: 1}},
		Settings:   []v1alpha1.SettingStatus{{Name: text}},
		Results:    []v1alpha1.GroupResultSeries{{SizeBytes: []int64{number}}},
		DataErrors: []v1alpha1.DataErrors{{SizeBytes: []int64{number}}},
		Checks:     []v1alpha1.PerformanceCheck{{Source: text}},
		Advice:     []v1alpha1.SettingAdvice{{Name: text}},
		Span:       &v1alpha1.SpanStatus{RunID: "1-" + text},
	}
}

// results are what of a status is the results of a run.
func (s *Status) results() v1alpha1.RunResults {
	return v1alpha1.RunResults{
		Inventory: s.Inventory, Libraries: s.Libraries, Settings: s.Settings, Results: s.Results,
		DataErrors: s.DataErrors, Checks: s.Checks, Advice: s.Advice, Span: s.Span,
	}
}

func (s *Status) show(r v1alpha1.RunResults) {
	s.Inventory, s.Libraries, s.Settings, s.Results = r.Inventory, r.Libraries, r.Settings, r.Results
	s.DataErrors, s.Checks, s.Advice, s.Span = r.DataErrors, r.Checks, r.Advice, r.Span
}

func TestJoin(t *testing.T) {
	type runs = []v1alpha1.CommRun
	scheduled := func(number int64, phase v1alpha1.RunPhase) v1alpha1.CommRun {
		return commRun(number, TriggerScheduled, phase)
	}
	asked, first := *NewRun(pool(), "asked"), commRun(1, TriggerSpecChanged, finished)
	changed, some := commRun(2, TriggerSpecChanged, running), commRun(2, TriggerNodesChanged, running)
	requested := commRun(2, TriggerRequested, running)
	requestedOfAnother := requested
	requestedOfAnother.Status.SpecHash = "another"
	goesOn := commRun(2, TriggerRequested, suspended)
	stopping, stopped := requested, goesOn
	stopping.Spec.Suspend, stopped.Spec.Suspend = true, true
	for name, tc := range map[string]struct {
		short *v1alpha1.GroupRunStatus
		runs  runs
		run   int64 // its number; 0 for none
		phase v1alpha1.RunPhase
		of    int64 // the run whose results are shown; 0 for none
		// requests and isSuspended are what the status has as Requests and RunSuspended.
		requests    []string
		isSuspended bool
	}{
		"nothing yet":      {},
		"one is asked for": {nil, runs{asked}, 0, "", 0, []string{"asked"}, false},
		"the only run":     {shortly(1, finished), runs{first}, 1, finished, 1, nil, false},
		"the latest one, by its number": {shortly(10, finished),
			runs{scheduled(9, finished), scheduled(10, finished), asked, first}, 10, finished, 10,
			[]string{"asked"}, false},
		"the group is not written yet": {shortly(1, finished), runs{first, some}, 2, running, 2, nil, false},
		"the group never said so":      {nil, runs{first}, 1, finished, 1, nil, false},
		"the CommRun knows it better":  {shortly(1, running), runs{first}, 1, finished, 1, nil, false},
		"the group is newer than any": {shortly(3, running), runs{first, scheduled(2, finished)}, 3,
			running, 0, nil, false},
		"the CommRun is gone": {shortly(1, finished), nil, 1, finished, 0, nil, false},
		"a scheduled repeat goes on": {shortly(2, running), runs{scheduled(2, running), first}, 2,
			running, 1, nil, false},
		"a requested repeat goes on": {shortly(2, running), runs{requested, first}, 2, running, 1, nil, false},
		"a repeat of the latest before it": {shortly(4, running),
			runs{scheduled(4, running), first, scheduled(3, finished), scheduled(2, finished)}, 4,
			running, 3, nil, false},
		"another spec's run before it": {shortly(2, running), runs{requestedOfAnother, first}, 2,
			running, 0, nil, false},
		"a repeat of what is not kept": {shortly(2, running), runs{scheduled(2, running)}, 2, running, 0, nil, false},
		"a repeat ended": {shortly(2, running),
			runs{scheduled(2, finished), first}, 2, finished, 2, nil, false},
		"a repeat was aborted": {shortly(2, running), runs{scheduled(2, aborted), first}, 2,
			aborted, 2, nil, false},
		"the spec has changed":     {shortly(2, running), runs{changed, first}, 2, running, 2, nil, false},
		"a run is being suspended": {shortly(2, running), runs{stopping, first}, 2, running, 1, nil, true},
		"a run is suspended":       {shortly(2, aborted), runs{stopped, first}, 2, aborted, 2, nil, true},
		"a suspended run may go on": {shortly(2, aborted), runs{goesOn, first}, 2, aborted, 2,
			[]string{"pool-2"}, false},
	} {
		group := pool()
		group.Status.Run, group.Status.Culprits = tc.short, []v1alpha1.Culprit{{Name: "0"}}
		before := slices.Clone(tc.runs)
		got := Join(group, tc.runs).Status
		var run v1alpha1.GroupRunStatus
		if got.Run != nil {
			run = *got.Run
		}
		if run.Number != tc.run || run.Phase != tc.phase || tc.run > 0 && run.ID != fmt.Sprintf("1-%d", tc.run) {
			t.Errorf("%s: run %+v, want number %d in phase %q", name, run, tc.run, tc.phase)
		}
		want := v1alpha1.RunResults{}
		if tc.of > 0 {
			want = measured(tc.of)
			want.Inventory = nil // the members' of now, which the CommGroup has
		}
		if latest := Latest(tc.runs); latest != nil && latest.Status.Number == tc.run {
			want.Span = latest.Status.Span // where the present run's stage is
		}
		if diff := cmp.Diff(want, got.results()); diff != "" {
			t.Errorf("%s: results (-want +got)\n%s", name, diff)
		}
		wantID := ""
		if tc.of > 0 {
			wantID = fmt.Sprintf("1-%d", tc.of)
		}
		if named := got.Culprits[0].Name; named != fmt.Sprint(tc.of) || got.CulpritsRunID != wantID {
			t.Errorf("%s: culprits of run %s, named by %q, want those of %d", name, named, got.CulpritsRunID, tc.of)
		}
		if !slices.Equal(got.Requests, tc.requests) || got.RunSuspended != tc.isSuspended {
			t.Errorf("%s: requests %v, suspended %v; want %v, %v", name, got.Requests, got.RunSuspended,
				tc.requests, tc.isSuspended)
		}
		if diff := cmp.Diff(before, tc.runs); diff != "" {
			t.Errorf("%s: an object of the cache was changed\n%s", name, diff)
		}
	}
}

// TestJoinCulprits: a CommRun without any has none, whatever the CommGroup has, which has not yet been written after
// it.
func TestJoinCulprits(t *testing.T) {
	group := pool()
	group.Status.Culprits = []v1alpha1.Culprit{{Name: "a"}}
	run := commRun(1, TriggerSpecChanged, running)
	run.Status.Culprits = nil
	if got := Join(group, []v1alpha1.CommRun{run}).Status.Culprits; len(got) != 0 {
		t.Errorf("culprits %+v, want none", got)
	}
}

// TestSettled: a run is over for those who read the conditions only once the CommGroup's own status says so, too.
func TestSettled(t *testing.T) {
	type runs = []v1alpha1.CommRun
	first, second := commRun(1, TriggerSpecChanged, finished), commRun(2, TriggerNodesChanged, finished)
	for name, tc := range map[string]struct {
		short *v1alpha1.GroupRunStatus
		runs  runs
		want  bool
	}{
		"nothing yet":                {},
		"the group never said so":    {nil, runs{first}, false},
		"the group says it runs":     {shortly(2, running), runs{first, second}, false},
		"the group has one before":   {shortly(1, finished), runs{first, second}, false},
		"both say so":                {shortly(2, finished), runs{first, second}, true},
		"both say it was aborted":    {shortly(1, aborted), runs{commRun(1, TriggerRequested, aborted)}, true},
		"the CommRun is suspended":   {shortly(1, aborted), runs{commRun(1, TriggerRequested, suspended)}, true},
		"the CommRun is gone":        {shortly(2, finished), runs{first}, true},
		"both say it goes on":        {shortly(1, running), runs{commRun(1, TriggerRequested, running)}, false},
		"the next one has begun now": {shortly(1, finished), runs{first, commRun(2, TriggerRequested, running)}, false},
	} {
		group := pool()
		group.Status.Run = tc.short
		if status := Join(group, tc.runs).Status; status.Settled() != tc.want {
			t.Errorf("%s: settled %t, want %t", name, !tc.want, tc.want)
		}
	}
}

// TestRepeatOfADeletedRun: the results of a run before it, which failed, are not what the repeat repeats.
func TestRepeatOfADeletedRun(t *testing.T) {
	group := pool()
	group.Status.Run, group.Status.History = shortly(3, running), []v1alpha1.RunSummary{{ID: "1-2"}, {ID: "1-1"}}
	runs := []v1alpha1.CommRun{commRun(1, TriggerSpecChanged, finished), commRun(3, TriggerScheduled, running)}
	if got := Join(group, runs).Status; got.ResultsRunID != "" || len(got.Culprits)+len(got.Results) > 0 {
		t.Errorf("results of %q, culprits %+v", got.ResultsRunID, got.Culprits)
	}
}

func TestJoinBaseline(t *testing.T) {
	with := func(run v1alpha1.CommRun) v1alpha1.CommRun {
		run.Status.Baseline = &v1alpha1.BaselineStatus{Runs: int32(run.Status.Number)}
		run.Status.Baseline.Series = []v1alpha1.BaselineSeries{{Name: "a"}}
		return run
	}
	first, second := with(commRun(1, TriggerSpecChanged, finished)), with(commRun(2, TriggerScheduled, finished))
	third := commRun(3, TriggerScheduled, running)
	for name, tc := range map[string]struct {
		runs   []v1alpha1.CommRun
		want   int32
		series bool
	}{
		"the newest that has one": {[]v1alpha1.CommRun{second, third, first}, 2, true},
		"the latest one's own":    {[]v1alpha1.CommRun{first, second}, 2, true},
		"none has any":            {[]v1alpha1.CommRun{third}, 7, false},
		"no CommRun at all":       {nil, 7, false},
	} {
		group := pool()
		group.Status.Baseline = &v1alpha1.BaselineStatus{Runs: 7}
		group.Status.Run = shortly(9, finished) // whose CommRun was deleted
		if got := Join(group, tc.runs).Status.Baseline; got.Runs != tc.want || (len(got.Series) > 0) != tc.series {
			t.Errorf("%s: %+v, want that of %d runs, with series %v", name, got, tc.want, tc.series)
		}
	}
}

// TestRequests: the oldest first; what is suspended, was started or goes just now asks for nothing.
func TestRequests(t *testing.T) {
	at := func(name string, second int64) v1alpha1.CommRun {
		r := *NewRun(pool(), name)
		r.CreationTimestamp = metav1.Unix(second, 0)
		return r
	}
	held, going := at("held", 1), at("going", 1)
	held.Spec.Suspend = true
	going.DeletionTimestamp = ptr.To(metav1.Unix(9, 0))
	over := commRun(1, TriggerSpecChanged, finished)
	runs := []v1alpha1.CommRun{at("late", 7), held, at("b", 5), over, at("a", 5), going}
	if got := Join(pool(), runs).Status.Requests; !slices.Equal(got, []string{"a", "b", "late"}) {
		t.Errorf("requests %v", got)
	}
}

// TestKeepMeasured: nodes that change after a run take nothing away from what it measured; while it goes on, and in
// another run, what is seen counts.
func TestKeepMeasured(t *testing.T) {
	for name, tc := range map[string]struct {
		was, now *v1alpha1.GroupRunStatus
		kept     bool
	}{
		"over before":        {shortly(1, finished), shortly(1, finished), true},
		"aborted before":     {shortly(1, aborted), shortly(1, aborted), true},
		"ends just now":      {shortly(1, running), shortly(1, finished), false},
		"goes on":            {shortly(1, running), shortly(1, running), false},
		"another one starts": {shortly(1, finished), shortly(2, running), false},
		"the first one":      {nil, shortly(1, running), false},
		"none":               {nil, nil, false},
	} {
		was, now := Status{Run: tc.was}, Status{Run: tc.now}
		was.show(measured(1))
		now.show(measured(2))
		now.KeepMeasured(&was)
		want := measured(2)
		if old := measured(1); tc.kept {
			want.Libraries, want.Results, want.DataErrors = old.Libraries, old.Results, old.DataErrors
		}
		if diff := cmp.Diff(want, now.results()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestRunStatus: what a CommRun gets of the group's status, by where the run is and what the CommRun has.
func TestRunStatus(t *testing.T) {
	spec := v1alpha1.CommGroupSpec{RanksPerNode: 8, Runtime: v1alpha1.RuntimeSpec{Image: "new"}}
	template := templateOf(&spec)
	old := templateOf(&v1alpha1.CommGroupSpec{RanksPerNode: 4})
	ended := commRun(1, TriggerSpecChanged, finished)
	ended.Status.Template, ended.Status.Members, ended.Status.Origin = old, &v1alpha1.MemberCounts{Passed: 4},
		v1alpha1.OriginSimulated
	ended.Status.Summary = &v1alpha1.RunSummary{ID: "1-1", Members: "4/4"}
	started := commRun(1, TriggerSpecChanged, running)
	started.Status.Template = old
	empty := *NewRun(pool(), "pool-1")
	baseline := &v1alpha1.BaselineStatus{Runs: 3}
	now := v1alpha1.MemberCounts{Passed: 3, Pending: 1}
	all, culprits := measured(9), []v1alpha1.Culprit{{Name: "9"}}
	whole := func(phase v1alpha1.RunPhase, template *v1alpha1.RunTemplate) v1alpha1.CommRunStatus {
		return v1alpha1.CommRunStatus{GroupRunStatus: *shortly(1, phase), RunResults: all, Culprits: culprits,
			Template: template, Origin: v1alpha1.OriginHardware}
	}
	// over is one that has ended, with the members and summary of now or those that it had before.
	over := func(phase v1alpha1.RunPhase, of *v1alpha1.RunTemplate,
		summary *v1alpha1.RunSummary) v1alpha1.CommRunStatus {
		s := whole(phase, of)
		s.Members, s.Summary, s.Baseline = &now, summary, baseline
		return s
	}
	before := over(finished, old, ended.Status.Summary)
	before.Members, before.Inventory, before.Origin = ended.Status.Members, ended.Status.Inventory,
		v1alpha1.OriginSimulated
	repeat := whole(running, template)
	repeat.RunResults, repeat.Culprits = v1alpha1.RunResults{Span: all.Span}, nil
	repeat.Trigger = TriggerScheduled
	another := commRun(7, "", finished)
	history := []v1alpha1.RunSummary{{ID: "1-1", Members: "3/4"}, {ID: "1-0"}}
	for name, tc := range map[string]struct {
		stored  v1alpha1.CommRun
		trigger string
		phase   v1alpha1.RunPhase
		history []v1alpha1.RunSummary
		want    v1alpha1.CommRunStatus
	}{
		"it starts":                         {empty, "", running, nil, whole(running, template)},
		"it goes on":                        {started, "", running, nil, whole(running, old)},
		"it ends":                           {started, "", finished, history, over(finished, old, &history[0])},
		"it ends, and is not in history":    {started, "", finished, history[1:], over(finished, old, nil)},
		"it was over, and nodes change":     {ended, "", finished, history, before},
		"it is aborted":                     {started, "", aborted, nil, over(aborted, old, nil)},
		"a repeat goes on":                  {empty, TriggerScheduled, running, history, repeat},
		"another run had its name":          {another, "", running, nil, whole(running, template)},
		"another run had its name, and end": {another, "", finished, nil, over(finished, template, nil)},
	} {
		g := &Group{ObjectMeta: pool().ObjectMeta, Spec: spec, Status: Status{
			Run: shortly(1, tc.phase), Members: now, Origin: v1alpha1.OriginHardware,
			Culprits: culprits, Baseline: baseline, History: tc.history,
		}}
		g.Status.Run.Trigger = tc.trigger
		g.Status.show(all)
		unchanged := tc.stored.DeepCopy()
		if diff := cmp.Diff(tc.want, g.RunStatus(&tc.stored)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(unchanged, &tc.stored); diff != "" {
			t.Errorf("%s: the stored object was changed\n%s", name, diff)
		}
	}
}

// TestSuspension: a run that spec.suspend has ended is Suspended for its CommRun, where it is Aborted for the group.
func TestSuspension(t *testing.T) {
	for name, tc := range map[string]struct {
		suspend     bool
		stored, now v1alpha1.RunPhase
		want        v1alpha1.RunPhase
	}{
		"it is suspended":              {true, running, aborted, suspended},
		"it stays suspended":           {true, suspended, aborted, suspended},
		"it may go on, and waits":      {false, suspended, aborted, suspended},
		"it was aborted by something":  {false, running, aborted, aborted},
		"it was aborted before":        {true, aborted, aborted, aborted},
		"it had ended before":          {true, finished, finished, finished},
		"it ends before it is stopped": {true, running, finished, finished},
		"it is not stopped yet":        {true, running, running, running},
	} {
		stored := commRun(1, TriggerSpecChanged, tc.stored)
		stored.Spec.Suspend = tc.suspend
		g := Join(pool(), []v1alpha1.CommRun{stored})
		g.Status.Run.Phase = tc.now
		if got := g.RunStatus(&stored).Phase; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestTemplateHasOwnVariablesOnly: what the operator computes is not what the user asked for.
func TestTemplateHasOwnVariablesOnly(t *testing.T) {
	computed := v1alpha1.ComputedVariables()[0]
	spec := &v1alpha1.CommGroupSpec{}
	spec.Runtime.Env = []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: computed, Value: "1"}}
	got := templateOf(spec).Runtime.Env
	if len(got) != 1 || got[0].Name != "NCCL_DEBUG" || len(spec.Runtime.Env) != 2 {
		t.Errorf("of NCCL_DEBUG and %s: %+v; the spec has %+v", computed, got, spec.Runtime.Env)
	}
}

// TestGroupStatus: the CommGroup has the worst of the culprits in short, and no series of the baseline.
func TestGroupStatus(t *testing.T) {
	long := strings.Repeat("Ä", 200) // 400 bytes, no rune of which ends at an odd one
	s := Status{Baseline: &v1alpha1.BaselineStatus{Runs: 3, Series: []v1alpha1.BaselineSeries{{Name: "a"}}}}
	for i, message := range []string{"short", long, "x" + long, strings.Repeat("y", 256), strings.Repeat("z", 512)} {
		s.Culprits = append(s.Culprits, v1alpha1.Culprit{Name: fmt.Sprint(i), Message: message})
	}
	before := s.DeepCopy()
	got := s.GroupStatus()
	if len(got.Culprits) != 4 {
		t.Fatalf("%d culprits, want 4", len(got.Culprits))
	}
	for i, c := range got.Culprits {
		whole := s.Culprits[i].Message
		start, cut := strings.CutSuffix(c.Message, "...")
		fits := len(c.Message) <= 256 && len(start) >= min(len(whole), 252) && cut == (len(whole) > 256)
		if c.Name != fmt.Sprint(i) || !fits || !utf8.ValidString(c.Message) || !strings.HasPrefix(whole, start) {
			t.Errorf("culprit %d is %q (%d bytes) of %q", i, c.Message, len(c.Message), whole)
		}
	}
	if got.Baseline == nil || got.Baseline.Runs != 3 || got.Baseline.Series != nil {
		t.Errorf("baseline %+v, want it without its series", got.Baseline)
	}
	if diff := cmp.Diff(before, &s); diff != "" {
		t.Errorf("the status itself was changed\n%s", diff)
	}
}

func TestRunsOf(t *testing.T) {
	own := commRun(1, TriggerSpecChanged, finished)
	asked := *NewRun(pool(), "asked")
	taken := asked
	taken.OwnerReferences = own.OwnerReferences
	earlier, orphan, elsewhere, other := own, own, asked, asked
	earlier.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup",
		Name: "pool", UID: "uid-earlier"}}
	orphan.OwnerReferences = nil
	elsewhere.Namespace = "another"
	other.Spec.GroupName = "pool-2"
	waits := asked
	waits.OwnerReferences = earlier.OwnerReferences
	ofWorkflow := asked
	ofWorkflow.OwnerReferences = []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow",
		Name: "nightly", UID: "w"}}
	foreign := other
	foreign.OwnerReferences = own.OwnerReferences
	for name, tc := range map[string]struct {
		run  v1alpha1.CommRun
		want bool
	}{
		"its own":                                   {own, true},
		"one that a user created":                   {asked, true},
		"one that a workflow created":               {ofWorkflow, true},
		"its own, which has not started":            {taken, true},
		"an earlier group's":                        {earlier, false},
		"an earlier group's, which has not started": {waits, false},
		"one that has run, and is nobody's":         {orphan, false},
		"one of another namespace":                  {elsewhere, false},
		"another group's":                           {other, false},
		"another group's by its spec":               {foreign, false},
	} {
		if got := RunsOf(pool(), []v1alpha1.CommRun{tc.run}); (len(got) == 1) != tc.want {
			t.Errorf("%s: %d runs, want it among them: %v", name, len(got), tc.want)
		}
	}
}

// full is a group that has something of everything.
func full() *Group {
	at := func(second int64) *metav1.Time { return ptr.To(metav1.NewTime(time.Unix(1_800_000_000+second, 0))) }
	g := &Group{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup"},
		ObjectMeta: pool().ObjectMeta,
		Spec:       v1alpha1.CommGroupSpec{RanksPerNode: 8, Span: v1alpha1.SpanGroup},
		Status: Status{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "False",
				LastTransitionTime: *at(9)}},
			ObservedGeneration: 2,
			Origin:             v1alpha1.OriginSimulated,
			Members:            v1alpha1.MemberCounts{Selected: 4, Passed: 3, Failed: 1, Summary: "3/4"},
			Run: &v1alpha1.GroupRunStatus{Name: "pool-7", ID: "1-7", Number: 7, Generation: 2, Since: 5,
				Trigger: TriggerScheduled, Phase: finished, Verdict: v1alpha1.VerdictFail,
				StartTime: *at(0), FinishTime: at(8), BaselineKey: "key"},
			Template:      &v1alpha1.RunTemplate{RanksPerNode: 4}, // of the run's start; the spec is another by now
			Effective:     "DDA",
			Headline:      &v1alpha1.Headline{BusBandwidthMBps: 300_000},
			CulpritsRunID: "1-7",
			Baseline: &v1alpha1.BaselineStatus{Key: "key", Runs: 3, LastRunID: "1-6", Since: *at(-99),
				Series: []v1alpha1.BaselineSeries{{Name: "a", SamplesMBps: []int64{1, 2}}}},
			History:     []v1alpha1.RunSummary{{ID: "1-7", StartTime: *at(0)}, {ID: "1-6", StartTime: *at(-9)}},
			Trend:       v1alpha1.TrendStable,
			Plan:        &v1alpha1.RunPlan{Iterations: 20, Env: []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}}},
			Budget:      &v1alpha1.BudgetStatus{Day: "2027-01-15", UsedGPUMinutes: 7},
			Gating:      &v1alpha1.GatingStatus{Gated: 1, Nodes: []string{"n1"}},
			WouldGate:   []string{"n2"},
			Remarks:     []v1alpha1.Remark{{Reason: "ClockSkew", Message: "the clock of n1"}},
			Published:   &v1alpha1.PublishedStatus{ConfigMapName: "pool-rccl-settings", Time: *at(8)},
			NextRunTime: at(3600),
			Schedule:    &v1alpha1.ScheduleStatus{Line: "0 3 * * *", Since: *at(-999)},
		},
	}
	g.Status.show(measured(7))
	g.Status.ResultsRunID = "1-7"
	for i := range 16 {
		culprit := v1alpha1.Culprit{Name: fmt.Sprintf("n%d", i), Message: strings.Repeat("m", 500)}
		g.Status.Culprits = append(g.Status.Culprits, culprit)
	}
	return g
}

// TestRoundTrip: what the objects have is the whole of the value, also as they are sent.
func TestRoundTrip(t *testing.T) {
	want := full()
	status := reflect.ValueOf(want.Status)
	ofUnended := []string{"Requests", "RunSuspended", "Behind"} // of runs that have not ended, or not in both objects
	for i := range status.NumField() {
		if name := status.Type().Field(i).Name; status.Field(i).IsZero() && !slices.Contains(ofUnended, name) {
			t.Errorf("the example has no %s", name)
		}
	}
	group, run := want.DeepCopy().Objects()
	if diff := cmp.Diff(want, Join(group, RunsOf(group, []v1alpha1.CommRun{*run}))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var sentGroup v1alpha1.CommGroup
	var sentRun v1alpha1.CommRun
	for from, to := range map[any]any{group: &sentGroup, run: &sentRun} {
		data, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, Join(&sentGroup, RunsOf(&sentGroup, []v1alpha1.CommRun{sentRun}))); diff != "" {
		t.Errorf("as JSON (-want +got)\n%s", diff)
	}
	if group, run := (&Group{ObjectMeta: want.ObjectMeta}).Objects(); run != nil || group.Name != "pool" {
		t.Errorf("before the first run: CommGroup %q and CommRun %+v, want no CommRun", group.Name, run)
	}
}

// TestLoad: one group, and all of a namespace or of the cluster, each with its own runs.
func TestLoad(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i, key := range [][2]string{{"ml", "pool"}, {"ml", "pool-2"}, {"other", "pool"}} {
		g := &Group{Status: Status{Run: shortly(int64(i+1), finished)}}
		g.Namespace, g.Name, g.UID = key[0], key[1], "uid-x"
		g.Status.show(measured(int64(i + 1)))
		group, run := g.Objects()
		b = b.WithObjects(group, run)
	}
	b = b.WithObjects(&v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "never-ran"}})
	c := b.Build()
	told := func(g *Group) string {
		if g.Status.Run == nil {
			return g.Name + " without a run"
		}
		return fmt.Sprintf("%s/%s with %d", g.Namespace, g.Name, g.Status.Results[0].SizeBytes[0])
	}
	one, err := Load(t.Context(), c, client.ObjectKey{Namespace: "other", Name: "pool"})
	if err != nil || told(one) != "other/pool with 3" {
		t.Errorf("one: %v, %v", one, err)
	}
	_, err = Load(t.Context(), c, client.ObjectKey{Namespace: "ml", Name: "nobody"})
	if err == nil || client.IgnoreNotFound(err) != nil {
		t.Errorf("one that is not there: %v", err)
	}
	for namespace, want := range map[string][]string{
		"ml": {"never-ran without a run", "ml/pool with 1", "ml/pool-2 with 2"},
		"":   {"never-ran without a run", "ml/pool with 1", "ml/pool-2 with 2", "other/pool with 3"},
	} {
		all, err := LoadAll(t.Context(), c, namespace)
		var got []string
		for i := range all {
			got = append(got, told(&all[i]))
		}
		slices.Sort(got)
		if slices.Sort(want); err != nil || !slices.Equal(got, want) {
			t.Errorf("namespace %q: %q, %v; want %q", namespace, got, err, want)
		}
	}
}
