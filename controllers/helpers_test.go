package controllers

import (
	"context"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

var testConfig = Config{AgentImage: "agent:test", DefaultRuntimeImage: "rocm:test",
	PrivilegedNamespaces: []string{"team"}}

// TestMain lets garbage grow: to collect it took a fifth of the tests' time. What is measured in memory stays as it is.
func TestMain(m *testing.M) {
	if os.Getenv(memoryFolder) == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}

// world plays the cluster for Decide: it applies decisions to values, as the API server would.
type world struct {
	now       time.Time
	group     *state.Group
	nodes     []corev1.Node
	commTasks map[string]*v1alpha1.CommTask // by object name
	commNodes map[string]*v1alpha1.CommNode // by node name
	pods      map[string]*corev1.Pod
	runs      storedRuns
	// deletedRun is the number of the latest run whose CommRun was deleted.
	deletedRun int64
	configMap  *corev1.ConfigMap
	events     []decision.Event
	decided    Decision
	changes    map[string]int // how often a node was changed, by its name
	// holders are other pods that hold GPUs of a node; others and claims are what other groups run; looks counts the
	// look-ups.
	holders map[string]string
	// refused is a node whose pod of the group's stage the namespace refuses.
	refused string
	// unread are nodes whose pods cannot be listed, with the API server's words.
	unread map[string]string
	others []corev1.Pod
	claims []sharing.Claim
	looks  int
	// refusesNode says whether a quota refuses to create the node's CommTask.
	refusesNode func(node string) bool
	// busyAt is what the manager remembers of its look-ups.
	busyAt lookMemory
}

// storedRuns are the CommRuns of a group, as the API server would have them.
type storedRuns []v1alpha1.CommRun

// write writes a decision's status to the CommGroup and to the CommRun of its run, and reads the group from them again.
func (all *storedRuns) write(group *state.Group, status *state.Status) {
	next := *group
	next.Status = *status.DeepCopy()
	if run := status.Run; run != nil {
		at := slices.IndexFunc(*all, func(r v1alpha1.CommRun) bool { return r.Name == run.Name })
		if at < 0 {
			*all = append(*all, *state.NewRun(group, run.Name))
			at = len(*all) - 1
		}
		stored := (*all)[at].DeepCopy()
		stored.Status = next.RunStatus(stored)
		(*all)[at] = *stored
		*all = (*all)[max(0, len(*all)-3):]
	}
	stored := &v1alpha1.CommGroup{TypeMeta: group.TypeMeta, ObjectMeta: group.ObjectMeta, Spec: group.Spec,
		Status: next.Status.GroupStatus()}
	*group = *state.Join(stored, *all)
}

// request creates a CommRun, which asks for a run.
func (w *world) request(name string) {
	run := state.NewRun(w.group, name)
	run.CreationTimestamp = *decision.Stamp(w.now)
	w.runs = append(w.runs, *run)
	w.group.Status.Requests = append(w.group.Status.Requests, name)
}

// suspend sets spec.suspend of the CommRun of the group's run.
func (all *storedRuns) suspend(group *state.Group, suspend bool) {
	*all = slices.Clone(*all)
	if latest := state.Latest(*all); latest != nil {
		latest.Spec.Suspend = suspend
		latest.Generation++
	}
	stored := &v1alpha1.CommGroup{TypeMeta: group.TypeMeta, ObjectMeta: group.ObjectMeta, Spec: group.Spec,
		Status: group.Status.GroupStatus()}
	*group = *state.Join(stored, *all)
}

// deleteLatest deletes the CommRun of the group's run, and reads the group again.
func (all *storedRuns) deleteLatest(group *state.Group) {
	latest := state.Latest(*all)
	*all = slices.DeleteFunc(slices.Clone(*all), func(r v1alpha1.CommRun) bool {
		return latest != nil && r.Name == latest.Name
	})
	stored := &v1alpha1.CommGroup{TypeMeta: group.TypeMeta, ObjectMeta: group.ObjectMeta, Spec: group.Spec,
		Status: group.Status.GroupStatus()}
	*group = *state.Join(stored, *all)
}

func newWorld(group *state.Group, nodes []corev1.Node) *world {
	return &world{now: testkit.Now, group: group, nodes: nodes, commTasks: map[string]*v1alpha1.CommTask{},
		commNodes: map[string]*v1alpha1.CommNode{}, changes: map[string]int{}, pods: map[string]*corev1.Pod{}}
}

func (w *world) snapshot() *Snapshot {
	stored := &v1alpha1.CommGroup{TypeMeta: w.group.TypeMeta, ObjectMeta: w.group.ObjectMeta, Spec: w.group.Spec,
		Status: w.group.Status.GroupStatus()}
	s := &Snapshot{Now: w.now, Group: w.group, Stored: stored, Runs: w.runs, StoredRun: state.Latest(w.runs),
		RunDeleted: w.deletedRun != 0 && w.group.Status.Run != nil && w.deletedRun == w.group.Status.Run.Number,
		Nodes:      w.nodes, ConfigMap: w.configMap, ConfigMapCertain: true, OtherRunPods: w.others, Claims: w.claims,
		BusyAt: w.busyAt.of(client.ObjectKeyFromObject(w.group), w.now)}
	s.CommTasks, s.RunPods = make([]v1alpha1.CommTask, 0, len(w.commTasks)), make([]corev1.Pod, 0, len(w.pods))
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		if r := w.commTasks[name].Status.Run; r != nil && r.Message == testkit.Reported {
			r.Message = "node " + w.commTasks[name].Spec.NodeName + ": " + r.Message // as agents write it
		}
		s.CommTasks = append(s.CommTasks, *w.commTasks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.commNodes)) {
		s.CommNodes = append(s.CommNodes, *w.commNodes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		s.RunPods = append(s.RunPods, *w.pods[name])
	}
	return s
}

// step decides once and applies the decision.
func (w *world) step() Decision {
	s := w.snapshot()
	d := Decide(s, testConfig)
	if len(d.LookAt) > 0 {
		s.Looked, s.Unread = map[string]string{}, map[string]string{}
		for _, node := range d.LookAt {
			if why := w.unread[node]; why != "" {
				s.Unread[node] = why
			} else {
				s.Looked[node] = w.holders[node]
			}
			w.looks++
		}
		w.busyAt.add(client.ObjectKeyFromObject(w.group), s.Looked, w.now)
		w.busyAt.add(client.ObjectKeyFromObject(w.group), s.Unread, w.now)
		d = Decide(s, testConfig)
	}
	for _, name := range d.DeletePods {
		if pod := w.pods[name]; pod.Spec.NodeName == "" || !podstate.Alive(pod) {
			delete(w.pods, name)
		} else if pod.DeletionTimestamp.IsZero() {
			pod.DeletionTimestamp = decision.Stamp(w.now)
		}
	}
	for _, name := range d.DeleteCommTasks {
		delete(w.commTasks, name)
	}
	if w.refusesNode != nil {
		d.CommTasks = slices.DeleteFunc(d.CommTasks, func(c commrun.Change) bool {
			no := c.Current == nil && w.refusesNode(c.Desired.Spec.NodeName)
			if no {
				d.refused.commTask(c.Desired, false, errQuota)
			}
			return no
		})
		if run := d.Status.Run; run != nil && run.Phase == v1alpha1.RunPhaseRunning || finishes(w.group, &d) {
			d.refused.note(run, w.now)
		}
	}
	for _, c := range d.CommTasks {
		next := c.Desired.DeepCopy()
		if old := w.commTasks[next.Name]; old != nil {
			next.Status = old.Status
		} else {
			next.UID, next.CreationTimestamp = types.UID("uid-ct-"+next.Name), *decision.Stamp(w.now)
		}
		w.commTasks[next.Name] = next
	}
	for _, pod := range d.CreatePods {
		if w.pods[pod.Name] == nil && (!ofGroupStage(pod) || pod.Labels[v1alpha1.LabelNode] != w.refused) {
			pod.CreationTimestamp = *decision.Stamp(w.now)
			pod.Status.Phase = corev1.PodPending
			w.pods[pod.Name] = pod
		}
	}
	if d.ConfigMap != nil {
		w.configMap = d.ConfigMap
	}
	w.runs.write(w.group, &d.Status)
	all := slices.Concat(d.RunEvents, d.Events)
	w.events = append(w.events, all...)
	w.decided = d
	for _, c := range d.Status.Conditions {
		refuseTwice(c.Message)
	}
	for _, e := range all {
		refuseTwice(e.Note)
	}
	return d
}

// refuseTwice panics where a text names a node, and again at the beginning of what was seen there: "Fail on a. node a:
// slow".
func refuseTwice(text string) {
	fields := strings.Fields(text)
	for i, f := range fields {
		name, ends := strings.CutSuffix(f, ":")
		at := i - 1
		if at > 0 && strings.EqualFold(fields[at], "node") {
			at--
		}
		if ends && at >= 0 && strings.TrimRight(fields[at], ".:,") == name {
			panic("a message names " + name + " twice in a row: " + text)
		}
	}
}

// settle steps until nothing changes, as the watches would have it.
func (w *world) settle() {
	for range 10 {
		before := w.group.Status // a decision changes nothing that it reads
		d := w.step()
		if objects.Same(&before, &d.Status) &&
			len(d.CommTasks)+len(d.CreatePods)+len(d.DeletePods)+len(d.DeleteCommTasks) == 0 {
			return
		}
	}
}

func (w *world) reportFacts() {
	for _, ct := range w.commTasks {
		w.setFacts(ct.Spec.NodeName, testkit.Facts(w.now))
	}
}

// factsOn are what the node's monitor last reported; nil where it never did.
func (w *world) factsOn(node string) *v1alpha1.NodeFacts {
	if cn := w.commNodes[node]; cn != nil {
		return cn.Status.Facts
	}
	return nil
}

// setFacts is the node's monitor: it creates the CommNode of the Node that is there now.
func (w *world) setFacts(node string, facts *v1alpha1.NodeFacts) *v1alpha1.CommNode {
	cn := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.CommNodeStatus{Facts: facts}}
	for i := range w.nodes {
		if w.nodes[i].Name == node {
			cn.Spec.NodeUID = string(w.nodes[i].UID)
		}
	}
	w.commNodes[node] = cn
	return cn
}

