package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/simtest"
)

// member is one simulated node with its session.
type member struct {
	name   string
	link   *memoryLink
	cancel context.CancelCauseFunc
	ended  chan error
	done   sync.WaitGroup
	result SessionResult
}

const ranksPerNode = 2

// startMembers starts a session of real rank processes on each node; fault belongs to the last of them.
func startMembers(t *testing.T, nodes int, fault string, change func(*api.RunPlan)) []*member {
	t.Helper()
	shared := t.TempDir()
	out := make([]*member, nodes)
	for i := range out {
		own := "none"
		if i == nodes-1 {
			own = fault
		}
		m := &member{name: fmt.Sprintf("node-%c", 'a'+i), ended: make(chan error, 1)}
		root := simulatedRoot(t, m.name, own)
		a := api.SessionAssignment{RunID: "run-1", Index: int32(i), Members: int32(nodes), Ranks: ranksPerNode,
			IdleDeadlineSeconds: 60, State: api.SessionOpen}
		m.link = newMemoryLink(a)
		m.link.seen.Plan = api.RunPlan{InitDeadlineSeconds: 60, StepDeadlineSeconds: 60}
		if change != nil {
			change(&m.link.seen.Plan)
		}
		node := simulatedNode(t, root, t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", m.name))
		node.Name, node.Host = m.name, preflightHost{preflight.PodHost{Root: root}, -1}
		node.Environ = append(node.Environ, "SIMROCM_SHM_DIR="+shared, "POD_IP=10.9.0.1")
		s := &Session{
			Node:   node,
			Config: Config{RunID: "run-1", Wait: patience, ReportGrace: patience, InterruptedGrace: patience},
			Link:   m.link, Network: networkHost{network.NodeHost{Root: root}}, Preparer: node,
		}
		var ctx context.Context
		ctx, m.cancel = context.WithCancelCause(context.Background())
		m.done.Go(func() {
			var err error
			m.result, err = s.Run(ctx)
			m.ended <- err
		})
		out[i] = m
	}
	t.Cleanup(func() {
		for _, m := range out {
			m.cancel(errors.New("the test is over"))
			m.done.Wait() // it logs to the test until it is over
		}
	})
	for _, m := range out {
		m.link.waitReady(t)
	}
	return out
}

func (m *member) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("%s: the session does not end", m.name)
		return nil
	}
}

func endAll(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members {
		m.link.change(func(s *Seen) { s.Session.State, s.Session.Task = api.SessionClosed, nil })
	}
	for _, m := range members {
		if err := m.wait(t); err != nil || m.result.Status.State != api.SessionEnded || !m.result.Reported {
			t.Errorf("%s: %v, %+v", m.name, err, m.result)
		}
	}
	simtest.NoChildren(t)
}

func testTask(id string) api.NodeTask {
	return api.NodeTask{ID: id, Collectives: []api.Collective{api.AllReduce}, Datatypes: []api.Datatype{api.Float32},
		SizesBytes: []int64{4096, 1 << 20}, WarmupIterations: 1, Iterations: 3, DeadlineSeconds: 120}
}

// wholeGroup gives each member its part of one communicator over all ranks of all nodes.
func wholeGroup(id string, members []*member) []api.NodeTask {
	out := make([]api.NodeTask, len(members))
	for i := range members {
		out[i] = testTask(id)
		c := api.TaskCommunicator{Name: "group", WorldSize: int32(ranksPerNode * len(members)),
			Nodes: int32(len(members))}
		for d := range int32(ranksPerNode) {
			c.Devices, c.Ranks = append(c.Devices, d), append(c.Ranks, int32(i*ranksPerNode)+d)
		}
		out[i].Communicators = []api.TaskCommunicator{c}
	}
	return out
}

// rails gives each member its part of one communicator for each GPU; the node of rank 0 is that of the GPU's number.
func rails(id string, members []*member) []api.NodeTask {
	out := make([]api.NodeTask, len(members))
	for i := range members {
		out[i] = testTask(id)
		for d := range int32(ranksPerNode) {
			r := (int32(i) - d + int32(len(members))) % int32(len(members))
			out[i].Communicators = append(out[i].Communicators, api.TaskCommunicator{Name: fmt.Sprintf("rail/%d", d),
				WorldSize: int32(len(members)), Nodes: int32(len(members)), Devices: []int32{d}, Ranks: []int32{r}})
		}
	}
	return out
}

// assign plays the controller: the nodes with rank 0 get the task first, and then everybody gets it with all unique
// ids.
func assign(t *testing.T, members []*member, tasks []api.NodeTask) {
	t.Helper()
	ids := map[string][]byte{}
	for i, m := range members {
		var own []string
		for _, c := range tasks[i].Communicators {
			if isRoot(c) {
				own = append(own, c.Name)
			}
		}
		if len(own) == 0 {
			continue
		}
		m.link.change(func(s *Seen) { s.Session.Task = tasks[i].DeepCopy() })
		for name, id := range m.link.waitIDs(t, tasks[i].ID, own...) {
			ids[name] = id
		}
	}
	for i, m := range members {
		for k := range tasks[i].Communicators {
			if c := &tasks[i].Communicators[k]; !isRoot(*c) {
				c.UniqueID = ids[c.Name]
			}
		}
		m.link.change(func(s *Seen) { s.Session.Task = tasks[i].DeepCopy() })
	}
}

