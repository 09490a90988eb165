package runpod

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testPods are run pods of a manager that names both images.
var testPods = Config{AgentImage: "agent:test", DefaultRuntimeImage: "rocm:test"}

func testCommTask() *v1alpha1.CommTask {
	return &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Name: "g.n00001", Namespace: "team", UID: "uid-ct"},
		Spec: v1alpha1.CommTaskSpec{NodeName: "n00001"}}
}

// networkPods are the pods of one group on each kind of network.
func networkPods() map[string]*corev1.Pod {
	cfg := testPods
	cfg.RunPriorityClass = "commgroup-run"
	group := func(network v1alpha1.NetworkSpec) *corev1.Pod {
		g := testkit.Group()
		g.Spec.Span, g.Spec.Network = v1alpha1.SpanGroup, network
		return ForGroup(g, testCommTask(), "r1", 900, cfg)
	}
	queued := testkit.Group()
	queued.Spec.Run.QueueName, queued.Spec.Runtime.Pod.PriorityClassName = "validation", "system-node-critical"
	queued.Spec.Runtime.Pod.Labels = map[string]string{podstate.QueueLabel: "of the overrides",
		v1alpha1.LabelRole: "mine"}
	rdma := []v1alpha1.ResourceCount{{Name: "rdma/hca", Count: 1}, {Name: "amd.com/vnic", Count: 8}}
	return map[string]*corev1.Pod{
		"run":        ForNode(testkit.Group(), testCommTask(), "r1", cfg),
		"run-queued": ForNode(queued, testCommTask(), "r1", cfg),
		"group-pod": group(v1alpha1.NetworkSpec{Mode: v1alpha1.NetworkPod,
			PortRange: &v1alpha1.PortRange{First: 30000, Last: 30999}}),
		"group-host": group(v1alpha1.NetworkSpec{Mode: v1alpha1.NetworkHost,
			PortRange: &v1alpha1.PortRange{First: 30000, Last: 30999}, RDMAResources: rdma}),
		"group-multus": group(v1alpha1.NetworkSpec{Mode: v1alpha1.NetworkMultus,
			MultusNetworks: []string{"rails/rail-0", "rails/rail-1"}, RDMAResources: rdma,
			PortRange: &v1alpha1.PortRange{First: 30000, Last: 30999}}),
	}
}

func TestPodsAreAsWritten(t *testing.T) {
	for name, pod := range networkPods() {
		got, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "pods", name+".yaml")
		if *update {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s: the pod differs from %s (go test ./controllers/runpod -run PodsAreAsWritten -update, "+
				"and look at the difference)", name, path)
		}
	}
}

// TestRDMAResourcesChangeNoOther: neither the GPUs, which the budget counts by ranksPerNode, nor what the overrides ask
// for.
func TestRDMAResourcesChangeNoOther(t *testing.T) {
	g := testkit.SpanGroup(2, func(g *state.Group) {
		g.Spec.RanksPerNode = 8
		g.Spec.Runtime.Pod.Resources.Limits = corev1.ResourceList{"rdma/hca": apiresource.MustParse("2")}
		g.Spec.Runtime.Pod.Resources.Requests = corev1.ResourceList{"rdma/hca": apiresource.MustParse("2")}
		g.Spec.Network.RDMAResources = []v1alpha1.ResourceCount{{Name: v1alpha1.ResourceGPU, Count: 1},
			{Name: "rdma/hca", Count: 4}, {Name: "rdma/vf", Count: 3}}
	})
	resources := ForGroup(g, testCommTask(), "r1", 900, testPods).Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]int64{v1alpha1.ResourceGPU: 8, "rdma/hca": 2, "rdma/vf": 3} {
		limit, request := resources.Limits[name], resources.Requests[name]
		if limit.Value() != want || request.Value() != want {
			t.Errorf("%s: limit %d, request %d, want %d", name, limit.Value(), request.Value(), want)
		}
	}
}