// playMonitors has the monitors of all nodes of the API report.
func playMonitors(ctx context.Context, c client.Client, facts func(node string) *v1alpha1.NodeFacts) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		cn := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: v1alpha1.CommNodeSpec{NodeUID: string(n.UID)}}
		if err := c.Get(ctx, client.ObjectKeyFromObject(cn), cn); apierrors.IsNotFound(err) {
			err = c.Create(ctx, cn)
			if err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		cn.Status.Facts = facts(n.Name)
		if err := c.Status().Update(ctx, cn); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) commTask(node string) *v1alpha1.CommTask {
	return w.commTasks[v1alpha1.CommTaskName(w.group.Name, node)]
}

func (w *world) podOn(node string) *corev1.Pod {
	for _, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelNode] == node {
			return pod
		}
	}
	return nil
}

func startPod(pod *corev1.Pod, node string, now time.Time) {
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: *decision.Stamp(now)}}}}
}

func endPod(pod *corev1.Pod, code int32, now time.Time) {
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: *decision.Stamp(now),
			StartedAt: *decision.Stamp(now)}}}}
}

// runAll lets every node pass, with the given bus bandwidths by rank order; the last one repeats.
// plan of the latest run.
func (w *world) plan() *v1alpha1.RunPlan {
	if run := w.group.Status.Run; w.group.Status.Plan != nil || run != nil && run.Phase == v1alpha1.RunPhaseRunning {
		return w.group.Status.Plan // agents have no other while a run goes on
	}
	plan := runplan.For(&w.group.Spec)
	return &plan
}

func (w *world) runAll(busBWMBps ...int64) {
	for range 100 {
		w.settle()
		if run := w.group.Status.Run; run == nil || run.Phase != v1alpha1.RunPhaseRunning {
			return
		}
		for i := range w.nodes {
			node := w.nodes[i].Name
			pod := w.podOn(node)
			ct := w.commTask(node)
			if pod == nil || ct.Spec.Run == nil {
				continue
			}
			startPod(pod, node, w.now)
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass,
				busBWMBps[min(i, len(busBWMBps)-1)], w.now)
			endPod(pod, 0, w.now)
		}
	}
}
