package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/state"
)

func change(t *testing.T, name string) *Fault {
	t.Helper()
	_, changes, err := FindFaults(name, false)
	if err != nil || len(changes) != 1 {
		t.Fatalf("%v, %v", changes, err)
	}
	return changes[0]
}

func commTask(node, run string) v1alpha1.CommTask {
	n := v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{NodeName: node, Run: &v1alpha1.RunAssignment{ID: run}}}
	n.Name = v1alpha1.CommTaskName(groupName, node)
	return n
}

func TestJudgeRerun(t *testing.T) {
	good := func() *Aftermath {
		g := group(v1alpha1.RunPhaseFinished, conditionOf(v1alpha1.ConditionReady, "True", "Ready", "all passed"))
		g.Status.Run.ID, g.Status.Run.Trigger = "2-2", "NodesChanged"
		return &Aftermath{RunBefore: "2-1", Group: g,
			Tasks:    []v1alpha1.CommTask{commTask("sim-node-0", "2-1"), commTask(FaultyNode, "2-2")},
			Assigned: map[string]string{"sim-node-0": "2-1", FaultyNode: "2-1"}, Pods: map[string]int{FaultyNode: 1},
			Stale: &v1alpha1.RunStaleness{Reason: v1alpha1.StaleNodeRebooted}, StaleCount: 1,
			StaleEvent: "Results no longer count on " + FaultyNode}
	}
	tests := map[string]struct {
		change        func(*Aftermath)
		done, reached bool
	}{
		"as expected": {func(*Aftermath) {}, true, true},
		"no run yet":  {func(a *Aftermath) { a.Group.Status.Run.ID = "2-1" }, false, false},
		"runs": {func(a *Aftermath) { a.Group.Status.Run.Phase = v1alpha1.RunPhaseRunning },
			false, false},
		"conditions of before it":   {func(a *Aftermath) { a.Group.Status.Behind = true }, false, false},
		"a run of all":              {func(a *Aftermath) { a.Group.Status.Run.Trigger = "Requested" }, true, false},
		"a pod on another node":     {func(a *Aftermath) { a.Pods["sim-node-0"] = 1 }, true, false},
		"no pod":                    {func(a *Aftermath) { a.Pods = nil }, true, false},
		"another assigned again":    {func(a *Aftermath) { a.Tasks[0].Spec.Run.ID = "2-2" }, true, false},
		"the node not assigned":     {func(a *Aftermath) { a.Tasks[1].Spec.Run.ID = "2-1" }, true, false},
		"not marked":                {func(a *Aftermath) { a.Stale = nil }, true, false},
		"marked for another reason": {func(a *Aftermath) { a.Stale.Reason = v1alpha1.StaleDriverChanged }, true, false},
		"never counted":             {func(a *Aftermath) { a.StaleCount = 0 }, true, false},
		"two counted":               {func(a *Aftermath) { a.StaleCount = 2 }, true, false},
		"no event yet":              {func(a *Aftermath) { a.StaleEvent = "" }, false, false},
		"still counted":             {func(a *Aftermath) { a.Group.Status.Members.Stale = 1 }, false, false},
		"not ready": {func(a *Aftermath) {
			a.Group.Status.Conditions = conditionOf(v1alpha1.ConditionReady, "False", v1alpha1.ReasonRankHung, "")
		}, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := good()
			tc.change(a)
			if got := JudgeChange(a, change(t, "reboot"), nil); got.Done != tc.done ||
				got.Reached != tc.reached || got.Seen == "" {
				t.Errorf("%+v, want done %t and reached %t, with words", got, tc.done, tc.reached)
			}
		})
	}
}

func TestJudgeLinkDown(t *testing.T) {
	pci := []string{"0:0", "0:1", "0:2", "0000:65:00.0", "0:4", "0:5", "0000:d5:00.0"}
	const fault = v1alpha1.ReasonTopologyFault
	good := func() *Aftermath {
		g := group(v1alpha1.RunPhaseFinished, append(conditionOf(v1alpha1.ConditionReady, "False", fault, ""),
			conditionOf(v1alpha1.ConditionCompatible, "False", fault, "")...),
			v1alpha1.Culprit{Node: FaultyNode, Kind: "Link", Name: "0000:65:00.0<->0000:d5:00.0",
				Reason: v1alpha1.ProblemPCIeInsteadOfXGMI, Message: "only over PCIe"})
		return &Aftermath{RunBefore: "2-1", Group: g, Pods: map[string]int{}, Reported: 4 * time.Second,
			Named: 5 * time.Second, Elapsed: 10 * time.Second}
	}
	tests := map[string]struct {
		change        func(*Aftermath)
		done, reached bool
	}{
		"as expected":          {func(*Aftermath) {}, true, true},
		"named just now":       {func(a *Aftermath) { a.Named = 0 }, false, false},
		"not reported yet":     {func(a *Aftermath) { a.Reported, a.Elapsed = 0, 3*time.Second }, false, false},
		"never reported":       {func(a *Aftermath) { a.Reported = 0 }, true, false},
		"reported too late":    {func(a *Aftermath) { a.Reported = 9 * time.Second }, true, false},
		"a pod":                {func(a *Aftermath) { a.Pods[FaultyNode] = 1 }, true, false},
		"another run":          {func(a *Aftermath) { a.Group.Status.Run.ID = "2-2" }, true, false},
		"one GPU is not named": {func(a *Aftermath) { a.Group.Status.Culprits[0].Name = "0000:65:00.0" }, false, false},
		"never named": {func(a *Aftermath) { a.Group.Status.Culprits, a.Elapsed = nil, 2*time.Minute },
			true, false},
		"another node is named": {func(a *Aftermath) { a.Group.Status.Culprits[0].Node = "sim-node-0" }, false, false},
		"still ready": {func(a *Aftermath) { a.Group.Status.Conditions[0].Status = metav1.ConditionTrue },
			false, false},
		"still compatible": {func(a *Aftermath) { a.Group.Status.Conditions[1].Status = metav1.ConditionTrue },
			false, false},
		"another reason": {func(a *Aftermath) { a.Group.Status.Conditions[0].Reason = v1alpha1.ReasonRankHung },
			false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := good()
			tc.change(a)
			if got := JudgeChange(a, change(t, "link-down"), pci); got.Done != tc.done ||
				got.Reached != tc.reached || got.Seen == "" {
				t.Errorf("%+v, want done %t and reached %t, with words", got, tc.done, tc.reached)
			}
		})
	}
}

