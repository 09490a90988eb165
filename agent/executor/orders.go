package executor

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// order is what a session has to do next.
type order int

const (
	stay       order = iota // go on
	take                    // a new task, in place of the present one, if any
	drop                    // the present task was withdrawn
	end                     // no task follows
	superseded              // nobody waits for this session any more
)

// decide compares what the CommTask says with the task that was taken up last, nil where none was. why is for messages.
func decide(runID string, last *api.NodeTask, seen Seen) (o order, why string) {
	s := seen.Session
	switch {
	case seen.Err != nil:
		return stay, ""
	case seen.Gone:
		return superseded, cmp.Or(seen.Why, "the CommTask is gone")
	case s == nil:
		return superseded, "the CommTask asks for no session any more"
	case s.RunID != runID:
		return superseded, fmt.Sprintf("the CommTask asks for run %s, this session is of run %s", s.RunID, runID)
	case s.State == api.SessionClosed:
		return end, "no task follows"
	case s.Task == nil && last == nil:
		return stay, ""
	case s.Task == nil:
		return drop, "the task was withdrawn"
	case last != nil && sameTask(*last, *s.Task):
		return stay, ""
	}
	return take, ""
}

// sameTask says whether b is a, perhaps with unique ids that were not known before. A task with another unique id for a
// communicator is another one: its ranks cannot meet those of the first.
func sameTask(a, b api.NodeTask) bool {
	if len(a.Communicators) != len(b.Communicators) {
		return false
	}
	for i := range a.Communicators {
		if x, y := a.Communicators[i].UniqueID, b.Communicators[i].UniqueID; len(x) > 0 && len(y) > 0 &&
			!bytes.Equal(x, y) {
			return false
		}
	}
	a, b = withoutIDs(a), withoutIDs(b)
	return reflect.DeepEqual(a, b)
}

func withoutIDs(t api.NodeTask) api.NodeTask {
	t.Communicators = slices.Clone(t.Communicators)
	for i := range t.Communicators {
		t.Communicators[i].UniqueID = nil
	}
	return t
}

// newIDs are the indexes of communicators whose unique id b has and a lacks.
func newIDs(a, b api.NodeTask) []int {
	var out []int
	for i := range a.Communicators {
		if len(a.Communicators[i].UniqueID) == 0 && len(b.Communicators[i].UniqueID) > 0 {
			out = append(out, i)
		}
	}
	return out
}

// isRoot says whether this node has rank 0 of the communicator, and so makes its unique id.
func isRoot(c api.TaskCommunicator) bool { return slices.Contains(c.Ranks, 0) }

// maxRepeats is what NodeTask.Repeats may be at most.
const maxRepeats = 9

// checkTask says what keeps a task from being carried out on a node of so many GPUs; empty where nothing does.
func checkTask(t api.NodeTask, gpus int) string {
	used := map[int32]string{}
	names := map[string]bool{}
	for _, c := range t.Communicators {
		switch {
		case names[c.Name]:
			return fmt.Sprintf("communicator %s is there twice", c.Name)
		case len(c.Devices) == 0 || len(c.Devices) != len(c.Ranks):
			return fmt.Sprintf("communicator %s has %d devices for %d ranks: expected as many, and one at least",
				c.Name, len(c.Devices), len(c.Ranks))
		case c.Nodes < 1 || int(c.WorldSize) < len(c.Ranks):
			return fmt.Sprintf("communicator %s has %d ranks over %d nodes, of which %d are here",
				c.Name, c.WorldSize, c.Nodes, len(c.Ranks))
		case len(c.UniqueID) > uniqueIDBytes:
			return fmt.Sprintf("communicator %s has a unique id of %d bytes, expected at most %d",
				c.Name, len(c.UniqueID), uniqueIDBytes)
		}
		names[c.Name] = true
		for _, d := range c.Devices {
			if other, is := used[d]; is {
				return fmt.Sprintf("GPU %d is in communicators %s and %s: each rank may be in one", d, other, c.Name)
			}
			if d < 0 || int(d) >= gpus {
				return fmt.Sprintf("communicator %s wants GPU %d, and this node gives GPUs 0 to %d", c.Name, d, gpus-1)
			}
			used[d] = c.Name
		}
		for i, r := range c.Ranks {
			if r < 0 || r >= c.WorldSize || slices.Contains(c.Ranks[:i], r) {
				return fmt.Sprintf("communicator %s has rank %d of %d, expected each once and from 0 to %d",
					c.Name, r, c.WorldSize, c.WorldSize-1)
			}
		}
	}
	if len(t.Communicators) == 0 {
		return "the task has no communicator"
	}
	if t.Repeats < 0 || t.Repeats > maxRepeats {
		return fmt.Sprintf("the task has %d repeats, expected at most %d", t.Repeats, maxRepeats)
	}
	if t.Iterations < 1 || t.DeadlineSeconds < 1 {
		return fmt.Sprintf("the task has %d iterations and a deadline of %d s, expected at least 1 of each",
			t.Iterations, t.DeadlineSeconds)
	}
	return ""
}
