package controllers

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

var (
	testNow    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	testConfig = Config{OperatorNamespace: "commgroup-system", AgentImage: "agent:test", DefaultRuntimeImage: "rocm:test", PrivilegedNamespaces: []string{"team"}}
)

// testGroup is a group as the API server would have defaulted it.
func testGroup() *v1alpha1.CommGroup {
	return &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "team", UID: "uid-g", Generation: 1},
		Spec: v1alpha1.CommGroupSpec{
			Members:      v1alpha1.MembersSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}, MinMembers: 1},
			RanksPerNode: 8,
			Span:         v1alpha1.SpanNode,
			Runtime:      v1alpha1.RuntimeSpec{Pod: v1alpha1.PodOverrides{GPUResourceName: v1alpha1.ResourceGPU, ShmSizeMiB: 4096}},
			DDA:          v1alpha1.DDASpec{Mode: v1alpha1.FeaturePreferred},
			LowPrecision: v1alpha1.LowPrecisionSpec{Mode: v1alpha1.FeatureDisabled, MaxRelativeErrorPPM: 130000},
			Benchmark: v1alpha1.BenchmarkSpec{
				Variants:    []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA, v1alpha1.VariantLowPrecision},
				Collectives: []v1alpha1.Collective{v1alpha1.AllReduce}, Datatypes: []v1alpha1.Datatype{v1alpha1.BFloat16},
				MinSizeBytes: 1024, MaxSizeBytes: 1 << 20, SizeFactor: 4, Iterations: 20,
				WarmupIterations: ptr.To(int32(10)), NodeMinPercentOfMedian: ptr.To(int32(80)), LinkMinPercent: ptr.To(int32(70)),
			},
			Run: v1alpha1.RunPolicySpec{State: v1alpha1.RunActive, MaxParallelNodes: 16, StartDeadlineSeconds: 600,
				NodeDeadlineSeconds: 1800, InitDeadlineSeconds: 120, StepDeadlineSeconds: 60},
			Health:  v1alpha1.HealthSpec{IntervalSeconds: 30, ReportValidSeconds: 600},
			Gating:  v1alpha1.GatingSpec{Mode: v1alpha1.GatingOff},
			Publish: v1alpha1.PublishSpec{Mode: v1alpha1.PublishWhenProven, Simulated: v1alpha1.SimulatedForbid},
		},
	}
}

func testNode(name string, labels map[string]string) corev1.Node {
	all := map[string]string{"gpu": "yes"}
	for k, v := range labels {
		all[k] = v
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: all},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("8")},
			Capacity: corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("8")}},
	}
}

func testNodes(n int) []corev1.Node {
	out := make([]corev1.Node, n)
	for i := range out {
		out[i] = testNode(fmt.Sprintf("n%05d", i), nil)
	}
	return out
}

func testFacts(now time.Time) *v1alpha1.NodeFacts {
	return &v1alpha1.NodeFacts{
		ObservedTime: *decision.Stamp(now), ValidForSeconds: 600, Origin: v1alpha1.OriginHardware, KernelRelease: "6.8.0",
		Driver:   v1alpha1.DriverFacts{Kind: "DKMS", Version: "6.14.5"},
		ROCm:     v1alpha1.ROCmFacts{State: "Found", Version: "7.0.2"},
		GPUModel: "MI300X", GFXTarget: "gfx942", GPUCount: 8, DeviceCount: 8, Partition: "SPX/NPS1",
		XGMI:   v1alpha1.XGMIFacts{Mesh: "Full", Hives: 1, Links: 56},
		BootID: "boot-1", Firmware: &v1alpha1.FirmwareFacts{MEC: "177", SDMA: "24"}, GPUs: testGPUs(8),
		RenderNodeCount: ptr.To(int32(8)), PCIGPUCount: ptr.To(int32(8)),
	}
}

func testGPUs(n int) []v1alpha1.GPUFacts {
	out := make([]v1alpha1.GPUFacts, n)
	for i := range out {
		out[i].PCIAddress = fmt.Sprintf("0000:%02x:00.0", 5+32*i)
	}
	return out
}

// testReport is an agent's report that covers the plan.
func testReport(run *v1alpha1.RunAssignment, verdict v1alpha1.Verdict, busBWMBps int64, now time.Time) *v1alpha1.NodeRunStatus {
	r := &v1alpha1.NodeRunStatus{
		ID: run.ID, Generation: run.Generation, Phase: v1alpha1.NodeRunFinished, StartTime: *decision.Stamp(now), FinishTime: decision.Stamp(now),
		Verdict: verdict, Reason: v1alpha1.ReasonAllPassed, Message: "as reported",
		Library:     &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3", BuildHash: "abc"},
		Environment: []v1alpha1.EnvVar{{Name: "RCCL_ENABLE_DDA_ALLREDUCE", Value: "1"}, {Name: "HSA_NO_SCRATCH_RECLAIM", Value: "1"}},
		Settings: []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Preferred", Effective: v1alpha1.EffectivePartial,
			Reason: v1alpha1.SettingReasonAboveThreshold, Verified: v1alpha1.VerifiedConfirmed, Message: "up to 30408704 B"}},
	}
	for _, variant := range run.Plan.Variants {
		for _, c := range run.Plan.Collectives {
			for _, d := range run.Plan.Datatypes {
				s := v1alpha1.ResultSeries{Variant: variant, Collective: c, Datatype: d}
				for i, size := range run.Plan.SizesBytes {
					s.SizeBytes = append(s.SizeBytes, size)
					s.LatencyNanoseconds = append(s.LatencyNanoseconds, 10_000*int64(i+1))
					s.BusBandwidthMBps = append(s.BusBandwidthMBps, busBWMBps*int64(i+1)/int64(len(run.Plan.SizesBytes)))
				}
				r.Results = append(r.Results, s)
				if slices.Contains(run.Plan.Placements, v1alpha1.InPlace) {
					s.Placement = v1alpha1.InPlace
					r.Results = append(r.Results, s)
				}
			}
		}
	}
	return r
}

