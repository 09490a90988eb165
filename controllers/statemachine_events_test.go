package controllers

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// What an event of the table comes from: a kind of objects that the manager watches, the time, or a read of its own.
const (
	viaGroup     = "CommGroup"
	viaCommTask  = "CommTask"
	viaNode      = "Node"
	viaPod       = "Pod"
	viaConfigMap = "ConfigMap"
	viaCommNode  = "CommNode"
	viaCommRun   = "CommRun"
	viaTime      = "time"
	viaRead      = "read"
)

// tableEvent is something that happens. After it the controller settles; agents do no more than the event says.
type tableEvent struct {
	of string
	do func(*groupWorld)
}

// tableEvents are the events of the table by name.
var tableEvents = map[string]tableEvent{
	"spec change": {viaGroup, func(w *groupWorld) { w.group.Spec.Benchmark.Iterations++; w.group.Generation++ }},
	"publish off": {viaGroup,
		func(w *groupWorld) { w.group.Spec.Publish.Mode = v1alpha1.PublishOff; w.group.Generation++ }},
	"nobody selected": {viaGroup,
		func(w *groupWorld) { w.group.Spec.Members.NodeSelector.MatchLabels["gpu"] = "no"; w.group.Generation++ }},
	"other span": {viaGroup, func(w *groupWorld) {
		if w.group.Generation++; w.group.Spec.Span == v1alpha1.SpanGroup {
			w.group.Spec.Span, w.group.Spec.Mesh = v1alpha1.SpanNode, nil
		} else {
			w.group.Spec.Span = v1alpha1.SpanGroup
		}
	}},
	"suspended": {viaGroup, func(w *groupWorld) { w.setState(v1alpha1.RunSuspended) }},
	"resumed": {viaGroup, func(w *groupWorld) {
		w.setState(v1alpha1.RunSuspended)
		w.settle()
		w.setState(v1alpha1.RunActive)
	}},
	"requested": {viaCommRun, func(w *groupWorld) {
		w.request("once")
	}},
	"group deleted": {viaGroup, nil}, // decided by the test

	"member added": {viaNode,
		func(w *groupWorld) { w.nodes = append(slices.Clone(w.nodes), testkit.Node("n99999", nil)) }},
	"member lost": {viaNode, func(w *groupWorld) {
		gone := w.nodes[3].Name
		w.nodes = slices.Clone(w.nodes[:3])
		for name, pod := range w.pods {
			if pod.Spec.NodeName == gone {
				delete(w.pods, name) // the pod collector takes the pods of a Node that is gone
			}
		}
	}},
	"node made anew": {viaNode, func(w *groupWorld) {
		w.nodes = slices.Clone(w.nodes)
		w.nodes[0].UID = "uid-another"
	}},
	"GPUs gone": {viaNode, func(w *groupWorld) { w.fewerGPUs() }},
	"GPUs back": {viaNode, func(w *groupWorld) {
		w.nodes = slices.Clone(w.nodes)
		for i := range w.nodes {
			w.nodes[i].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "8")
		}
	}},
	"node labelled away": {viaNode, func(w *groupWorld) {
		w.nodes = slices.Clone(w.nodes)
		w.nodes[3].Labels = map[string]string{"gpu": "no"}
	}},
	"kubelet on another boot": {viaNode, func(w *groupWorld) {
		w.nodes = slices.Clone(w.nodes)
		w.nodes[0].Status.NodeInfo.BootID = "boot-2" // its monitor has not told yet
	}},

	"monitors report": {viaCommNode, func(w *groupWorld) {
		if w.factsOn(w.nodes[0].Name) == nil {
			w.reportFacts()
		}
	}},
	"report pass": {viaCommTask, func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictPass, "") }},
	"report fail": {viaCommTask,
		func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink) }},
	"report error": {viaCommTask,
		func(w *groupWorld) { w.everyoneReports(v1alpha1.VerdictError, v1alpha1.ReasonInterrupted) }},
	"report turns bad": {viaCommTask, func(w *groupWorld) {
		w.told(func(ct *v1alpha1.CommTask) {
			if r := runs.FinishedReport(ct); r != nil {
				ct.Status.Run.Verdict, ct.Status.Run.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink
			}
		})
	}},
	"report lost": {viaCommTask, func(w *groupWorld) { w.commTask(w.nodes[0].Name).Status.Run = nil }},
	"results lost": {viaCommTask, func(w *groupWorld) {
		w.told(func(ct *v1alpha1.CommTask) {
			if ct.Status.Run != nil {
				ct.Status.Run.Results = nil
			}
		})
	}},
	"node rebooted": {viaCommNode,
		func(w *groupWorld) { w.facts0(func(f *v1alpha1.NodeFacts) { f.BootID = "boot-2" }) }},
	"other driver": {viaCommNode,
		func(w *groupWorld) { w.facts0(func(f *v1alpha1.NodeFacts) { f.Driver.Version = "6.10.5" }) }},
	"a problem": {viaCommNode, func(w *groupWorld) {
		w.facts0(func(f *v1alpha1.NodeFacts) {
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemDriverNotLoaded,
				Message: "no driver"}}
		})
	}},
	"simulated": {viaCommNode, func(w *groupWorld) {
		w.facts0(func(f *v1alpha1.NodeFacts) { f.Origin = v1alpha1.OriginSimulated })
	}},
	"not in effect": {viaCommTask, func(w *groupWorld) {
		w.told(func(ct *v1alpha1.CommTask) {
			if ct.Status.Run != nil {
				ct.Status.Run.Settings[0].Effective, ct.Status.Run.Settings[0].Verified = v1alpha1.EffectiveNotInEffect,
					v1alpha1.VerifiedNotConfirmed
			}
		})
	}},
	"CommTask deleted": {viaCommTask, func(w *groupWorld) {
		node := w.nodes[0].Name
		delete(w.commTasks, v1alpha1.CommTaskName(w.group.Name, node))
		w.losePods(node) // by the garbage collector
	}},

	"pod lost": {viaPod, func(w *groupWorld) { w.losePods(w.nodes[0].Name) }},
	"pod evicted": {viaPod, func(w *groupWorld) {
		if pod := w.alivePod(w.nodes[0].Name); pod != nil {
			pod.DeletionTimestamp = decision.Stamp(w.now)
			pod.Status.Conditions = append(pod.Status.Conditions,
				testkit.PodCondition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI"))
		}
	}},
	"pod failed": {viaPod, func(w *groupWorld) {
		if pod := w.alivePod(w.nodes[0].Name); pod != nil {
			endPod(pod, 1, w.now.Add(-time.Hour)) // so that no report is waited for
		}
	}},

	"ConfigMap edited": {viaConfigMap, func(w *groupWorld) {
		if w.configMap != nil {
			w.configMap = w.configMap.DeepCopy()
			w.configMap.Data["NCCL_DEBUG"] = "INFO"
		}
	}},
	"ConfigMap taken": {viaConfigMap, func(w *groupWorld) {
		if w.configMap != nil {
			w.configMap = w.configMap.DeepCopy()
			w.configMap.OwnerReferences = nil
		}
	}},
	"ConfigMap deleted": {viaConfigMap, func(w *groupWorld) { w.configMap = nil }},

	"CommNode deleted": {viaCommNode, func(w *groupWorld) { delete(w.commNodes, w.nodes[0].Name) }},

	"run suspended": {viaCommRun, func(w *groupWorld) { w.runs.suspend(w.group, true) }},
	"CommRun deleted": {viaCommRun, func(w *groupWorld) {
		if w.group.Status.Run != nil {
			w.deletedRun = w.group.Status.Run.Number
		}
		w.runs.deleteLatest(w.group)
	}},

	"report expired":   {viaTime, func(w *groupWorld) { w.wait(601*time.Second, 0) }},
	"deadlines passed": {viaTime, func(w *groupWorld) { w.wait(31*time.Minute, -1) }},
	"schedule due": {viaTime, func(w *groupWorld) {
		w.group.Spec.Run.Schedule = "*/5 * * * *"
		w.group.Generation++
		w.settle()
		w.wait(5*time.Minute, -1)
	}},

	"ListError": {viaRead, nil}, // decided by the test
}

