package controllers

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simlib"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// Variables that let TestGroupStageOfRealAgents run on real GPUs, where there is no Go and no simulator
// (hack/gpu/group.sh): the library, how many GPUs the machine has, and the folder of agent and rank.
const (
	groupLibraryEnv = "COMMGROUP_GROUP_LIBRARY"
	groupGPUsEnv    = "COMMGROUP_GROUP_GPUS"
	groupAgentsEnv  = "COMMGROUP_GROUP_AGENTS"
)

// ownLocks gives each agent a folder of locks of its own, as a pod has: nodes of one machine share its GPUs here.
var ownLocks = []string{"unshare", "--mount", "sh",
	"-c", `mount -t tmpfs -o mode=1777 locks /run/lock && exec "$@"`, "sh"}

// field is where the agents of a group run: nodes of this machine, each with an identity of its own.
type field struct {
	bin string
	// library is real, on so many GPUs that the nodes share by turns; empty: the simulator.
	library string
	gpus    int
}

func newField(t *testing.T) field {
	f := field{bin: os.Getenv(groupAgentsEnv), library: os.Getenv(groupLibraryEnv)}
	if f.library != "" {
		var err error
		if f.gpus, err = strconv.Atoi(os.Getenv(groupGPUsEnv)); err != nil || f.gpus < 1 || f.bin == "" {
			t.Fatalf("%s is set: set %s to a number of GPUs and %s to the folder of agent and rank, too",
				groupLibraryEnv, groupGPUsEnv, groupAgentsEnv)
		}
		return f
	}
	var err error
	if f.bin, err = testenv.Programs(); err != nil {
		t.Fatal(err)
	}
	return f
}

// groupAgent is a node's agent of the group's stage: a process that follows a file in place of the API server.
type groupAgent struct {
	file    string
	written []byte
	// mask is the session's variable that gives the node its GPU; empty with the simulator.
	mask    []v1alpha1.EnvVar
	command *exec.Cmd
	log     *os.File
	ended   chan error
}

// agentWorld lets real agents carry out what the state machine decides, in real time.
type agentWorld struct {
	*groupWorld
	field  field
	env    func(node int) []string
	prefix func(node int) []string
	agents map[string]*groupAgent
	shared string
	roots  []string
}

func newAgentWorld(t *testing.T, f field, nodes int, fault map[int]string, change func(*state.Group)) *agentWorld {
	t.Helper()
	w := &agentWorld{field: f, agents: map[string]*groupAgent{}, shared: t.TempDir()}
	w.groupWorld = newGroupWorldAt(t, time.Now(), nodes, faults{}, func(g *state.Group) {
		g.Spec.RanksPerNode, g.Spec.Runtime.LibraryPath = 2, f.library
		if f.library != "" {
			g.Spec.RanksPerNode = 1 // NCCL takes a GPU once for each node
		}
		g.Spec.Run.StepDeadlineSeconds, g.Spec.Run.InitDeadlineSeconds = 60, 60
		g.Spec.Benchmark.MinSizeBytes, g.Spec.Benchmark.MaxSizeBytes = 16<<20, 16<<20
		g.Spec.Benchmark.Iterations, g.Spec.Benchmark.WarmupIterations = 5, ptr.To(int32(1))
		change(g)
	})
	for i := range nodes {
		root := t.TempDir()
		if f.library == "" {
			n, err := nodetree.Defaults("MI300X")
			if err != nil {
				t.Fatal(err)
			}
			n.Name, n.Fault = w.nodes[i].Name, cmp.Or(fault[i], n.Fault)
			if err := nodetree.Write(root, n); err != nil {
				t.Fatal(err)
			}
		}
		w.roots = append(w.roots, root)
	}
	t.Cleanup(func() {
		for name, a := range w.agents {
			_ = a.command.Process.Kill()
			w.t.Logf("agent %s ended: %v", name, <-a.ended)
			_ = a.log.Close()
		}
	})
	return w
}

// environment of a node's agent.
func (w *agentWorld) environment(node int) []string {
	env := append(os.Environ(), "POD_IP=127.0.0.1",
		"TERMINATION_MESSAGE_PATH="+filepath.Join(w.roots[node], "termination-log"))
	if w.field.library != "" {
		env = append(env, "NCCL_NVLS_ENABLE=0")
	} else {
		libraries, err := simlib.Dir()
		if err != nil {
			w.t.Fatal(err)
		}
		env = append(env, "SIMROCM_ROOT="+w.roots[node], "SIMROCM_SHM_DIR="+w.shared, "LD_LIBRARY_PATH="+libraries)
	}
	if w.env != nil {
		env = append(env, w.env(node)...)
	}
	return env
}

