package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/executor"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simlib"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// machine is one simulated machine with an agent that follows a file.
type machine struct {
	name, file string
	node       api.CommTask
	command    *exec.Cmd
	out, log   bytes.Buffer
}

// write puts what the node has to do into its file, in one piece.
func (m *machine) write(t *testing.T) {
	t.Helper()
	file := executor.SessionFile{CommTask: m.node}
	run := &file.CommRun.Status
	run.ID, run.Template = "run-1", &api.RunTemplate{}
	run.Plan = &api.RunPlan{InitDeadlineSeconds: 120, StepDeadlineSeconds: 120}
	data, err := json.Marshal(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(m.file+".next", data, 0o600), os.Rename(m.file+".next", m.file)); err != nil {
		t.Fatal(err)
	}
}

// wait looks at the status file until it is as asked for.
func (m *machine) wait(t *testing.T, what string, is func(api.SessionStatus) bool) api.SessionStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond) // there is no other sign of a changed file
	defer tick.Stop()
	for {
		data, err := os.ReadFile(m.file + ".status")
		var node api.CommTask
		if err == nil && json.Unmarshal(data, &node) == nil && node.Status.Session != nil && is(*node.Status.Session) {
			return *node.Status.Session
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is not %s: %s\n%s", m.name, what, data, m.log.String())
		}
	}
}

// startMachines starts agents of two machines without Kubernetes, as a user would try them, and waits until they are
// ready.
func startMachines(t *testing.T, partition nodetree.PartitionMode, ranks int32) []*machine {
	t.Helper()
	libraries, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := testenv.Programs()
	if err != nil {
		t.Fatal(err)
	}
	shared, logs := t.TempDir(), t.TempDir()
	machines := make([]*machine, 2)
	for i := range machines {
		n, err := nodetree.Defaults("MI300X")
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		m := &machine{name: "node-" + string(rune('a'+i)), file: filepath.Join(t.TempDir(), "commtask.json")}
		n.Name, n.Partition = m.name, partition
		if err := nodetree.Write(root, n); err != nil {
			t.Fatal(err)
		}
		m.node.Spec = api.CommTaskSpec{NodeName: m.name, Session: &api.SessionAssignment{RunID: "run-1",
			Index: int32(i), Members: 2, Ranks: ranks, IdleDeadlineSeconds: 120, State: api.SessionOpen}}
		m.write(t)
		m.command = exec.CommandContext(t.Context(), filepath.Join(programs, "agent"), "run", "--stage", "Group",
			"--session-file", m.file, "--node", m.name, "--run-id", "run-1")
		m.command.Env = append(os.Environ(), "SIMROCM_ROOT="+root, "SIMROCM_SHM_DIR="+shared, "LD_LIBRARY_PATH="+
			libraries, "POD_IP=127.0.0.1", terminationLogEnv+"="+filepath.Join(logs, m.name+".log"))
		m.command.Stdout, m.command.Stderr = &m.out, &m.log
		if err := m.command.Start(); err != nil {
			t.Fatal(err)
		}
		machines[i] = m
	}
	for _, m := range machines {
		m.wait(t, "ready", func(s api.SessionStatus) bool { return s.State == api.SessionReady })
	}
	return machines
}

// carryOut has the machines do a task whose ranks 0 are all on the first, as the manager would, and returns what they
// report.
func carryOut(t *testing.T, machines []*machine, task api.NodeTask,
	communicators func(machine int32) []api.TaskCommunicator) []api.NodeTaskStatus {
	t.Helper()
	ids := map[string][]byte{}
	for i, m := range machines {
		own := task
		own.Communicators = communicators(int32(i))
		for k := range own.Communicators {
			own.Communicators[k].UniqueID = ids[own.Communicators[k].Name]
		}
		m.node.Spec.Session.Task = &own
		m.write(t)
		if i > 0 {
			continue
		}
		s := m.wait(t, "told its ids of "+task.ID, func(s api.SessionStatus) bool {
			return s.Task != nil && s.Task.ID == task.ID && !slices.ContainsFunc(s.Task.Communicators,
				func(c api.TaskCommunicatorStatus) bool { return len(c.UniqueID) == 0 })
		})
		for _, c := range s.Task.Communicators {
			ids[c.Name] = c.UniqueID
		}
	}
	var out []api.NodeTaskStatus
	for _, m := range machines {
		s := m.wait(t, "through with "+task.ID, func(s api.SessionStatus) bool {
			return s.Task != nil && s.Task.ID == task.ID && s.Task.Phase == api.TaskFinished
		})
		out = append(out, *s.Task)
	}
	return out
}

