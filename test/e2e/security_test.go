//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// guardedGroup has CommTasks and no runs.
const guardedGroup = `
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: guarded, namespace: default}
spec:
  members:
    minMembers: 3
    nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}
  run: {state: Suspended}
`

// testSecurity tries what docs/security.md says that cannot be done, with the tokens of pods that really run, and looks
// at the processes themselves.
func testSecurity(t *testing.T, e *env) {
	e.installOperator(t)
	e.apply(t, guardedGroup)
	var nodes v1alpha1.CommNodeList
	var tasks v1alpha1.CommTaskList
	eventually(t, runDeadline, "facts of all nodes, and CommTasks", func(ctx context.Context) error {
		if err := errors.Join(e.Client.List(ctx, &nodes),
			e.Client.List(ctx, &tasks, client.InNamespace("default"))); err != nil {
			return err
		}
		told := 0
		for i := range nodes.Items {
			if nodes.Items[i].Status.Facts != nil {
				told++
			}
		}
		if told != nodeCount || len(tasks.Items) != nodeCount {
			return fmt.Errorf("%d CommNodes with facts and %d CommTasks, expected %d",
				told, len(tasks.Items), nodeCount)
		}
		return nil
	})
	for i := range nodes.Items {
		if f := nodes.Items[i].Status.Facts; f.GPUCount != 8 {
			t.Errorf("the monitor on %s, which is not root, sees %d GPUs: %v",
				nodes.Items[i].Name, f.GPUCount, f.Problems)
		}
	}
	t.Run("Monitors' tokens", func(t *testing.T) { e.monitorsTokens(t, nodes.Items, tasks.Items) })
	t.Run("Manager's token", e.managersToken)
	t.Run("Manager is restricted", e.managerIsRestricted)
	t.Run("Processes", func(t *testing.T) {
		checkProcesses(t, "/manager", 1, true)
		checkProcesses(t, "/agent\x00monitor", nodeCount, false)
	})
}

// podsOf are running pods of the operator's namespace with the label, by node.
func (e *env) podsOf(t *testing.T, labels client.MatchingLabels) map[string]corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := e.Client.List(t.Context(), &pods, client.InNamespace(operatorNamespace), labels); err != nil {
		t.Fatal(err)
	}
	byNode := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			byNode[pod.Spec.NodeName] = pod
		}
	}
	return byNode
}

// withToken speaks as the pod's account; bound to the pod where one is given, as the kubelet's token is.
func (e *env) withToken(t *testing.T, account string, pod *corev1.Pod) client.Client {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
			Name: pod.Name, UID: pod.UID}
	}
	got, err := e.Kube.CoreV1().ServiceAccounts(operatorNamespace).CreateToken(t.Context(), account, request,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(e.Config)
	cfg.BearerToken = got.Status.Token
	c, err := client.New(cfg, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *env) monitorsTokens(t *testing.T, nodes []v1alpha1.CommNode, tasks []v1alpha1.CommTask) {
	pods := e.podsOf(t, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleMonitor})
	write := func(c client.Client, target client.Object, body string) error {
		return c.Status().Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(body)),
			client.DryRunAll)
	}
	of := func(name string) *v1alpha1.CommNode {
		return &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	const facts = `{"status":{"facts":{"kernelRelease":"forged"}}}`
	// Complete, so that nothing but rights can refuse it.
	const result = `{"status":{"run":{"id":"1-1","generation":1,"phase":"Finished","startTime":"2026-01-02T03:04:05Z","verdict":"Fail"}}}`
	unbound := e.withToken(t, "commgroup-monitor", nil)
	for i := range nodes {
		node := nodes[i].Name
		pod, there := pods[node]
		if !there {
			t.Fatalf("no monitor runs on %s", node)
		}
		own := e.withToken(t, "commgroup-monitor", &pod)
		for j := range nodes {
			err := write(own, of(nodes[j].Name), facts)
			if i == j && err != nil {
				t.Errorf("the monitor of %s writes its own facts: %v", node, err)
			}
			if i != j && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may not write of node")) {
				t.Errorf("the monitor of %s writes the facts of %s: %v", node, nodes[j].Name, err)
			}
		}
		if err := write(unbound, of(node), facts); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "names no node") {
			t.Errorf("a token of no pod writes facts: %v", err)
		}
		for j := range tasks {
			target := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: tasks[j].Namespace,
				Name: tasks[j].Name}}
			if err := write(e.Client, target.DeepCopy(), result); err != nil {
				t.Errorf("the result of a run is refused to an administrator too, so that it is no test of a "+
					"monitor's rights: %v", err)
			}
			if err := write(own, target, result); !apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), "cannot patch resource") {
				t.Errorf("the monitor of %s writes the result of a run on %s: %v", node, tasks[j].Spec.NodeName, err)
			}
		}
	}
}

func (e *env) managersToken(t *testing.T) {
	for _, pod := range e.podsOf(t, client.MatchingLabels{"app.kubernetes.io/name": "commgroup-manager"}) {
		manager := e.withToken(t, "commgroup-manager", &pod)
		thief := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "thief", Namespace: "kube-system"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := manager.Create(t.Context(), thief, client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "no pods but run pods") {
			t.Errorf("the manager's token makes a pod in kube-system: %v", err)
		}
		if err := manager.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager's token lists Secrets: %v", err)
		}
		monitors := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "thieves", Namespace: operatorNamespace}}
		if err := manager.Create(t.Context(), monitors, client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "cannot create resource") {
			t.Errorf("the manager's token makes a DaemonSet: %v", err)
		}
		return
	}
	t.Fatal("no manager runs")
}

// managerIsRestricted makes the manager's pod in a namespace of the level restricted.
func (e *env) managerIsRestricted(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := e.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Client.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	var manager appsv1.Deployment
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "commgroup-manager"},
		&manager); err != nil {
		t.Fatal(err)
	}
	// once the namespace has its default account
	eventually(t, shortDeadline, "the pod to be taken", func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: ns.Name},
			Spec: *manager.Spec.Template.Spec.DeepCopy()}
		pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", ""
		return e.Client.Create(ctx, pod, client.DryRunAll)
	})
}

// checkProcesses looks at the processes with that command: the nodes' containers are processes of this machine.
func checkProcesses(t *testing.T, command string, least int, confined bool) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(line)+"\x00", command+"\x00") {
			continue // it may have ended
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil {
			continue
		}
		found++
		fields := map[string]string{}
		for _, l := range strings.Split(string(status), "\n") {
			name, value, _ := strings.Cut(l, ":")
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
		want := map[string]string{"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532",
			"CapEff": "0000000000000000", "CapPrm": "0000000000000000"}
		if confined {
			want["NoNewPrivs"], want["Seccomp"], want["CapBnd"] = "1", "2", "0000000000000000"
		}
		for name, value := range want {
			if fields[name] != value {
				t.Errorf("%q has %s %q, expected %q",
					strings.ReplaceAll(string(line), "\x00", " "), name, fields[name], value)
			}
		}
	}
	if found < least {
		t.Errorf("%d processes %q, expected %d at least", found, strings.ReplaceAll(command, "\x00", " "), least)
	}
}