func TestGroupPod(t *testing.T) {
	pods := networkPods()
	if g, r := pods["group-pod"], pods["run"]; g.Name == r.Name ||
		g.Labels[v1alpha1.LabelStage] != v1alpha1.StagePodGroup || r.Labels[v1alpha1.LabelStage] != "" ||
		*g.Spec.ActiveDeadlineSeconds != 900 ||
		!slices.Equal(g.Spec.Containers[0].Command, append(r.Spec.Containers[0].Command, "--stage=Group")) {
		t.Errorf("pods %s and %s: labels %v, command %v", g.Name, r.Name, g.Labels, g.Spec.Containers[0].Command)
	}
	sysctls := []corev1.Sysctl{{Name: "net.ipv4.ip_local_port_range", Value: "30000 30999"}}
	for name, tc := range map[string]struct {
		host    bool
		dns     corev1.DNSPolicy
		multus  string
		sysctls []corev1.Sysctl
		lock    bool
	}{
		"run":          {},
		"group-pod":    {sysctls: sysctls},
		"group-host":   {host: true, dns: corev1.DNSClusterFirstWithHostNet, lock: true},
		"group-multus": {multus: "rails/rail-0,rails/rail-1", sysctls: sysctls, lock: true},
	} {
		p := pods[name]
		ranks, install := p.Spec.Containers[0], p.Spec.InitContainers[0]
		if p.Spec.HostNetwork != tc.host || p.Spec.DNSPolicy != tc.dns ||
			p.Annotations[MultusAnnotation] != tc.multus || !slices.Equal(p.Spec.SecurityContext.Sysctls, tc.sysctls) {
			t.Errorf("%s: host network %t, DNS %q, annotations %v, sysctls %v",
				name, p.Spec.HostNetwork, p.Spec.DNSPolicy, p.Annotations, p.Spec.SecurityContext.Sysctls)
		}
		for what, security := range map[string]*corev1.SecurityContext{"ranks": ranks.SecurityContext,
			"install": install.SecurityContext} {
			if lock := slices.Contains(security.Capabilities.Add, "IPC_LOCK"); lock != (tc.lock && what == "ranks") ||
				security.Privileged != nil || *security.AllowPrivilegeEscalation ||
				!slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: container %s may %v, and drops %v",
					name, what, security.Capabilities.Add, security.Capabilities.Drop)
			}
		}
		for resource, want := range map[corev1.ResourceName]int64{"rdma/hca": 1, "amd.com/vnic": 8} {
			if !tc.lock {
				want = 0
			}
			limit, request := ranks.Resources.Limits[resource], ranks.Resources.Requests[resource]
			if limit.Value() != want || request.Value() != want {
				t.Errorf("%s: limit of %s is %s and request %s, want %d",
					name, resource, limit.String(), request.String(), want)
			}
		}
		if gpus := ranks.Resources.Limits[v1alpha1.ResourceGPU]; gpus.Value() != 8 {
			t.Errorf("%s: %s GPUs", name, gpus.String())
		}
	}
}

func TestRunPodsQueueAndPriority(t *testing.T) {
	pods := networkPods()
	if p := pods["run-queued"]; p.Labels[podstate.QueueLabel] != "validation" ||
		p.Labels[v1alpha1.LabelRole] != v1alpha1.RoleRun || p.Spec.PriorityClassName != "system-node-critical" {
		t.Errorf("labels %v, priority class %s", p.Labels, p.Spec.PriorityClassName)
	}
	if p := pods["run"]; p.Labels[podstate.QueueLabel] != "" || p.Spec.PriorityClassName != "commgroup-run" {
		t.Errorf("labels %v, priority class %s", p.Labels, p.Spec.PriorityClassName)
	}
	if p := ForNode(testkit.Group(), testCommTask(), "r1", testPods); p.Spec.PriorityClassName != "" {
		t.Errorf("a class %q although no flag names one", p.Spec.PriorityClassName)
	}
	// Monitors and others' pods stay out of each other's way only by this label.
	term := pods["run"].Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pods {
		if !selector.Matches(labels.Set(p.Labels)) {
			t.Errorf("%s may share a node with another run", name)
		}
	}
	if selector.Matches(labels.Set{NameLabel: "commgroup-monitor", v1alpha1.LabelRole: v1alpha1.RoleMonitor}) {
		t.Error("a run and a monitor exclude each other")
	}
}

