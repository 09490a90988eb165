package compatible

import (
	"cmp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestProblemCulprit(t *testing.T) {
	const seen = "This pair reaches each other only over PCIe."
	tests := map[string]struct {
		problem             v1alpha1.Problem
		kind, name, message string
	}{
		"link": {v1alpha1.Problem{GPU: "0000:65:00.0", PeerGPU: "0000:d5:00.0"}, "Link",
			"0000:65:00.0<->0000:d5:00.0", seen},
		"GPU": {v1alpha1.Problem{GPU: "0000:65:00.0"}, "GPU", "0000:65:00.0", seen},
		"GPUs": {v1alpha1.Problem{GPUs: []string{"0000:65:00.0", "0000:d5:00.0"}}, "Node", "n1",
			"0000:65:00.0 0000:d5:00.0: " + seen},
		"NIC": {v1alpha1.Problem{NIC: "mlx5_0"}, "Node", "n1", "mlx5_0: " + seen},
		"file": {v1alpha1.Problem{Path: "sys/class/kfd/kfd/topology"}, "Node", "n1",
			"sys/class/kfd/kfd/topology: " + seen},
		"file of a GPU": {v1alpha1.Problem{Path: "sys/bus/pci/devices/0000:65:00.0"}, "Node", "n1",
			"sys/bus/pci/devices/0000:65:00.0: " + seen},
		"nothing": {v1alpha1.Problem{}, "Node", "n1", seen},
		"as long as it can": {v1alpha1.Problem{Path: strings.Repeat("y", 128), Message: strings.Repeat("z", 400)},
			"Node", "n1", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.problem.Code, tc.problem.Message = "Code", cmp.Or(tc.problem.Message, seen)
			got := problemCulprit("n1", tc.problem)
			if len(got.Message) > 512 {
				t.Errorf("the message takes %d bytes, the API 512", len(got.Message))
			}
			if tc.message == "" {
				tc.message = got.Message
			}
			want := v1alpha1.Culprit{Node: "n1", Kind: tc.kind, Name: tc.name, Reason: "Code", Message: tc.message}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The condition and the culprit both name the pair that the monitor found.
func TestLinkProblemNamesThePair(t *testing.T) {
	const pair = "0000:65:00.0<->0000:d5:00.0"
	cn := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	cn.Status.Facts = &v1alpha1.NodeFacts{Problems: []v1alpha1.Problem{{Severity: v1alpha1.SeverityError,
		Code: v1alpha1.ProblemPCIeInsteadOfXGMI,
		GPU:  "0000:65:00.0", PeerGPU: "0000:d5:00.0", Message: "This pair reaches each other only over PCIe."}}}
	var f fitting
	f.problems([]*v1alpha1.CommNode{cn})
	if text := strings.Join(f.messages, " "); f.reason != v1alpha1.ReasonTopologyFault ||
		!strings.Contains(text, "n1") || !strings.Contains(text, pair) {
		t.Errorf("%s: %s", f.reason, text)
	}
	if len(f.culprits) != 1 || f.culprits[0].Kind != "Link" || f.culprits[0].Name != pair {
		t.Errorf("%+v", f.culprits)
	}
}
