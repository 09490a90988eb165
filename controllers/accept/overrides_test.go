package accept

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

func TestReservedKeys(t *testing.T) {
	for key, value := range map[string]string{
		"rcclx.io/role": "monitor", "rcclx.io/stage": "group", "gating.rcclx.io/exempt": "true",
		"k8s.v1.cni.cncf.io/networks": "kube-system/all", "v1.multus-cni.io/default-network": "x", "k8s.ovn.org/x": "y",
		"container.apparmor.security.beta.kubernetes.io/ranks": "unconfined",
		"seccomp.security.alpha.kubernetes.io/pod":             "unconfined",
		"container.seccomp.security.alpha.kubernetes.io/ranks": "unconfined", "io.kubernetes.cri-o.Devices": "/dev/mem",
		"io.katacontainers.config.hypervisor.path": "/x",
		"kubernetes.io/egress-bandwidth":           "1M", "sidecar.istio.io/inject": "true",
		"sidecar.istio.io/userVolume": "{}", "inject.istio.io/templates": "x",
		"linkerd.io/inject": "enabled", "vault.hashicorp.com/agent-inject": "true",
		"iam.amazonaws.com/role": "admin", "azure.workload.identity/use": "true",
		"iam.gke.io/x": "y", "openshift.io/scc": "privileged", "devices.nri.io/pod": "/dev/mem",
		"gpu.cdi.k8s.io/all": "x",
	} {
		if !reserved(key, value) {
			t.Errorf("%s=%s is let through", key, value)
		}
	}
	for key, value := range map[string]string{
		"team": "a", "example.com/cost-centre": "7", "kueue.x-k8s.io/queue-name": "q",
		"kueue.x-k8s.io/priority-class": "low", "app.kubernetes.io/part-of": "training",
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "sidecar.istio.io/inject": "false",
		"linkerd.io/inject": "disabled", "karpenter.sh/do-not-disrupt": "true",
		"notrcclx.io/x": "y", "mykubernetes.io/x": "y", "prometheus.io/scrape": "true",
	} {
		if reserved(key, value) {
			t.Errorf("%s=%s is refused", key, value)
		}
	}
}

// FuzzReserved: no way of writing a key of a reserved domain passes but those that are listed as harmless.
func FuzzReserved(f *testing.F) {
	for _, key := range []string{"rcclx.io/role", "a.kubernetes.io/x", "x", "", "/", "io.kubernetes.x",
		"app.kubernetes.io/name"} {
		f.Add(key, "false")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		for _, domain := range reservedDomains {
			for _, k := range []string{domain + "/" + key, "sub." + domain + "/" + key} {
				harmless := slices.ContainsFunc(harmlessKeys, func(h struct{ prefix, value string }) bool {
					return strings.HasPrefix(k, h.prefix) && (h.value == "" || h.value == value)
				})
				if reserved(k, value) == harmless {
					t.Errorf("%q=%q: reserved %t, harmless %t", k, value, !harmless, harmless)
				}
			}
		}
	})
}

func TestOverridesAllowed(t *testing.T) {
	ok := decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "fine"}
	for name, tc := range map[string]struct {
		pod   v1alpha1.PodOverrides
		words string
	}{
		"nothing": {v1alpha1.PodOverrides{}, ""},
		"own labels": {v1alpha1.PodOverrides{Labels: map[string]string{"team": "a"},
			PriorityClassName: "low"}, ""},
		"another network": {v1alpha1.PodOverrides{Annotations: map[string]string{"a": "b",
			runpod.MultusAnnotation: "x"}}, "runtime.pod.annotations has the key \"" + runpod.MultusAnnotation},
		"the operator's label": {v1alpha1.PodOverrides{
			Labels: map[string]string{v1alpha1.LabelStage: v1alpha1.StagePodGroup}}, "runtime.pod.labels has the key"},
		"the cluster's class": {v1alpha1.PodOverrides{PriorityClassName: "system-node-critical"},
			"runtime.pod.priorityClassName is system-node-critical"},
	} {
		got := Overrides(ok, &v1alpha1.CommGroupSpec{Runtime: v1alpha1.RuntimeSpec{Pod: tc.pod}})
		if (tc.words == "") != got.IsTrue() || !strings.Contains(got.Message, tc.words) ||
			!got.IsTrue() && got.Reason != v1alpha1.ReasonPodOverridesNotAllowed {
			t.Errorf("%s: %+v", name, got)
		}
	}
	refused := decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooFewMembers, Message: "few"}
	if got := Overrides(refused, &v1alpha1.CommGroupSpec{
		Runtime: v1alpha1.RuntimeSpec{Pod: v1alpha1.PodOverrides{PriorityClassName: "system-x"}}}); got != refused {
		t.Errorf("another refusal is lost: %+v", got)
	}
}
