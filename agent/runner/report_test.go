package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

type clockTimer = clock.Timer

func containsText(s, want string) bool { return strings.Contains(s, want) }

// wholeCommNode is a CommNode with the plan, typical facts and the given report.
func wholeCommNode(plan api.RunPlan, run api.NodeRunStatus) api.CommNode {
	node := api.CommNode{
		TypeMeta: metav1.TypeMeta{APIVersion: "rcclx.io/v1alpha1", Kind: "CommNode"},
		ObjectMeta: metav1.ObjectMeta{Name: "training.gpu-node-0001", Namespace: "ml-platform", UID: "5f0c2c5e-1111-4000-8000-000000000000", Generation: 4, ResourceVersion: "123456",
			CreationTimestamp: metav1.Unix(1_790_000_000, 0),
			Labels: map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator", api.LabelGroup: "training", api.LabelGroupNamespace: "ml-platform",
				api.LabelGroupUID: "5f0c2c5e-3333-4000-8000-000000000000", api.LabelNode: "gpu-node-0001"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "rcclx.io/v1alpha1", Kind: "CommGroup", Name: "training", UID: "5f0c2c5e-3333-4000-8000-000000000000",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}},
		Spec: api.CommNodeSpec{NodeName: "gpu-node-0001", NodeUID: "5f0c2c5e-2222-4000-8000-000000000000",
			Group: api.GroupReference{Name: "training", UID: "5f0c2c5e-3333-4000-8000-000000000000"},
			Ranks: api.RankRange{Summary: "0-7/32", Count: 8, WorldSize: 32}, Run: &api.RunAssignment{ID: run.ID, Generation: 3, Plan: plan, PodName: "training-3-1-gpu-node-0001-932d020b"}},
		Status: api.CommNodeStatus{Run: &run, Facts: &api.NodeFacts{ValidForSeconds: 600, Origin: api.OriginHardware, BootID: "5f0c2c5e-0000-4000-8000-000000000000",
			KernelRelease: "5.15.0-119-generic", Driver: api.DriverFacts{Kind: "DKMS", Version: "6.12.12"}, ROCm: api.ROCmFacts{Version: "7.0.2", Source: "/opt/rocm/.info/version", State: "Found"},
			GPUModel: "MI300X", GFXTarget: "gfx942", GPUCount: 8, DeviceCount: 8, Partition: "SPX/NPS1", XGMI: api.XGMIFacts{Mesh: "Full", Hives: 1, Links: 56}}},
	}
	for i := range 8 {
		node.Status.Facts.GPUs = append(node.Status.Facts.GPUs, api.GPUFacts{PCIAddress: modelPCI(i), NUMANode: ptr.To(int32(i / 4)), VRAMMiB: ptr.To(int64(196592)), Hive: ptr.To(int32(1)), NIC: fmt.Sprintf("mlx5_%d", i), NICPath: "Switch", Links: "-aaaaaaa"})
		node.Status.Facts.NICs = append(node.Status.Facts.NICs, api.NICFacts{Name: fmt.Sprintf("mlx5_%d", i), Interface: fmt.Sprintf("enp%ds0np0", i), LinkLayer: "Ethernet", State: "Active", RateMbps: ptr.To(int64(400000)), NUMANode: ptr.To(int32(i / 4))})
	}
	return node
}

// assignmentOf is what KubeReporter reads from such a CommNode.
func assignmentOf(plan api.RunPlan) Assignment {
	node := wholeCommNode(plan, api.NodeRunStatus{ID: "run-1"})
	node.Status.Run = nil
	return Assignment{Run: node.Spec.Run, Ranks: int(node.Spec.Ranks.Count), BudgetBytes: reportBudget(node)}
}

// TestReportBudget: large facts leave a report less room, but never none.
func TestReportBudget(t *testing.T) {
	usual := wholeCommNode(defaultPlan(), api.NodeRunStatus{ID: "run-1"})
	budget := reportBudget(usual)
	if budget < 8000 || budget > 9500 {
		t.Errorf("beside usual facts a report gets %d bytes, expected 8000 to 9500", budget)
	}
	group := *usual.DeepCopy()
	group.Spec.Run.Span = api.SpanGroup
	if got := budget - reportBudget(group); got < sessionBytes-100 || got > sessionBytes+100 {
		t.Errorf("where the group's stage follows %d bytes are left for it, expected %d", got, sessionBytes)
	}
	group.Status.Session = &api.SessionStatus{RunID: "run-0", Message: strings.Repeat("m", 1000)}
	if got := budget - reportBudget(group); got < sessionBytes-100 || got > sessionBytes+100 {
		t.Errorf("beside the last run's session %d bytes are left for this one's, expected %d", got, sessionBytes)
	}
	for range 12 {
		usual.Status.Facts.Problems = append(usual.Status.Facts.Problems, api.Problem{Severity: "Error", Code: "LinkMissing", Message: strings.Repeat("m", 400)})
	}
	if got := reportBudget(usual); got != leastReportBytes {
		t.Errorf("beside very large facts a report gets %d bytes, expected %d", got, leastReportBytes)
	}
}

