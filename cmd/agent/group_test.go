package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simlib"
)

// machine is one simulated machine with an agent that follows a file.
type machine struct {
	name, file string
	node       api.CommNode
	command    *exec.Cmd
	out, log   bytes.Buffer
}

// write puts what the node has to do into its file, in one piece.
func (m *machine) write(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(m.node)
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
		var node api.CommNode
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

// TestGroupByFile: two machines without Kubernetes form a communicator, as a person would try it.
func TestGroupByFile(t *testing.T) {
	libraries, err := simlib.Dir()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"agent", "rank"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, name), "../"+name).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	shared := t.TempDir()
	machines := make([]*machine, 2)
	for i := range machines {
		n, err := nodetree.Defaults("MI300X")
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		m := &machine{name: "node-" + string(rune('a'+i)), file: filepath.Join(t.TempDir(), "commnode.json")}
		if n.Name = m.name; nodetree.Write(root, n) != nil {
			t.Fatal(err)
		}
		m.node.Spec = api.CommNodeSpec{NodeName: m.name, Session: &api.SessionAssignment{RunID: "run-1", Index: int32(i), Members: 2, Ranks: 2, InitDeadlineSeconds: 60,
			StepDeadlineSeconds: 60, IdleDeadlineSeconds: 60, State: api.SessionOpen}}
		m.write(t)
		m.command = exec.CommandContext(t.Context(), filepath.Join(bin, "agent"), "group", "--session-file", m.file, "--node", m.name, "--run-id", "run-1")
		m.command.Env = append(os.Environ(), "SIMROCM_ROOT="+root, "SIMROCM_SHM_DIR="+shared, "LD_LIBRARY_PATH="+libraries, "POD_IP=127.0.0.1",
			terminationLogEnv+"="+filepath.Join(bin, m.name+".log"))
		m.command.Stdout, m.command.Stderr = &m.out, &m.log
		if err := m.command.Start(); err != nil {
			t.Fatal(err)
		}
		machines[i] = m
	}
	for i, m := range machines {
		m.wait(t, "ready", func(s api.SessionStatus) bool { return s.State == api.SessionReady })
		m.node.Spec.Session.Task = &api.NodeTask{ID: "group-1", Collectives: []api.Collective{api.AllReduce}, Datatypes: []api.Datatype{api.BFloat16}, SizesBytes: []int64{65536},
			WarmupIterations: 1, Iterations: 2, DeadlineSeconds: 120, Communicators: []api.TaskCommunicator{{Name: "group", WorldSize: 4, Nodes: 2, Devices: []int32{0, 1},
				Ranks: []int32{int32(2 * i), int32(2*i + 1)}}}}
	}
	machines[0].write(t)
	first := machines[0].wait(t, "told its id", func(s api.SessionStatus) bool {
		return s.Task != nil && len(s.Task.Communicators) == 1 && len(s.Task.Communicators[0].UniqueID) > 0
	})
	machines[1].node.Spec.Session.Task.Communicators[0].UniqueID = first.Task.Communicators[0].UniqueID
	machines[1].write(t)
	for i, m := range machines {
		s := m.wait(t, "finished", func(s api.SessionStatus) bool { return s.Task != nil && s.Task.Phase == api.TaskFinished })
		if c := s.Task.Communicators[0]; c.Verdict != api.VerdictPass || len(c.Results) != 1-i {
			t.Errorf("%s: %+v", m.name, c)
		}
	}
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

func TestGroupFlags(t *testing.T) {
	for _, args := range [][]string{{"--group", "a", "--node", "n", "--run-id", "r"}, {"--group", "a/b", "--run-id", "r"}, {"--session-file", "x", "--node", "n"}, {"word"}, {"--no-such-flag"}} {
		if code, _, errs := runCommand(t, "", append([]string{"group"}, args...)...); code != 2 || errs == "" {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}

// TestGroupWithoutASession: what ended it is left for the kubelet.
func TestGroupWithoutASession(t *testing.T) {
	words := filepath.Join(t.TempDir(), "termination-log")
	t.Setenv(terminationLogEnv, words)
	file := filepath.Join(t.TempDir(), "none.json")
	code, out, errs := runCommand(t, "", "group", "--session-file", file, "--node", "node-a", "--run-id", "run-1", "--wait", "10ms")
	data, err := os.ReadFile(words)
	if code != 1 || out != "" || err != nil || !strings.Contains(string(data), "node node-a: waited 10ms for the session of run run-1") || !strings.Contains(errs, string(data)) {
		t.Errorf("exit %d: %s, %v, left %q", code, errs, err, data)
	}
}

// TestLongWordsOfAGroupAreCutBetweenCharacters: the kubelet keeps a bounded message, and JSON of it has to be text.
func TestLongWordsOfAGroupAreCutBetweenCharacters(t *testing.T) {
	words := filepath.Join(t.TempDir(), "termination-log")
	t.Setenv(terminationLogEnv, words)
	file := filepath.Join(t.TempDir(), "none.json")
	for _, first := range []string{"x", "xy"} { // whichever of the two would be cut within a character
		node := first + strings.Repeat("é", terminationLogBytes)
		if code, _, errs := runCommand(t, "", "group", "--session-file", file, "--node", node, "--run-id", "run-1", "--wait", "10ms"); code != 1 {
			t.Errorf("exit %d: %.200s", code, errs)
		}
		data, err := os.ReadFile(words)
		if err != nil || len(data) > terminationLogBytes || len(data) < terminationLogBytes-8 || !utf8.Valid(data) {
			t.Errorf("%v: %d bytes, with characters split: %t", err, len(data), !utf8.Valid(data))
		}
	}
}