// playRealAgents is what a node's kubelet, API server and agent do: it starts the agent of a new pod, hands on what
// changed either way, and ends the agent with its pod.
func (w *agentWorld) playRealAgents() {
	for i := range w.nodes {
		name := w.nodes[i].Name
		ct, pod, a := w.commTask(name), w.groupPod(name), w.agents[name]
		switch {
		case pod != nil && !pod.DeletionTimestamp.IsZero():
			if a != nil {
				_ = a.command.Process.Signal(syscall.SIGTERM)
				a.ended <- <-a.ended
			}
			delete(w.pods, pod.Name)
			continue
		case ct == nil || ct.Spec.Session == nil || pod == nil || !podstate.Alive(pod):
			continue
		}
		if a == nil {
			a = w.startAgent(i, ct)
			startPod(pod, name, w.now)
		}
		a.write(w.t, ct, &w.group.Status)
		a.read(w.t, ct)
		select {
		case err := <-a.ended:
			a.ended <- err
			endPod(pod, int32(a.command.ProcessState.ExitCode()), w.now)
		default:
		}
	}
}

func (w *agentWorld) startAgent(node int, ct *v1alpha1.CommTask) *groupAgent {
	name := w.nodes[node].Name
	dir := w.t.TempDir()
	a := &groupAgent{file: filepath.Join(dir, "commtask.json"), ended: make(chan error, 1)}
	var line []string
	if w.field.library != "" {
		a.mask = []v1alpha1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: strconv.Itoa(node % w.field.gpus)}}
		line = append(line, ownLocks...)
		if w.prefix != nil {
			line = append(line, w.prefix(node)...)
		}
	}
	a.write(w.t, ct, &w.group.Status)
	line = append(line, filepath.Join(w.field.bin, "agent"), "run", "--stage=Group", "--session-file", a.file,
		"--node", name, "--run-id", ct.Spec.Session.RunID)
	a.command = exec.Command(line[0], line[1:]...)
	a.command.Env = w.environment(node)
	var err error
	if a.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		w.t.Fatal(err)
	}
	a.command.Stdout, a.command.Stderr = a.log, a.log
	if err := a.command.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { a.ended <- a.command.Wait() }()
	w.agents[name] = a
	return a
}

// write gives the agent its CommTask, and what it takes of the CommRun.
func (a *groupAgent) write(t testing.TB, ct *v1alpha1.CommTask, status *state.Status) {
	var own struct {
		CommTask v1alpha1.CommTask `json:"commTask"`
		CommRun  v1alpha1.CommRun  `json:"commRun"`
	}
	own.CommTask.Spec = ct.Spec
	run := &own.CommRun.Status
	run.ID, run.Template, run.Plan = status.Run.ID, status.Template, status.Plan.DeepCopy()
	run.Plan.Env = append(run.Plan.Env, a.mask...)
	data, err := json.Marshal(&own)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) == string(a.written) {
		return
	}
	if err := errors.Join(os.WriteFile(a.file+".next", data, 0o600), os.Rename(a.file+".next", a.file)); err != nil {
		t.Fatal(err)
	}
	a.written = data
}

func (a *groupAgent) read(t testing.TB, ct *v1alpha1.CommTask) {
	data, err := os.ReadFile(a.file + ".status")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var told v1alpha1.CommTask
	if err = errors.Join(err, json.Unmarshal(data, &told)); err != nil {
		t.Fatal(err)
	}
	ct.Status.Session = told.Status.Session
}

// ranksOf are the processes of a node's ranks that are at work.
func (w *agentWorld) ranksOf(node int) (pids []int) {
	a := w.agents[w.nodes[node].Name]
	if a == nil {
		return nil
	}
	for _, path := range must(filepath.Glob("/proc/[0-9]*/stat")) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		fields := strings.Fields(string(data))
		if len(fields) > 3 && fields[1] == "(rank)" && fields[3] == strconv.Itoa(a.command.Process.Pid) {
			pid, _ := strconv.Atoi(fields[0])
			pids = append(pids, pid)
		}
	}
	return pids
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// playReal goes on until the run is over and no pod is left.
func (w *agentWorld) playReal(limit time.Duration) {
	w.t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond) // files tell of no change
	defer tick.Stop()
	for range tick.C {
		// Clocks of agents and of the run are the machine's.
		w.now = time.Now()
		w.reportFacts()
		w.settle()
		w.check()
		if w.meddle != nil {
			w.meddle()
		}
		w.playNodes()
		w.playRealAgents()
		if run := w.group.Status.Run; run != nil && run.Phase != v1alpha1.RunPhaseRunning && w.alive() == 0 {
			return
		}
		if time.Since(began) > limit {
			for name, a := range w.agents {
				data, _ := os.ReadFile(a.log.Name())
				w.t.Logf("%s: %s", name, data[max(0, len(data)-2000):])
			}
			w.t.Fatalf("not through after %s: %+v", limit, w.span())
		}
	}
}

