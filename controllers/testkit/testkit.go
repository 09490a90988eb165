package testkit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/state"
)

// Scheme has the kinds that the manager reads and writes. A fake client maps all of its scheme's at each write, so that
// client-go's whole scheme takes most of a test's time.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// PodCondition is one condition of a pod.
func PodCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: "as the cluster says"}
}

// Resources are a node's, in pairs of name and quantity.
func Resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// Now is the time that tests begin at.
var Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Group is a group as the API server would have defaulted it.
func Group() *state.Group {
	return &state.Group{
		ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "team", UID: "uid-g", Generation: 1},
		Spec: v1alpha1.CommGroupSpec{
			Members: v1alpha1.MembersSpec{
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}, MinMembers: 1},
			RanksPerNode: 8,
			Span:         v1alpha1.SpanNode,
			Runtime: v1alpha1.RuntimeSpec{Pod: v1alpha1.PodOverrides{GPUResourceName: v1alpha1.ResourceGPU,
				ShmSizeMiB: 4096}},
			DDA:          v1alpha1.DDASpec{Mode: v1alpha1.FeaturePreferred},
			LowPrecision: v1alpha1.LowPrecisionSpec{Mode: v1alpha1.FeatureDisabled, MaxRelativeErrorPPM: 130000},
			Benchmark: v1alpha1.BenchmarkSpec{
				Variants: []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA,
					v1alpha1.VariantLowPrecision},
				Collectives:  []v1alpha1.Collective{v1alpha1.AllReduce},
				Datatypes:    []v1alpha1.Datatype{v1alpha1.BFloat16},
				MinSizeBytes: 1024, MaxSizeBytes: 1 << 20, SizeFactor: 4, Iterations: 20,
				WarmupIterations: ptr.To(int32(10)), NodeMinPercentOfMedian: ptr.To(int32(80)),
				LinkMinPercent: ptr.To(int32(70)),
			},
			Run: v1alpha1.RunPolicySpec{State: v1alpha1.RunActive, MaxParallelNodes: 16, StartDeadlineSeconds: 600,
				NodeDeadlineSeconds: 1800, InitDeadlineSeconds: 120, StepDeadlineSeconds: 60},
			Gating:  v1alpha1.GatingSpec{Mode: v1alpha1.GatingOff},
			Publish: v1alpha1.PublishSpec{Mode: v1alpha1.PublishWhenProven, Simulated: v1alpha1.SimulatedForbid},
		},
	}
}

// Step is the AllReduce of BFloat16 at this size.
func Step(sizeBytes int64) *v1alpha1.Step {
	return &v1alpha1.Step{Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: sizeBytes}
}

// Node is a node with eight GPUs.
func Node(name string, labels map[string]string) corev1.Node {
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

// Nodes are so many nodes, in the order of their names.
func Nodes(n int) []corev1.Node {
	out := make([]corev1.Node, n)
	for i := range out {
		out[i] = Node(fmt.Sprintf("n%05d", i), nil)
	}
	return out
}

// Facts are what the monitor of such a node reports.
func Facts(now time.Time) *v1alpha1.NodeFacts {
	return &v1alpha1.NodeFacts{
		ObservedTime: *decision.Stamp(now), ValidForSeconds: 600, Origin: v1alpha1.OriginHardware,
		KernelRelease: "6.8.0",
		Driver:        v1alpha1.DriverFacts{Kind: "DKMS", Version: "6.14.5"},
		ROCm:          v1alpha1.ROCmFacts{State: "Found", Version: "7.0.2"},
		GPUModel:      "MI300X", GFXTarget: "gfx942", GPUCount: 8, DeviceCount: 8, Partition: "SPX/NPS1",
		XGMI:   v1alpha1.XGMIFacts{Mesh: "Full", Hives: 1, Links: 56},
		BootID: "boot-1", Firmware: &v1alpha1.FirmwareFacts{MEC: "177", SDMA: "24"}, GPUs: GPUs(8),
		RenderNodeCount: ptr.To(int32(8)), PCIGPUCount: ptr.To(int32(8)),
	}
}

// GPUs are so many GPUs of one node.
func GPUs(n int) []v1alpha1.GPUFacts {
	out := make([]v1alpha1.GPUFacts, n)
	for i := range out {
		out[i].PCIAddress = fmt.Sprintf("0000:%02x:00.0", 5+32*i)
	}
	return out
}

// Reported is the message of each Report.
const Reported = "as reported"

// Report is an agent's report that covers the plan.
func Report(plan *v1alpha1.RunPlan, run *v1alpha1.RunAssignment, verdict v1alpha1.Verdict, busBWMBps int64,
	now time.Time) *v1alpha1.NodeRunStatus {
	r := &v1alpha1.NodeRunStatus{
		ID: run.ID, Generation: run.Generation, Phase: v1alpha1.NodeRunFinished, StartTime: *decision.Stamp(now),
		FinishTime: decision.Stamp(now),
		Verdict:    verdict, Reason: v1alpha1.ReasonAllPassed, Message: Reported,
		Library: &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3", BuildHash: "abc"},
		Environment: []v1alpha1.EnvVar{{Name: "RCCL_ENABLE_DDA_ALLREDUCE", Value: "1"},
			{Name: "HSA_NO_SCRATCH_RECLAIM", Value: "1"}},
		Settings: []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Preferred",
			Effective: v1alpha1.EffectivePartial, Reason: v1alpha1.SettingReasonAboveThreshold,
			Verified: v1alpha1.VerifiedConfirmed, Cause: "up to 30408704 B"}},
	}
	for _, variant := range plan.Variants {
		for _, c := range plan.Collectives {
			for _, d := range plan.Datatypes {
				s := v1alpha1.ResultSeries{Variant: variant, Collective: c, Datatype: d}
				for i, size := range plan.SizesBytes {
					s.SizeBytes = append(s.SizeBytes, size)
					s.LatencyNanoseconds = append(s.LatencyNanoseconds, 10_000*int64(i+1))
					s.BusBandwidthMBps = append(s.BusBandwidthMBps, busBWMBps*int64(i+1)/int64(len(plan.SizesBytes)))
				}
				r.Results = append(r.Results, s)
				if slices.Contains(plan.Placements, v1alpha1.InPlace) {
					s.Placement = v1alpha1.InPlace
					r.Results = append(r.Results, s)
				}
			}
		}
	}
	return r
}

// EveryAction of gating.
var EveryAction = []v1alpha1.GatingAction{v1alpha1.GatingCondition, v1alpha1.GatingLabel, v1alpha1.GatingTaint}