func (w *groupWorld) setState(s v1alpha1.RunState) {
	w.group.Spec.Run.State = s
	w.group.Generation++
}

// told changes what the first node's agents have told.
func (w *groupWorld) told(change func(*v1alpha1.CommTask)) {
	ct := w.commTask(w.nodes[0].Name)
	ct.Status.Run = ct.Status.Run.DeepCopy()
	change(ct)
}

func (w *groupWorld) facts0(change func(*v1alpha1.NodeFacts)) {
	if f := w.factsOn(w.nodes[0].Name); f != nil {
		f = f.DeepCopy()
		change(f)
		w.setFacts(w.nodes[0].Name, f)
	}
}

func (w *groupWorld) fewerGPUs() {
	w.nodes = slices.Clone(w.nodes)
	for i := range w.nodes {
		w.nodes[i].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "4")
	}
}

func (w *groupWorld) losePods(node string) {
	for name, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelNode] == node {
			delete(w.pods, name)
		}
	}
}

func (w *groupWorld) alivePod(node string) *corev1.Pod {
	if pod := w.groupPod(node); pod != nil {
		return pod
	}
	return w.podOn(node)
}

// wait lets time go by, in which all monitors report but the one of the node at the given place.
func (w *groupWorld) wait(d time.Duration, but int) {
	w.now = w.now.Add(d)
	for i := range w.nodes {
		if ct := w.commTask(w.nodes[i].Name); i != but && ct != nil && w.factsOn(ct.Spec.NodeName) != nil {
			w.factsOn(ct.Spec.NodeName).ObservedTime = *decision.Stamp(w.now)
		}
	}
}

