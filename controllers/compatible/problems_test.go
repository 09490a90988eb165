package compatible

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestProblemCulprit(t *testing.T) {
	const seen = "This pair reaches each other only over PCIe."
	problem := func(subject, message string) v1alpha1.Problem {
		return v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: "Code", Subject: subject, Message: message}
	}
	tests := map[string]struct {
		problem             v1alpha1.Problem
		kind, name, message string
	}{
		"link":              {problem("0000:65:00.0<->0000:d5:00.0", seen), "Link", "0000:65:00.0<->0000:d5:00.0", seen},
		"GPU":               {problem("0000:65:00.0", seen), "GPU", "0000:65:00.0", seen},
		"file":              {problem("sys/class/kfd/kfd/topology", seen), "Node", "n1", "sys/class/kfd/kfd/topology: " + seen},
		"file of a GPU":     {problem("sys/bus/pci/devices/0000:65:00.0", seen), "Node", "n1", "sys/bus/pci/devices/0000:65:00.0: " + seen},
		"named already":     {problem("hive 2", "No link to hive 2."), "Node", "n1", "No link to hive 2."},
		"nothing":           {problem("", seen), "Node", "n1", seen},
		"as long as it can": {problem("x"+strings.Repeat("y", 127), strings.Repeat("z", 400)), "Node", "n1", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := problemCulprit("n1", tc.problem)
			if len(got.Message) > 512 {
				t.Errorf("the message takes %d bytes, the API 512", len(got.Message))
			}
			if tc.message == "" {
				tc.message = got.Message
			}
			want := v1alpha1.Culprit{Node: "n1", Kind: tc.kind, Name: tc.name, Reason: "Code", Message: tc.message}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The condition and the culprit both name the pair that the monitor found.
func TestLinkProblemNamesThePair(t *testing.T) {
	const pair = "0000:65:00.0<->0000:d5:00.0"
	cn := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	cn.Status.Facts = &v1alpha1.NodeFacts{Problems: []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemPCIeInsteadOfXGMI,
		Subject: pair, Message: "This pair reaches each other only over PCIe."}}}
	var f fitting
	f.problems([]*v1alpha1.CommNode{cn})
	if text := strings.Join(f.messages, " "); f.reason != v1alpha1.ReasonTopologyFault || !strings.Contains(text, "n1") || !strings.Contains(text, pair) {
		t.Errorf("%s: %s", f.reason, text)
	}
	if len(f.culprits) != 1 || f.culprits[0].Kind != "Link" || f.culprits[0].Name != pair {
		t.Errorf("%+v", f.culprits)
	}
}