// TestAPIServerTakesPods creates the pods of all networks in a real API server, which checks what a pod may ask for.
func TestAPIServerTakesPods(t *testing.T) {
	env, err := testenv.Environment()
	if err != nil {
		t.Fatal(err)
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		shippedPriorityClass(t)} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	for name, pod := range networkPods() {
		made := pod.DeepCopy()
		if err := c.Create(ctx, made, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !equality.Semantic.DeepEqual(made.Spec.SecurityContext.Sysctls, pod.Spec.SecurityContext.Sysctls) ||
			made.Spec.HostNetwork != pod.Spec.HostNetwork {
			t.Errorf("%s: the API server changed the pod: %+v", name, made.Spec)
		}
		if name == "run" && (*made.Spec.Priority != -1000 || *made.Spec.PreemptionPolicy != corev1.PreemptNever) {
			t.Errorf("priority %d, preemption %s; a run must never push a job aside",
				*made.Spec.Priority, *made.Spec.PreemptionPolicy)
		}
	}
	// What setNetwork avoids is really refused.
	host := networkPods()["group-host"]
	host.Spec.SecurityContext.Sysctls = networkPods()["group-pod"].Spec.SecurityContext.Sysctls
	if err := c.Create(ctx, host, client.DryRunAll); err == nil {
		t.Error("the API server takes a sysctl of the network for a pod on the node's network")
	}
	t.Run("Pod Security", func(t *testing.T) { podSecurityLevels(t, c) })
}

// shippedPriorityClass is the class that an install brings.
func shippedPriorityClass(t *testing.T) *schedulingv1.PriorityClass {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "manager", "priority_class.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	class := &schedulingv1.PriorityClass{}
	if err := yaml.UnmarshalStrict(data, class); err != nil {
		t.Fatal(err)
	}
	return class
}

func TestRunPodUser(t *testing.T) {
	g := testkit.Group()
	if p := ForNode(g, testCommTask(), "r1", testPods).Spec.SecurityContext; p.RunAsUser != nil ||
		p.RunAsNonRoot != nil {
		t.Errorf("without runAsUser: %+v", p)
	}
	g.Spec.Runtime.Pod.RunAsUser, g.Spec.Runtime.Pod.SupplementalGroups = ptr.To(int64(1000)), []int64{109}
	p := ForGroup(g, testCommTask(), "r1", 900, testPods).Spec.SecurityContext
	if p.RunAsUser == nil || *p.RunAsUser != 1000 || p.RunAsNonRoot == nil || !*p.RunAsNonRoot ||
		!slices.Equal(p.SupplementalGroups, []int64{109}) {
		t.Errorf("with runAsUser: %+v", p)
	}
}

func TestQueueTogether(t *testing.T) {
	g := testkit.Group()
	ct := &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{NodeName: "a"}}
	pod := ForGroup(g, ct, "1-1", 60, testPods)
	if QueueTogether(pod, g, "1-1", 4); pod.Labels[podstate.PodGroupLabel] != "" ||
		pod.Annotations[podstate.PodGroupCountAnnotation] != "" {
		t.Errorf("without a queue: %v %v", pod.Labels, pod.Annotations)
	}
	g.Spec.Run.QueueName = "gpus"
	names, roles := map[string]bool{}, map[string]bool{}
	for _, node := range []string{"a", "b"} {
		ct.Spec.NodeName = node
		pod = ForGroup(g, ct, "1-1", 60, testPods)
		QueueTogether(pod, g, "1-1", 4)
		roles[pod.Annotations[podstate.RoleHashAnnotation]] = true
		if names[pod.Labels[podstate.PodGroupLabel]] = true; pod.Annotations[podstate.PodGroupCountAnnotation] != "4" ||
			pod.Annotations[podstate.NotRetriableAnnotation] != "false" || pod.Labels[podstate.QueueLabel] != "gpus" {
			t.Errorf("%v %v", pod.Labels, pod.Annotations)
		}
	}
	pod = ForGroup(g, ct, "1-2", 60, testPods)
	QueueTogether(pod, g, "1-2", 4)
	if len(roles) != 1 || roles[""] {
		t.Errorf("roles %v: Kueue takes the pods for several sets", roles)
	}
	if len(names) != 1 || names[""] || names[pod.Labels[podstate.PodGroupLabel]] {
		t.Errorf("groups of pods %v, of the next run %s", names, pod.Labels[podstate.PodGroupLabel])
	}
}