func TestDefaultReportFitsItsBudget(t *testing.T) {
	plan := defaultPlan()
	for name, tc := range map[string]struct {
		teams *modelTeams
		sizes int // that each Baseline series keeps at least
	}{
		"pass": {&modelTeams{relErr: 40000}, 9},
		"two slow links": {&modelTeams{relErr: 40000, pairMBps: func(a, b int) int64 {
			if a == 0 && b == 1 || a == 2 && b == 3 {
				return 100
			}
			return 48000
		}}, 5},
		"large latencies": {&modelTeams{relErr: 40000, latency: func(_ rcclx.Variant, _ rcclx.Collective, size int64) int64 { return 1_234_567_890 + size }}, 9},
	} {
		teams := tc.teams
		res, _, err := runModel(t, plan, teams, nil)
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(wholeCommNode(plan, res.Status)); err != nil {
			t.Fatal(err)
		}
		data := buf.Bytes()
		t.Logf("%s: CommNode %d bytes, status.run %d bytes, %d sizes", name, len(data), encodedBytes(res.Status), len(res.Status.Results[0].SizeBytes))
		if len(data) > nodeBudgetBytes {
			t.Errorf("%s: CommNode takes %d bytes, expected at most %d", name, len(data), nodeBudgetBytes)
		}
		if got := len(res.Status.Results[0].SizeBytes); got < tc.sizes {
			t.Errorf("%s: Baseline has %d sizes, expected at least %d", name, got, tc.sizes)
		}
		if got := len(res.Status.Results); got != 12 {
			t.Errorf("%s: %d series, expected 12", name, got)
		}
	}
}

func TestFitKeepsEndsAndThresholds(t *testing.T) {
	s := api.NodeRunStatus{ID: "r", Verdict: api.VerdictPass}
	sizes := rcclx.Sizes(1024, 1<<34, 2)
	for _, v := range []api.Variant{api.VariantBaseline, api.VariantDDA, api.VariantLowPrecision} {
		for i := range 12 {
			r := api.ResultSeries{Variant: v, Collective: api.AllReduce, Datatype: api.Datatype(fmt.Sprint("D", i))}
			for _, size := range sizes {
				r.SizeBytes = append(r.SizeBytes, size)
				r.LatencyNanoseconds = append(r.LatencyNanoseconds, size)
				r.BusBandwidthMBps = append(r.BusBandwidthMBps, -size)
			}
			s.Results = append(s.Results, r)
		}
	}
	keep := []int64{4096}
	got := Fit(s, 5000, keep)
	for _, r := range got.Results {
		if r.SizeBytes[0] != sizes[0] || r.SizeBytes[len(r.SizeBytes)-1] != sizes[len(sizes)-1] || !slices.Contains(r.SizeBytes, 4096) {
			t.Fatalf("sizes %v", r.SizeBytes)
		}
		for k, size := range r.SizeBytes {
			if r.LatencyNanoseconds[k] != size || r.BusBandwidthMBps[k] != -size {
				t.Fatalf("columns of %v went out of step", r)
			}
		}
	}
	if len(s.Results[0].SizeBytes) != len(sizes) {
		t.Error("Fit changed its argument")
	}
}

// TestReportedROCm: the container's ROCm is in the report, also where it could not be told; beside NVIDIA's library there is
// none to tell of.
func TestReportedROCm(t *testing.T) {
	amd, nvidia := &rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLXDev}, &rcclx.LibraryInfo{Flavor: rcclx.FlavorNCCL}
	found := discover.ROCmFacts{State: discover.ROCmFound, Version: "7.0.2", Source: "opt/rocm/.info/version", HIPVersion: "7.0.51831", RCCLVersion: "2.26.6"}
	for name, c := range map[string]struct {
		e    Evidence
		want *api.ROCmFacts
	}{
		"found": {Evidence{ROCm: &found, Library: amd},
			&api.ROCmFacts{State: "Found", Version: "7.0.2", Source: "opt/rocm/.info/version", HIPVersion: "7.0.51831", RCCLVersion: "2.26.6"}},
		"none":              {Evidence{ROCm: &discover.ROCmFacts{State: discover.ROCmNotFound}, Library: amd}, &api.ROCmFacts{State: "NotFound"}},
		"before the probe":  {Evidence{ROCm: &discover.ROCmFacts{State: discover.ROCmUnreadable}}, &api.ROCmFacts{State: "Unreadable"}},
		"NVIDIA":            {Evidence{ROCm: &discover.ROCmFacts{State: discover.ROCmNotFound}, Library: nvidia}, nil},
		"could not be seen": {Evidence{Library: amd}, nil},
		"long": {Evidence{ROCm: &discover.ROCmFacts{State: discover.ROCmFound, Version: "7.0.2", Source: strings.Repeat("d/", 200) + "version"}},
			&api.ROCmFacts{State: "Found", Version: "7.0.2", Source: clip.Head(strings.Repeat("d/", 200)+"version", 256)}},
	} {
		if diff := cmp.Diff(c.want, Finished(api.NodeRunStatus{}, c.e, Judgement{}, metav1.Time{}).ROCm); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
