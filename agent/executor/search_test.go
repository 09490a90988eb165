package executor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/rcclx"
)

// slowTeams do each step at so many bytes a second, and miss its deadline where that is not enough; hanging GPUs never
// end one.
type slowTeams struct {
	bytesPerSecond int64
	hanging        []int
	wrong          []int
}

func (s slowTeams) Run(_ context.Context, team supervise.Team) supervise.Outcome {
	out := supervise.Outcome{Team: team.Name, Ranks: make([]supervise.RankOutcome, len(team.Specs))}
	step, wrong := team.Specs[0].Steps[0], int64(0)
	late := time.Duration(step.SizesBytes[0]/s.bytesPerSecond)*time.Second > team.Specs[0].StepDeadline
	for _, spec := range team.Specs {
		late = late || slices.Contains(s.hanging, spec.Device)
		if slices.Contains(s.wrong, spec.Device) {
			wrong = 7
		}
	}
	if late {
		out.Failure = &supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "a step",
			Message: "missed its deadline"}
		return out
	}
	out.Ranks[0].Measurements = []rank.Measurement{{SizeBytes: step.SizesBytes[0],
		Checks: []rcclx.CheckResult{{WrongElements: wrong}}}}
	return out
}

// TestSearchTellsSlowFromHung: good GPUs that are slow with gigabytes, as in a simulation on few processors, are none
// of them blamed; one that hangs is found all the same; and wrong data is searched for with the size that gave it.
func TestSearchTellsSlowFromHung(t *testing.T) {
	const failed = 4 << 30
	plan := defaultPlan()
	plan.StepDeadlineSeconds = 60
	for name, c := range map[string]struct {
		teams     slowTeams
		wrongData bool
		blamed    []int
		why       string
	}{
		"slow and good GPUs": {slowTeams{bytesPerSecond: 16 << 20}, false, nil, "stepDeadlineSeconds"},
		"GPU 5 hangs":        {slowTeams{bytesPerSecond: 16 << 20, hanging: []int{5}}, false, []int{5}, "found by"},
		"GPU 2 gives wrong data in half of the deadline": {slowTeams{bytesPerSecond: failed / 30, wrong: []int{2}},
			true, []int{2}, "found by"},
		"wrong data that no communicator is in time to show": {slowTeams{bytesPerSecond: failed / 90, wrong: []int{2}},
			true, nil, "missed its deadline"},
	} {
		step := repeatStep(&rank.Position{Kind: rank.StepMeasure, Collective: rcclx.AllReduce, Datatype: rcclx.Float32,
			Placement: rcclx.InPlace, SizeBytes: failed}, plan)
		s := search(t.Context(), c.teams,
			searchTask{node: "n", plan: plan, pci: make([]string, 8), step: step, wrongData: c.wrongData}, nil)
		if !slices.Equal(s.Finding.Members, c.blamed) || len(s.Finding.Pairs) > 0 || !strings.Contains(s.why(), c.why) {
			t.Errorf("%s: blamed %v %v (%s)", name, s.Finding.Members, s.Finding.Pairs, s.why())
		}
	}
}