// world plays the cluster for Decide: it applies decisions to values, as the API server would.
type world struct {
	now       time.Time
	group     *v1alpha1.CommGroup
	nodes     []corev1.Node
	commNodes map[string]*v1alpha1.CommNode // by object name
	pods      map[string]*corev1.Pod
	configMap *corev1.ConfigMap
	events    []decision.Event
	decided   Decision
	changes   map[string]int // how often a node was changed, by its name
	// holders are other pods that hold GPUs of a node; others and claims are what other groups run; looks counts the look-ups.
	holders map[string]string
	others  []corev1.Pod
	claims  []Claim
	looks   int
	// busyAt is what the manager remembers of its look-ups.
	busyAt lookMemory
}

func newWorld(group *v1alpha1.CommGroup, nodes []corev1.Node) *world {
	return &world{now: testNow, group: group, nodes: nodes, commNodes: map[string]*v1alpha1.CommNode{}, changes: map[string]int{}, pods: map[string]*corev1.Pod{}}
}

func (w *world) snapshot() *Snapshot {
	s := &Snapshot{Now: w.now, Group: w.group, Nodes: w.nodes, ConfigMap: w.configMap, ConfigMapCertain: true, OtherRunPods: w.others, Claims: w.claims,
		BusyAt: w.busyAt.of(client.ObjectKeyFromObject(w.group), w.now)}
	for _, name := range words.SortedKeys(w.commNodes) {
		s.CommNodes = append(s.CommNodes, *w.commNodes[name])
	}
	for _, name := range words.SortedKeys(w.pods) {
		s.RunPods = append(s.RunPods, *w.pods[name])
	}
	return s
}

// step decides once and applies the decision.
func (w *world) step() Decision {
	s := w.snapshot()
	d := Decide(s, testConfig)
	if len(d.LookAt) > 0 {
		s.Looked = map[string]string{}
		for _, node := range d.LookAt {
			s.Looked[node] = w.holders[node]
			w.looks++
		}
		w.busyAt.add(client.ObjectKeyFromObject(w.group), s.Looked, w.now)
		d = Decide(s, testConfig)
	}
	for _, name := range d.DeletePods {
		if pod := w.pods[name]; pod.Spec.NodeName == "" || !podAlive(pod) {
			delete(w.pods, name)
		} else if pod.DeletionTimestamp.IsZero() {
			pod.DeletionTimestamp = decision.Stamp(w.now)
		}
	}
	for _, name := range d.DeleteCommNodes {
		delete(w.commNodes, name)
	}
	for _, c := range d.CommNodes {
		next := c.Desired.DeepCopy()
		if old := w.commNodes[next.Name]; old != nil {
			next.Status = old.Status
		} else {
			next.UID, next.CreationTimestamp = types.UID("uid-cn-"+next.Name), *decision.Stamp(w.now)
		}
		w.commNodes[next.Name] = next
	}
	for _, pod := range d.CreatePods {
		if w.pods[pod.Name] == nil {
			pod.CreationTimestamp = *decision.Stamp(w.now)
			pod.Status.Phase = corev1.PodPending
			w.pods[pod.Name] = pod
		}
	}
	if d.ConfigMap != nil {
		w.configMap = d.ConfigMap
	}
	w.group.Status = d.Status
	w.events = append(w.events, d.Events...)
	w.decided = d
	return d
}

// settle steps until nothing changes, as the watches would have it.
func (w *world) settle() {
	for range 10 {
		before := w.group.Status.DeepCopy()
		d := w.step()
		if equalStatus(before, &d.Status) && len(d.CommNodes)+len(d.CreatePods)+len(d.DeletePods)+len(d.DeleteCommNodes) == 0 {
			return
		}
	}
}

func (w *world) reportFacts() {
	for _, cn := range w.commNodes {
		cn.Status.Facts = testFacts(w.now)
	}
}

func (w *world) commNode(node string) *v1alpha1.CommNode {
	return w.commNodes[v1alpha1.CommNodeName(w.group.Name, node)]
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
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: *decision.Stamp(now), StartedAt: *decision.Stamp(now)}}}}
}

// runAll lets every node pass, with the given bus bandwidths by rank order; the last one repeats.
func (w *world) runAll(busBWMBps ...int64) {
	for range 100 {
		w.settle()
		if run := w.group.Status.Run; run == nil || run.Phase != v1alpha1.RunPhaseRunning {
			return
		}
		for i := range w.nodes {
			node := w.nodes[i].Name
			pod := w.podOn(node)
			cn := w.commNode(node)
			if pod == nil || cn.Spec.Run == nil {
				continue
			}
			startPod(pod, node, w.now)
			cn.Status.Run = testReport(cn.Spec.Run, v1alpha1.VerdictPass, busBWMBps[min(i, len(busBWMBps)-1)], w.now)
			endPod(pod, 0, w.now)
		}
	}
}