// everyoneReports lets each agent that has not reported do so: the first node's with the verdict, the others' with a
// pass. In the group's stage they go on until it is over.
func (w *groupWorld) everyoneReports(verdict v1alpha1.Verdict, reason string) {
	run := w.group.Status.Run
	if run == nil || run.Phase != v1alpha1.RunPhaseRunning {
		return // nobody is asked
	}
	for i := range w.nodes {
		ct, pod := w.commTask(w.nodes[i].Name), w.podOn(w.nodes[i].Name)
		if pod == nil || ofGroupStage(pod) || runs.FinishedReport(ct) != nil {
			continue
		}
		one, why, code := v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed, int32(0)
		if i == 0 && verdict != v1alpha1.VerdictPass {
			one, why, code = verdict, reason, 1
		}
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, one, 300_000, w.now)
		ct.Status.Run.Reason, ct.Status.Run.BootID = why, w.factsOn(ct.Spec.NodeName).BootID
		endPod(pod, code, w.now)
	}
	if w.group.Spec.Span == v1alpha1.SpanNode {
		return
	}
	if s := w.span(); s != nil && s.Stage != v1alpha1.StageNodes {
		failed := func(s *v1alpha1.SessionStatus) {
			s.State, s.Reason, s.Message = v1alpha1.SessionFailed, reason, "SIGTERM"
		}
		switch session := w.commTask(w.nodes[0].Name).Status.Session; {
		case verdict == v1alpha1.VerdictFail:
			w.faults.dieNodes = []int{0}
		case verdict == v1alpha1.VerdictError && session != nil:
			failed(session)
		case verdict == v1alpha1.VerdictError:
			w.faults.quirk = func(node int, s *v1alpha1.SessionStatus) {
				if node == 0 {
					failed(s)
				}
			}
		}
	}
	w.play()
}

// objectsBefore are what an event changes.
type objectsBefore struct {
	group     *state.Group
	runs      storedRuns
	nodes     []corev1.Node
	commNodes map[string]*v1alpha1.CommNode
	commTasks map[string]*v1alpha1.CommTask
	pods      map[string]*corev1.Pod
	configMap *corev1.ConfigMap
	now       time.Time
}

func (w *groupWorld) objects() objectsBefore {
	out := objectsBefore{group: w.group.DeepCopy(), runs: (&v1alpha1.CommRunList{Items: w.runs}).DeepCopy().Items,
		nodes: (&corev1.NodeList{Items: w.nodes}).DeepCopy().Items, commNodes: map[string]*v1alpha1.CommNode{},
		commTasks: map[string]*v1alpha1.CommTask{}, pods: map[string]*corev1.Pod{},
		configMap: w.configMap.DeepCopy(), now: w.now}
	for name, cn := range w.commNodes {
		out.commNodes[name] = cn.DeepCopy()
	}
	for name, ct := range w.commTasks {
		out.commTasks[name] = ct.DeepCopy()
	}
	for name, pod := range w.pods {
		out.pods[name] = pod.DeepCopy()
	}
	return out
}

// change says, before anything is decided again, of the objects of one kind whether any changed, and whether the
// manager's watch tells it of one that did.
func (before *objectsBefore) change(w *groupWorld, of string) (changed, told bool) {
	r := New(Dependencies{Clock: clocktesting.NewFakePassiveClock(before.now)})
	note := func(a, b client.Object, gone bool, tells bool) {
		if gone || !equality.Semantic.DeepEqual(a, b) {
			changed, told = true, told || gone || tells
		}
	}
	switch of {
	case viaGroup:
		a, _ := before.group.Objects()
		b, _ := w.group.Objects()
		note(a, b, false, groupChanged(a, b))
	case viaCommRun:
		for i := range before.runs {
			a := &before.runs[i]
			at := slices.IndexFunc(w.runs, func(r v1alpha1.CommRun) bool { return r.Name == a.Name })
			if at < 0 {
				note(a, nil, true, true)
			} else {
				note(a, &w.runs[at], false, commRunChanged(a, &w.runs[at]))
			}
		}
		if len(w.runs) > len(before.runs) {
			changed, told = true, true
		}
	case viaCommTask:
		for name, a := range before.commTasks {
			b := w.commTasks[name]
			note(a, b, b == nil, b != nil && commTaskChanged(a, b))
		}
	case viaCommNode:
		for name, a := range before.commNodes {
			b := w.commNodes[name]
			note(a, b, b == nil, b != nil && r.commNodeChanged(a, b))
		}
		if len(w.commNodes) > len(before.commNodes) {
			changed, told = true, true
		}
	case viaNode:
		for i := range before.nodes {
			a := &before.nodes[i]
			at := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Name == a.Name })
			if at < 0 {
				note(a, nil, true, true)
				continue
			}
			note(a, &w.nodes[at], false, nodeChanged(a, &w.nodes[at]))
		}
		if len(w.nodes) > len(before.nodes) {
			changed, told = true, true
		}
	case viaPod: // this and the next are watched whatever changes in them
		for name, a := range before.pods {
			b := w.pods[name]
			note(a, b, b == nil, true)
		}
	case viaConfigMap:
		note(before.configMap, w.configMap, before.configMap != nil && w.configMap == nil, true)
	case viaRead:
		changed, told = true, true
	case viaTime:
		changed, told = true, !w.decided.WakeAt.IsZero() && !w.decided.WakeAt.After(w.now)
	}
	return changed, told
}
