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

// slowTeams do each step at so many bytes a second, and miss its deadline where that is not enough; hanging GPUs never end one.
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
		out.Failure = &supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "a step", Message: "missed its deadline"}
		return out
	}
	out.Ranks[0].Measurements = []rank.Measurement{{SizeBytes: step.SizesBytes[0], Checks: []rcclx.CheckResult{{WrongElements: wrong}}}}
	return out
}

// TestSearchTellsSlowFromHung: good GPUs that are slow with gigabytes, as in a simulation on few processors, are none of them
// blamed; one that hangs is found all the same; and wrong data is searched for with the size that gave it.
func TestSearchTellsSlowFromHung(t *testing.T) {
	const failed = 4 << 30
	plan := defaultPlan()
	plan.StepDeadlineSeconds = 60
	find := func(teams slowTeams, wrongData bool) Finding {
		pci := make([]string, 8)
		return search(t.Context(), teams, searchTask{node: "n", plan: plan, pci: pci, step: repeatStep(&rank.Position{Kind: rank.StepMeasure, Collective: rcclx.AllReduce, Datatype: rcclx.Float32, Placement: rcclx.InPlace, SizeBytes: 4 << 30}, plan), wrongData: wrongData}, nil).Finding
	}
	if f := find(slowTeams{bytesPerSecond: 16 << 20}, false); len(f.GPUs)+len(f.Links) > 0 || !strings.Contains(f.Why, "stepDeadlineSeconds") {
		t.Errorf("slow and good GPUs: blamed %v %v (%s), expected none and the deadline as what to change", f.GPUs, f.Links, f.Why)
	}
	if f := find(slowTeams{bytesPerSecond: 16 << 20, hanging: []int{5}}, false); !slices.Equal(f.GPUs, []int{5}) {
		t.Errorf("GPU 5 hangs: blamed %v %v (%s)", f.GPUs, f.Links, f.Why)
	}
	if f := find(slowTeams{bytesPerSecond: failed / 30, wrong: []int{2}}, true); !slices.Equal(f.GPUs, []int{2}) {
		t.Errorf("GPU 2 gives wrong data in half of the deadline: blamed %v %v (%s)", f.GPUs, f.Links, f.Why)
	}
	if f := find(slowTeams{bytesPerSecond: failed / 90, wrong: []int{2}}, true); len(f.GPUs)+len(f.Links) > 0 || !strings.Contains(f.Why, "missed its deadline") {
		t.Errorf("wrong data that no communicator is in time to show: blamed %v %v (%s)", f.GPUs, f.Links, f.Why)
	}
}
