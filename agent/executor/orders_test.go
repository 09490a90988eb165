package executor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	open := func(change func(*api.SessionAssignment)) Seen {
		a := testAssignment()
		if change != nil {
			change(&a)
		}
		return Seen{Session: &a}
	}
	task := within("mesh-tp-1")[0]
	with := func(change func(*api.NodeTask)) Seen {
		x := task.DeepCopy()
		if change != nil {
			change(x)
		}
		return open(func(a *api.SessionAssignment) { a.Task = x })
	}
	withID := task.DeepCopy()
	withID.Communicators[0].UniqueID = []byte{1}
	for _, tc := range []struct {
		name string
		last *api.NodeTask
		seen Seen
		want order
	}{
		{"nothing seen", &task, Seen{Err: errors.New("timeout")}, stay},
		{"gone", &task, Seen{Gone: true}, superseded},
		{"no session", &task, Seen{}, superseded},
		{"another run", &task, open(func(a *api.SessionAssignment) { a.RunID = "run-2" }), superseded},
		{"ended", &task, open(func(a *api.SessionAssignment) { a.State, a.Task = api.SessionClosed, &task }), end},
		{"no task yet", nil, open(nil), stay},
		{"withdrawn", &task, open(nil), drop},
		{"first", nil, with(nil), take},
		{"the same", &task, with(nil), stay},
		{"an id comes", &task, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{1} }), stay},
		{"the same id", withID, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{1} }), stay},
		{"another unique id", withID, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{2} }), take},
		{"another task", &task, with(func(x *api.NodeTask) { x.ID = "mesh-tp-2" }), take},
		{"other sizes", &task, with(func(x *api.NodeTask) { x.SizesBytes = []int64{8} }), take},
		{"other ranks", &task, with(func(x *api.NodeTask) { x.Communicators[0].Ranks = []int32{1, 0} }), take},
		{"a communicator more", &task,
			with(func(x *api.NodeTask) { x.Communicators = append(x.Communicators, x.Communicators[0]) }), take},
	} {
		if got, why := decide("run-1", tc.last, tc.seen); got != tc.want ||
			(got == superseded || got == drop || got == end) != (why != "") {
			t.Errorf("%s: %d (%s), expected %d", tc.name, got, why, tc.want)
		}
	}
}

func TestCheckTask(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*api.NodeTask)
		words  string
	}{
		"good": {func(*api.NodeTask) {}, ""},
		"none": {func(x *api.NodeTask) { x.Communicators = nil }, "no communicator"},
		"twice": {func(x *api.NodeTask) { x.Communicators = append(x.Communicators, x.Communicators[0]) },
			"there twice"},
		"no device": {func(x *api.NodeTask) {
			x.Communicators[0].Devices, x.Communicators[0].Ranks = nil, nil
		}, "0 devices"},
		"a rank too few": {func(x *api.NodeTask) { x.Communicators[0].Ranks = []int32{0} },
			"2 devices for 1 ranks"},
		"a world too small":  {func(x *api.NodeTask) { x.Communicators[0].WorldSize = 1 }, "1 ranks over 1 nodes"},
		"over no node":       {func(x *api.NodeTask) { x.Communicators[0].Nodes = 0 }, "over 0 nodes"},
		"GPU not there":      {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = 2 }, "GPU 2"},
		"negative GPU":       {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = -1 }, "GPU -1"},
		"one GPU twice":      {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = 0 }, "may be in one"},
		"one rank twice":     {func(x *api.NodeTask) { x.Communicators[0].Ranks[1] = 0 }, "rank 0 of 2"},
		"rank past the last": {func(x *api.NodeTask) { x.Communicators[0].Ranks[1] = 2 }, "rank 2 of 2"},
		"long id":            {func(x *api.NodeTask) { x.Communicators[0].UniqueID = make([]byte, 129) }, "129 bytes"},
		"no iterations":      {func(x *api.NodeTask) { x.Iterations = 0 }, "0 iterations"},
		"no deadline":        {func(x *api.NodeTask) { x.DeadlineSeconds = 0 }, "deadline of 0"},
	} {
		task := within("t-1")[0]
		tc.change(&task)
		if got := checkTask(task, 2); (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
			t.Errorf("%s: %q, expected %q", name, got, tc.words)
		}
	}
}

// FuzzTask: whatever the CommTask asks for, a task is refused or can be planned and judged.
func FuzzTask(f *testing.F) {
	for _, task := range []api.NodeTask{within("a")[0], *meshTask("b"), wholeGroup("c", make([]*member, 2))[0], {}} {
		data, err := json.Marshal(task)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var task api.NodeTask
		if json.Unmarshal(data, &task) != nil || checkTask(task, 4) != "" {
			return
		}
		if !sameTask(task, task) || len(newIDs(task, task)) > 0 {
			t.Errorf("%+v is not itself", task)
		}
		for _, c := range task.Communicators {
			var specs []rank.Spec
			for i, r := range c.Ranks {
				specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]),
					Steps: taskSteps(task, int(c.WorldSize))})
			}
			s := judgePart("node-a", task, c, ended{outcome: passed(specs)}, isRoot(c))
			if s.Verdict != api.VerdictPass && s.Verdict != api.VerdictError ||
				s.Verdict == api.VerdictError && s.Message == "" {
				t.Errorf("%+v gives %+v", c, s)
			}
			if o := passed(specs); len(o.Ranks[0].Measurements) > 0 {
				o.Ranks[0].Measurements = o.Ranks[0].Measurements[1:]
				if s := judgePart("node-a", task, c, ended{outcome: o}, isRoot(c)); s.Verdict == api.VerdictPass {
					t.Errorf("%+v passes although a measurement is missing", c)
				}
			}
		}
	})
}