func finished(t *testing.T, members []*member, id string) []api.NodeTaskStatus {
	t.Helper()
	out := make([]api.NodeTaskStatus, len(members))
	for i, m := range members {
		out[i] = m.link.waitFinished(t, id)
		for _, c := range out[i].Communicators {
			t.Logf("%s %s %s: %s %s at %q, transport %s, guilty %+v: %s",
				m.name, id, c.Name, c.Verdict, c.Reason, c.Step, c.Transport, c.Guilty, c.Message)
		}
	}
	return out
}

// TestTasksOverNodes: one communicator over three nodes, then one for each GPU at the same time, and the group again.
func TestTasksOverNodes(t *testing.T) {
	members := startMembers(t, 3, "none", nil)
	for _, m := range members {
		s := m.link.waitReady(t)
		if s.Network == nil || s.Network.Interface != interfaceName || s.Network.Clock == nil || s.Library == nil ||
			s.Library.Flavor != "simulated" || s.SettingsHash == "" {
			t.Errorf("%s is ready with %+v %+v %q", m.name, s.Network, s.Library, s.SettingsHash)
		}
	}
	tasks := []struct {
		tasks []api.NodeTask
		world int
	}{{wholeGroup("group-1", members), 6}, {rails("localize-1-1", members), 3}, {wholeGroup("group-2", members), 6}}
	for i := range members {
		tasks[0].tasks[i].Repeats = 3
	}
	for _, task := range tasks {
		id := task.tasks[0].ID
		assign(t, members, task.tasks)
		for i, s := range finished(t, members, id) {
			for k, c := range s.Communicators {
				if c.Verdict != api.VerdictPass || c.Transport != "RDMA" || c.InitNanoseconds == nil ||
					c.Guilty != nil {
					t.Errorf("%s %s: %+v", id, members[i].name, c)
				}
				root := isRoot(task.tasks[i].Communicators[k])
				if (len(c.Results) == 1) != root {
					t.Fatalf("%s %s %s has %d series; rank 0 here: %v",
						id, members[i].name, c.Name, len(c.Results), root)
				}
				if n := task.tasks[i].Repeats; root &&
					(c.Repeats != n || (len(c.Results[0].SpreadPercent) == 2) != (n > 1)) {
					t.Errorf("%s %s %s: %d repeats, expected %d: %+v",
						id, members[i].name, c.Name, c.Repeats, n, c.Results[0])
				}
				if root && (!slices.Equal(c.Results[0].SizeBytes, []int64{4096, 1 << 20}) ||
					c.Results[0].BusBandwidthMBps[1] < 1000 || c.Results[0].WrongElements != 0) {
					t.Errorf("%s %s %s: %+v", id, members[i].name, c.Name, c.Results[0])
				}
			}
		}
	}
	endAll(t, members)
	for _, m := range members {
		if m.result.Tasks != len(tasks) {
			t.Errorf("%s carried out %d tasks", m.name, m.result.Tasks)
		}
		// Ready, at most three a task, and the end.
		if n := len(m.link.reports); n > 2+3*len(tasks) {
			t.Errorf("%s wrote %d reports", m.name, n)
		}
		for _, s := range m.link.reports {
			if n := encodedBytes(s); n > mostBytes {
				t.Errorf("%s: a report of %d bytes", m.name, n)
			}
		}
	}
}

// TestFaultsAcrossNodes: what shows only over several nodes is told by each of them, and only who knows itself at fault
// says so.
func TestFaultsAcrossNodes(t *testing.T) {
	for _, tc := range []struct {
		fault   string
		reason  string // of the node without the fault; empty for any
		faulty  string // reason of the node that has it
		guilty  bool   // the node that has it says so
		seconds int32
	}{
		{"hang-across", "", api.ReasonRankHung, false, 4},
		{"die-across", "", api.ReasonRankDied, true, 6},
		{"wrong-across", api.ReasonWrongData, api.ReasonWrongData, false, 60},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			members := startMembers(t, 2, tc.fault, func(p *api.RunPlan) { p.StepDeadlineSeconds = tc.seconds })
			assign(t, members, wholeGroup("group-1", members))
			status := finished(t, members, "group-1")
			healthy, faulty := status[0].Communicators[0], status[1].Communicators[0]
			if healthy.Verdict != api.VerdictFail || tc.reason != "" && healthy.Reason != tc.reason ||
				healthy.Guilty != nil {
				t.Errorf("the healthy node says %+v", healthy)
			}
			if faulty.Verdict != api.VerdictFail || faulty.Reason != tc.faulty || (faulty.Guilty != nil) != tc.guilty {
				t.Errorf("the faulty node says %+v", faulty)
			}
			if faulty.Guilty != nil &&
				(faulty.Guilty.Kind != "GPU" || faulty.Guilty.Node != "node-b" || faulty.Guilty.Reason != tc.faulty) {
				t.Errorf("guilty: %+v", faulty.Guilty)
			}
			// The GPUs are free for the next task.
			assign(t, members[:1], within("group-2"))
			if s := members[0].link.waitFinished(t, "group-2"); s.Communicators[0].Verdict != api.VerdictPass {
				t.Errorf("the next task: %+v", s)
			}
			endAll(t, members)
		})
	}
}