func TestAftermathTakes(t *testing.T) {
	a := &Aftermath{Pods: map[string]int{}}
	w := watches{pods: watch.NewFakeWithChanSize(9, false), groups: watch.NewFakeWithChanSize(9, false),
		tasks: watch.NewFakeWithChanSize(9, false), nodes: watch.NewFakeWithChanSize(9, false)}
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{v1alpha1.LabelNode: "sim-node-0"}
	pods := w.pods.(*watch.FakeWatcher)
	pods.Add(pod)
	pods.Modify(pod)
	pods.Delete(pod)
	stale, counted := commTask(FaultyNode, "2-1"), group("", nil)
	stale.Spec.Run.Stale = &v1alpha1.RunStaleness{Reason: v1alpha1.StaleNodeRebooted, Message: "boot"}
	facts := &v1alpha1.NodeFacts{Problems: []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning,
		Code: v1alpha1.ProblemNICDown}}}
	node := &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: facts}}
	node.Name = FaultyNode
	counted.Status.Members.Stale = 1
	other := commTask("sim-node-0", "2-1")
	other.Spec.Run.Stale = &v1alpha1.RunStaleness{Reason: v1alpha1.StaleDriverChanged}
	for _, task := range []v1alpha1.CommTask{other, stale, commTask(FaultyNode, "2-2")} {
		w.tasks.(*watch.FakeWatcher).Modify(&task)
	}
	w.nodes.(*watch.FakeWatcher).Modify(node)
	for _, g := range []*state.Group{counted, group("", nil)} {
		stored, _ := g.Objects()
		w.groups.(*watch.FakeWatcher).Modify(stored)
	}
	lines, err := w.drain(a, time.Second)
	if err != nil || len(lines) != 2 || a.Stale == nil || a.Stale.Reason != v1alpha1.StaleNodeRebooted ||
		a.StaleCount != 1 || a.Reported != 0 || a.podsText() != "sim-node-0 (1)" {
		t.Errorf("%q, %v, %+v; want the pod that is gone, and the stale result and the count that were "+
			"replaced at once", lines, err, a)
	}
	facts.Problems = append(facts.Problems,
		v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemPCIeInsteadOfXGMI})
	w.nodes.(*watch.FakeWatcher).Modify(node)
	if lines, err = w.drain(a, 2*time.Second); err != nil || len(lines) != 1 || a.Reported != 2*time.Second {
		t.Errorf("%q, %v, %+v; want the problem after 2 s", lines, err, a)
	}
	event := corev1.Event{Reason: v1alpha1.ReasonResultsStale, Message: "boot-1",
		InvolvedObject: corev1.ObjectReference{Name: groupName}}
	if lines := a.takeEvents([]corev1.Event{event}, "boot-2"); len(lines) != 0 || a.StaleEvent != "" {
		t.Errorf("%q: the event of another boot was taken", lines)
	}
	if lines := a.takeEvents([]corev1.Event{event}, "boot-1"); len(lines) != 1 || a.StaleEvent != "boot-1" {
		t.Errorf("%q: the event was not taken", lines)
	}
	w.stop()
	if _, err := w.drain(a, time.Second); err == nil {
		t.Error("a watch that ended was taken for one without news")
	}
}

func TestReplaceTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	node, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	node.Name = FaultyNode
	if err := nodetree.Write(root, node); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	const generation, boot = "sys/class/kfd/kfd/topology/generation_id", "proc/sys/kernel/random/boot_id"
	before := map[string]string{generation: read(generation), boot: read(boot)}
	for _, name := range []string{"reboot", "link-down"} {
		change(t, name).Change(&node)
		if err := replaceTree(root, node, name); err != nil {
			t.Fatal(err)
		}
		if got := read(boot); got != node.BootID || got == before[boot] {
			t.Errorf("after %s the boot id is %s, want %s", name, got, node.BootID)
		}
	}
	if got := read(generation); got == before[generation] {
		t.Errorf("generation_id is still %s after the link went down", got)
	}
	if conf := read("simrocm.conf"); !strings.Contains(conf, "link.3-6 = ") {
		t.Errorf("simrocm.conf says nothing of the link: %s", conf)
	}
	if old, err := os.ReadFile(filepath.Join(root+".before-reboot", boot)); err != nil ||
		strings.TrimSpace(string(old)) != before[boot] {
		t.Errorf("the old tree is not kept: %q, %v", old, err)
	}
}

// TestInterval: the monitors of the demo look as often as its outcomes count on.
func TestInterval(t *testing.T) {
	text, err := os.ReadFile("../../demo/operator/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("value: --interval=%d\n", int(interval.Seconds())); !strings.Contains(string(text), want) {
		t.Errorf("hack/demo/operator has no %q", want)
	}
}