func endMachines(t *testing.T, machines []*machine) {
	t.Helper()
	for _, m := range machines {
		m.node.Spec.Session.State = api.SessionClosed
		m.write(t)
		err := m.command.Wait()
		var last api.SessionStatus
		if jerr := json.Unmarshal(m.out.Bytes(), &last); err != nil || jerr != nil || last.State != api.SessionEnded {
			t.Errorf("%s: %v, %v, %s\n%s", m.name, err, jerr, m.out.String(), m.log.String())
		}
	}
}

// ranksFrom are so many devices from 0, and as many ranks from the first one.
func ranksFrom(first, n int32) (devices, ranks []int32) {
	for d := range n {
		devices, ranks = append(devices, d), append(ranks, first+d)
	}
	return devices, ranks
}

func fileTask(id string, repeats int32) api.NodeTask {
	return api.NodeTask{ID: id, Collectives: []api.Collective{api.AllReduce}, Datatypes: []api.Datatype{api.BFloat16},
		SizesBytes: []int64{65536}, WarmupIterations: 1, Iterations: 2, Repeats: repeats, DeadlineSeconds: 240}
}

// TestGroupByFile: two machines form a communicator over all of their ranks, and measure it in one repeat and in three.
// So do 16 ranks of each, as partitioned GPUs give, which are then in 16 communicators at once, one for each place, as
// in a search.
func TestGroupByFile(t *testing.T) {
	for name, tc := range map[string]struct {
		partition nodetree.PartitionMode
		ranks     int32
	}{"GPUs": {nodetree.SPX, 2}, "partitions": {nodetree.CPX, 16}} {
		t.Run(name, func(t *testing.T) {
			machines := startMachines(t, tc.partition, tc.ranks)
			for id, repeats := range map[string]int32{"group-1": 1, "group-2": 3} {
				for i, task := range carryOut(t, machines,
					fileTask(id, repeats), func(at int32) []api.TaskCommunicator {
						c := api.TaskCommunicator{Name: "group", WorldSize: 2 * tc.ranks, Nodes: 2}
						c.Devices, c.Ranks = ranksFrom(at*tc.ranks, tc.ranks)
						return []api.TaskCommunicator{c}
					}) {
					c := task.Communicators[0]
					if c.Verdict != api.VerdictPass || len(c.Results) != 1-i || i == 0 && max(1, c.Repeats) != repeats {
						t.Errorf("%s of %s: %+v", id, machines[i].name, c)
					}
				}
			}
			for i, task := range carryOut(t, machines, fileTask("rails-1", 1), func(at int32) []api.TaskCommunicator {
				var out []api.TaskCommunicator
				for d := range tc.ranks {
					out = append(out, api.TaskCommunicator{Name: fmt.Sprintf("rail/%d", d), WorldSize: 2, Nodes: 2,
						Devices: []int32{d}, Ranks: []int32{at}})
				}
				return out
			}) {
				figures := 0
				for _, c := range task.Communicators {
					if figures += len(c.Results) + int(c.OmittedSeries); c.Verdict != api.VerdictPass {
						t.Errorf("%s: %+v", machines[i].name, c)
					}
				}
				if want := int(tc.ranks) * (1 - i); len(task.Communicators) != int(tc.ranks) || figures != want {
					t.Errorf("%s: %d communicators with %d series, expected %d",
						machines[i].name, len(task.Communicators), figures, want)
				}
			}
			endMachines(t, machines)
		})
	}
}