// within is a communicator over one node.
func within(id string) []api.NodeTask {
	task := testTask(id)
	task.Communicators = []api.TaskCommunicator{{Name: "tp/0", WorldSize: 2, Nodes: 1, Devices: []int32{0, 1},
		Ranks: []int32{0, 1}}}
	return []api.NodeTask{task}
}

func TestTransportIsTold(t *testing.T) {
	members := startMembers(t, 2, "no-rdma", nil)
	assign(t, members, wholeGroup("group-1", members))
	// What the healthy node's library does then is the simulator's choice; a real one may go over TCP, fail or hang.
	status := finished(t, members, "group-1")
	if c := status[1].Communicators[0]; c.Verdict != api.VerdictPass || c.Transport != "TCP" ||
		!strings.Contains(c.Message, "TCP") {
		t.Errorf("the node without RDMA: %+v", c)
	}
	endAll(t, members)
}

// TestReplacedTask: ranks that hang are gone once their task was replaced, long before a deadline of theirs, and the
// next one finds its GPUs free.
func TestReplacedTask(t *testing.T) {
	const never = 10 * 3600 // no deadline of the task that hangs ends it while the test waits
	members := startMembers(t, 2, "hang-across", func(p *api.RunPlan) { p.StepDeadlineSeconds = never })
	tasks := wholeGroup("group-1", members)
	for i := range tasks {
		tasks[i].DeadlineSeconds = never
	}
	assign(t, members, tasks)
	members[0].link.wait(t,
		"running", func(s api.SessionStatus) bool { return s.Task != nil && s.Task.Phase == api.TaskRunning })
	task := within("mesh-tp-1")[0]
	for _, m := range members {
		m.link.change(func(s *Seen) { s.Session.Task = task.DeepCopy() })
	}
	for _, m := range members {
		m.link.waitIDs(t, task.ID, "tp/0")
	}
	for i, s := range finished(t, members, task.ID) {
		if s.Communicators[0].Verdict != api.VerdictPass {
			t.Errorf("%s: %+v", members[i].name, s)
		}
		for _, r := range members[i].link.reports {
			if r.Task != nil && r.Task.ID == "group-1" && r.Task.Phase == api.TaskFinished {
				t.Errorf("%s reported the end of a task that was replaced: %+v", members[i].name, r.Task)
			}
		}
	}
	endAll(t, members)
}

// TestEndsInTheMiddle: whatever ends a session, no rank is left.
func TestEndsInTheMiddle(t *testing.T) {
	for name, stop := range map[string]func(*member){
		"CommTask gone": func(m *member) { m.link.change(func(s *Seen) { *s = Seen{Gone: true} }) },
		"another run":   func(m *member) { m.link.change(func(s *Seen) { s.Session.RunID = "run-2" }) },
		"ended":         func(m *member) { m.link.change(func(s *Seen) { s.Session.State = api.SessionClosed }) },
		"SIGTERM":       func(m *member) { m.cancel(errors.New("terminated")) },
	} {
		t.Run(name, func(t *testing.T) {
			members := startMembers(t, 2, "hang-across", nil)
			assign(t, members, wholeGroup("group-1", members))
			members[0].link.wait(t,
				"running", func(s api.SessionStatus) bool { return s.Task != nil && s.Task.Phase == api.TaskRunning })
			for _, m := range members {
				stop(m)
			}
			for _, m := range members {
				err := m.wait(t)
				switch name {
				case "CommTask gone", "another run":
					if !errors.Is(err, commtask.ErrSuperseded) {
						t.Errorf("%s: %v", m.name, err)
					}
				case "ended":
					if s := m.result.Status; err != nil || s.State != api.SessionEnded {
						t.Errorf("%s: %v, %+v", m.name, err, s)
					}
				case "SIGTERM":
					s := m.result.Status
					if err != nil || s.State != api.SessionFailed || s.Reason != api.ReasonInterrupted ||
						s.Task == nil || s.Task.Phase != api.TaskFinished ||
						s.Task.Communicators[0].Verdict != api.VerdictError ||
						s.Task.Communicators[0].Reason != api.ReasonInterrupted {
						t.Errorf("%s: %v, %+v %+v", m.name, err, s, s.Task)
					}
				}
			}
			simtest.NoChildren(t)
		})
	}
}
