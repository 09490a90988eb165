package accept

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/clip"
)

// reservedDomains end the domain of a label's or annotation's key that a cluster's component acts on.
var reservedDomains = []string{
	"rcclx.io",                // this operator's own
	"kubernetes.io", "k8s.io", // the kubelet, admission, schedulers
	"cni.cncf.io", "multus-cni.io", // networks come from spec.network
	"ovn.org", "projectcalico.org", "cilium.io", "antrea.io", "kubeovn.io",
	"istio.io", "linkerd.io", "consul.hashicorp.com", "kuma.io", // sidecars, with volumes of their own
	"vault.hashicorp.com", "secrets-store.csi.x-k8s.io", // secrets
	"amazonaws.com", "azure.com", "workload.identity", "google.com", "gke.io", // identities of the cloud
	"openshift.io", "cri-o.io", "nri.io", "cdi.k8s.io", // the container runtime
}

// reservedPrefixes are those of keys without a domain that container runtimes act on.
var reservedPrefixes = []string{"io.kubernetes.", "io.katacontainers.", "io.containerd."}

// harmlessKeys are within a reserved domain, and only describe the pod, queue it, or keep something away from it. A
// value is the only one allowed; empty stands for any.
var harmlessKeys = []struct{ prefix, value string }{
	{"app.kubernetes.io/", ""},
	{"scheduling.k8s.io/group-name", ""},
	{"cluster-autoscaler.kubernetes.io/safe-to-evict", ""},
	{"sidecar.istio.io/inject", "false"},
	{"linkerd.io/inject", "disabled"},
}

// reserved says whether a run pod may not carry the label or annotation.
func reserved(key, value string) bool {
	for _, h := range harmlessKeys {
		if strings.HasPrefix(key, h.prefix) && (h.value == "" || h.value == value) {
			return false
		}
	}
	domain, _, hasDomain := strings.Cut(key, "/")
	for _, d := range reservedDomains {
		if hasDomain && (domain == d || strings.HasSuffix(domain, "."+d)) {
			return true
		}
	}
	return slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Overrides takes an acceptance back where runtime.pod asks for what its author may not hand to a pod. The API server
// refuses the best known of these itself; this holds for CommGroups that are older than its rules, too.
func Overrides(accepted decision.Finding, spec *v1alpha1.CommGroupSpec) decision.Finding {
	pod := &spec.Runtime.Pod
	if !accepted.IsTrue() {
		return accepted
	}
	no := func(what string) decision.Finding {
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodOverridesNotAllowed,
			Message: clip.Head(fmt.Sprintf(
				"runtime.pod.%s, which may give run pods more than a CommGroup's author may hand out. Remove it; "+
					"docs/security.md says what is allowed.", what), 1024)}
	}
	for _, m := range []struct {
		field string
		keys  map[string]string
	}{{"labels", pod.Labels}, {"annotations", pod.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(m.keys)) {
			if reserved(key, m.keys[key]) {
				return no(fmt.Sprintf("%s has the key %q of a cluster's component", m.field, key))
			}
		}
	}
	if strings.HasPrefix(pod.PriorityClassName, systemClasses) {
		return no(fmt.Sprintf("priorityClassName is %s, a class of the cluster's own pods", pod.PriorityClassName))
	}
	return accepted
}

// systemClasses begin the names of the classes that push every other pod aside.
const systemClasses = "system-"
