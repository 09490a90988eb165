package runpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// podSecurityLevels makes each kind of run pod in namespaces of each level of Pod Security: docs/security.md has the
// table.
func podSecurityLevels(t *testing.T, c client.Client) {
	rdma := []v1alpha1.ResourceCount{{Name: "rdma/hca", Count: 1}}
	ports := &v1alpha1.PortRange{First: 30000, Last: 30999}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CommGroupSpec)
		lowest string // the most restrictive level that takes the pods
	}{
		"as it is": {func(*v1alpha1.CommGroupSpec) {}, "baseline"},
		"with a user": {func(s *v1alpha1.CommGroupSpec) { s.Runtime.Pod.RunAsUser = ptr.To(int64(1000)) },
			"restricted"},
		"with a user and more": {func(s *v1alpha1.CommGroupSpec) {
			s.Runtime.Pod.RunAsUser, s.Runtime.Pod.SupplementalGroups = ptr.To(int64(1000)), []int64{109}
			s.Runtime.Pod.Labels, s.Runtime.Pod.PriorityClassName = map[string]string{"a": "b"}, ""
		}, "restricted"},
		"with ports": {func(s *v1alpha1.CommGroupSpec) {
			s.Network.PortRange, s.Runtime.Pod.RunAsUser = ports, ptr.To(int64(1000))
		}, "restricted"},
		"with Multus": {func(s *v1alpha1.CommGroupSpec) {
			s.Network.Mode, s.Network.MultusNetworks, s.Runtime.Pod.RunAsUser = v1alpha1.NetworkMultus,
				[]string{"rails/r0"}, ptr.To(int64(1000))
		}, "restricted"},
		"with RDMA": {func(s *v1alpha1.CommGroupSpec) { s.Network.RDMAResources = rdma }, "privileged"},
		"on the node's network": {func(s *v1alpha1.CommGroupSpec) { s.Network.Mode = v1alpha1.NetworkHost },
			"privileged"},
	} {
		t.Run(name, func(t *testing.T) {
			group := testkit.Group()
			group.Spec.Span = v1alpha1.SpanGroup
			tc.change(&group.Spec)
			taken := ""
			for _, level := range []string{"restricted", "baseline", "privileged"} {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "level-", Labels: map[string]string{
					"pod-security.kubernetes.io/enforce": level}}}
				if err := c.Create(t.Context(), ns); err != nil {
					t.Fatal(err)
				}
				group.Namespace = ns.Name
				pod := ForGroup(group, testCommTask(), "r1", 900, testPods)
				err := c.Create(t.Context(), pod, client.DryRunAll)
				switch {
				case err == nil && taken == "":
					taken = level
				case err != nil && taken != "":
					t.Errorf("level %s: %v", level, err)
				case err != nil && !strings.Contains(err.Error(), "violates PodSecurity"):
					t.Fatalf("level %s: %v", level, err)
				}
			}
			if taken != tc.lowest {
				t.Errorf("the most restrictive level that takes the pods is %q, expected %q", taken, tc.lowest)
			}
		})
	}
}