// TestGroupStageOfRealAgents: the state machine, the search for a culprit included, with real agents and rank processes
// that meet by unique ids and measure real collectives, without Kubernetes. The library is the simulator's, or a real
// one on GPUs.
func TestGroupStageOfRealAgents(t *testing.T) {
	f := newField(t)
	const nodes, faulty = 4, 2
	for _, tc := range []struct {
		name string
		// fault of the simulator; meddle makes it on GPUs, where the simulator cannot.
		fault  string
		prefix []string
		meddle func(w *agentWorld)
		// gpus: on GPUs only, since it takes deadlines of real time.
		gpus    bool
		reasons []string
	}{
		{name: "good"},
		{name: "slow", fault: "slow-node-net:20", prefix: []string{"taskset", "-c", "0"}, meddle: (*agentWorld).starve,
			reasons: []string{v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowGroup}},
		{name: "hang", gpus: true, meddle: func(w *agentWorld) { w.stopRanks(faulty) },
			reasons: []string{v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonRankHung}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.gpus && f.library == "" {
				t.Skipf("runs on GPUs only: set %s (hack/gpu/group.sh does)", groupLibraryEnv)
			}
			w := newAgentWorld(t, f, nodes, map[int]string{faulty: tc.fault}, func(g *state.Group) {
				if f.library != "" {
					g.Spec.Benchmark.MinSizeBytes, g.Spec.Benchmark.MaxSizeBytes, g.Spec.Benchmark.Iterations = 1<<20,
						64<<20, 20
					g.Spec.Run.StepDeadlineSeconds = 20
					// two nodes that share a GPU by turns reach half together
					g.Spec.Benchmark.NodeMinPercentOfMedian = ptr.To(int32(30))
				}
			})
			if f.library != "" {
				w.prefix = func(node int) []string {
					if node == faulty {
						return tc.prefix
					}
					return nil
				}
				if tc.meddle != nil {
					w.meddle = func() { tc.meddle(w) }
				}
			}
			w.playReal(8 * time.Minute)
			s := w.span()
			for i := range s.Tests {
				test := &s.Tests[i]
				t.Logf("%-16s {%s} %s %s %d MB/s, %d s", test.ID, test.Set, test.Verdict, test.Reason,
					ptr.Deref(test.BusBandwidthMBps, 0), ptr.Deref(test.Seconds, 0))
			}
			t.Logf("%s %s: %s", s.Verdict, s.Reason, s.Message)
			if tc.reasons == nil {
				if s.Verdict != v1alpha1.VerdictPass || len(s.Culprits) > 0 || len(s.Results) == 0 {
					t.Errorf("%s (%s), culprits %v, %d series", s.Verdict, s.Reason, s.Culprits, len(s.Results))
				}
				return
			}
			if s.Verdict != v1alpha1.VerdictFail || !slices.Contains(tc.reasons, s.Reason) || len(s.Culprits) != 1 ||
				s.Culprits[0].Node != w.nodes[faulty].Name {
				t.Errorf("%s (%s), culprits %+v: expected %s alone",
					s.Verdict, s.Reason, s.Culprits, w.nodes[faulty].Name)
			}
		})
	}
}

// stopRanks stops the node's ranks in each communicator over several nodes, once all have joined it.
func (w *agentWorld) stopRanks(node int) {
	ct := w.commTask(w.nodes[node].Name)
	if ct == nil || ct.Spec.Session == nil || ct.Spec.Session.Task == nil ||
		!slices.ContainsFunc(ct.Spec.Session.Task.Communicators, func(c v1alpha1.TaskCommunicator) bool {
			return c.Nodes > 1
		}) {
		return
	}
	for i := range w.nodes {
		other := w.commTask(w.nodes[i].Name)
		if other == nil || other.Status.Session == nil {
			continue
		}
		if task := other.Status.Session.Task; task != nil && task.ID == ct.Spec.Session.Task.ID &&
			task.Phase == v1alpha1.TaskRunning {
			for _, pid := range w.ranksOf(node) {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
			return
		}
	}
}

// starve keeps the processor busy that the faulty node's agent and ranks are bound to.
func (w *agentWorld) starve() {
	if w.agents["busy"] != nil {
		return
	}
	a := &groupAgent{ended: make(chan error, 1)}
	a.command = exec.Command("taskset", "-c", "0", "sh",
		"-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (while :; do :; done) & done; wait")
	a.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.command.Start(); err != nil {
		w.t.Fatal(err)
	}
	a.log = must(os.Create(filepath.Join(w.shared, "busy")))
	go func() { a.ended <- a.command.Wait() }()
	w.agents["busy"] = a
	w.t.Cleanup(func() { _ = syscall.Kill(-a.command.Process.Pid, syscall.SIGKILL) })
}
