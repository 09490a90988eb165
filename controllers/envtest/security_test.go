package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

// The tests of this file are what docs/security.md rests on: who holds which token, and what it is worth.

// refused checks that the error is the API server's refusal and says the words.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("expected a refusal with %q: %v", words, err)
	}
}

// TestStolenManagerTokenMakesRunPodsOnly starts from a run pod as the manager made it, and changes one thing at a time.
func TestStolenManagerTokenMakesRunPodsOnly(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	model := w.podOn(w.nodes[0])
	model.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Labels: model.Labels, OwnerReferences: model.OwnerReferences}
	// What the API server's admission put in, a manager would not send.
	model.Spec.Volumes = slices.DeleteFunc(model.Spec.Volumes, func(v corev1.Volume) bool {
		return strings.HasPrefix(v.Name, "kube-api-access")
	})
	for _, containers := range [][]corev1.Container{model.Spec.Containers, model.Spec.InitContainers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
				return strings.HasPrefix(m.Name, "kube-api-access")
			})
		}
	}
	try := func(change func(*corev1.Pod)) error {
		pod := model.DeepCopy()
		pod.Name = "attempt"
		change(pod)
		return asManager.Create(t.Context(), pod, client.DryRunAll)
	}
	if err := try(func(*corev1.Pod) {}); err != nil {
		t.Fatalf("a run pod as it was: %v", err)
	}
	secret := corev1.LocalObjectReference{Name: "s"}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		words  string
	}{
		"another account": {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" },
			"runs as the account commgroup-run"},
		"no label":           {func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelRole) }, "no pods but run pods"},
		"no owner":           {func(p *corev1.Pod) { p.OwnerReferences = nil }, "belongs to a CommTask"},
		"past the scheduler": {func(p *corev1.Pod) { p.Spec.NodeName = w.nodes[0] }, "goes through the scheduler"},
		"host network":       {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "no part of its node's own"},
		"host processes":     {func(p *corev1.Pod) { p.Spec.HostPID = true }, "no part of its node's own"},
		"privileged": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "no container of a run pod is privileged"},
		"privileged at its start": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "no container of a run pod is privileged"},
		"a capability": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		}, "a capability beyond IPC_LOCK"},
		"gains privileges": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
		}, "gains privileges"},
		"the runtime's capabilities": {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil },
			"each drops ALL"},
		"a port of the node": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 10250, HostPort: 10250}}
		}, "no part of its node's own"},
		"a process of a Windows host": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{RunAsUserName: ptr.To("x")}
		}, "no part of its node's own"},
		"another SELinux type": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}, "of SELinux but the runtime's"},
		"another SELinux user": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "system_u"}
		}, "of SELinux but the runtime's"},
		"another seccomp profile": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{
				Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("x.json")}
		}, "confined by its runtime's seccomp profile"},
		"another AppArmor profile": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{
				Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To("x")}
		}, "by no other of AppArmor"},
		"a value of the kernel": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
		}, "sets no value of the kernel"},
		"the cluster's priority": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = "system-node-critical", nil, nil
		}, "no priority of the cluster's own"},
		"another default network": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{"v1.multus-cni.io/default-network": "kube-system/x"}
		}, "carries no annotation"},
		"the runtime's annotation": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{"io.katacontainers.config.hypervisor.path": "/x"}
		}, "carries no annotation"},
		"the cluster's namespace": {func(p *corev1.Pod) { p.Namespace = "kube-system" },
			"in a namespace of the cluster's own"},
		"the operator's namespace": {func(p *corev1.Pod) { p.Namespace = operatorNamespace }, "or the operator's own"},
		"unconfined": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		}, "confined by its runtime's seccomp profile"},
		"the host's files": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "h",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, "mounts neither the node's files"},
		"a Secret": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
		}, "nor Secrets"},
		"a Secret among others": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes,
				corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{LocalObjectReference: secret}}}}}})
		}, "nor Secrets"},
		"a claim": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
		}, "nor claims"},
		"a Secret's variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "S",
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret,
					Key: "k"}}})
		}, "no variables from Secrets"},
		"a probe of a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: httpTo("192.0.2.1")}
		}, "names a host"},
		"a readiness probe of a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: tcpTo("192.0.2.1")}
		}, "names a host"},
		"a startup probe of a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: httpTo("192.0.2.1")}
		}, "names a host"},
		"a probe of a sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers[0].StartupProbe = &corev1.Probe{ProbeHandler: tcpTo("192.0.2.1")}
		}, "names a host"},
		"a hook that calls a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
				PostStart: &corev1.LifecycleHandler{HTTPGet: httpTo("192.0.2.1").HTTPGet}}
		}, "names a host"},
		"a last hook that calls a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
				PreStop: &corev1.LifecycleHandler{HTTPGet: httpTo("192.0.2.1").HTTPGet}}
		}, "names a host"},
		"another's name": {func(p *corev1.Pod) {
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"kubernetes.default.svc"}}}
		}, "finds hosts as its cluster does"},
		"another's names": {func(p *corev1.Pod) {
			p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone,
				&corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}
		}, "finds hosts as its cluster does"},
		"a finalizer": {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stay"} }, "may add no finalizer"},
		"a Secret's variables": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
		}, "no variables from Secrets"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, try(tc.change), tc.words) })
	}
	for name, change := range map[string]func(*corev1.Pod){
		"what Kueue's admission adds": func(p *corev1.Pod) { p.Finalizers = []string{"kueue.x-k8s.io/managed"} },
		"a sidecar's own probe": func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: httpTo("")}
		},
	} {
		if err := try(change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	theirs := w.job(w.nodes[0])
	refused(t, asManager.Delete(t.Context(), theirs.DeepCopy(), client.DryRunAll), "no pods but run pods")
}

func httpTo(host string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: host, Path: "/", Port: intstr.FromInt32(80)}}
}

func tcpTo(host string) corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host, Port: intstr.FromInt32(80)}}
}

// TestStolenManagerTokenIsNoMonitor: it makes nothing that runs with privilege, and tells nothing about a node.
func TestStolenManagerTokenIsNoMonitor(t *testing.T) {
	w := newWorld(t, 1, nil)
	ctx, dry := t.Context(), client.DryRunAll
	for _, namespace := range []string{operatorNamespace, w.ns} {
		refused(t, asManager.List(ctx, &appsv1.DaemonSetList{}, client.InNamespace(namespace)), "cannot list resource")
		for _, ds := range readObjects(t, "manager/monitor.yaml") {
			ds.SetNamespace(namespace)
			if err := admin.Create(ctx, ds.DeepCopy(), dry); err != nil {
				t.Fatalf("the monitors as an administrator makes them: %v", err)
			}
			refused(t, asManager.Create(ctx, ds.DeepCopy(), dry), "cannot create resource")
			refused(t,
				asManager.Patch(ctx, ds.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{}}`)), dry),
				"cannot patch resource")
			refused(t, asManager.Delete(ctx, ds.DeepCopy(), dry), "cannot delete resource")
		}
	}
	refused(t, asManager.Create(ctx, newCommNode(w.node(w.nodes[0])), dry), "cannot create resource")
	w.reportAllFacts()
	cn := w.commNode(w.nodes[0])
	refused(t, asManager.Update(ctx, cn.DeepCopy(), dry), "cannot update resource")
	refused(t, writeFacts(t, asManager, w, w.nodes[0]), "cannot patch resource")
	refused(t, asManager.Delete(ctx, cn.DeepCopy(), dry), "cannot delete resource")
}

// TestStolenManagerTokenTouchesItsOwnOnly: accounts, bindings, ConfigMaps and CommGroups of others.
func TestStolenManagerTokenTouchesItsOwnOnly(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	ctx, dry := t.Context(), client.DryRunAll
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: w.ns,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"}}
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.ns}}
	w.must(admin.Create(ctx, theirs))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.ns}}
	w.must(admin.Create(ctx, account))

	refused(t, asManager.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta("another")}, dry),
		"cannot create resource")
	refused(t, asManager.Delete(ctx, account.DeepCopy(), dry), "cannot delete resource")
	refused(t, asManager.Get(ctx, client.ObjectKeyFromObject(account), &corev1.ServiceAccount{}), "cannot get resource")
	refused(t, asManager.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace(w.ns)), "cannot list resource")
	refused(t, asManager.List(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(w.ns)), "cannot list resource")
	for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.ServiceList{}, &rbacv1.RoleList{},
		&appsv1.DeploymentList{}} {
		refused(t, asManager.List(ctx, kind, client.InNamespace(w.ns)), "cannot list resource")
	}

	var binding rbacv1.RoleBinding
	w.must(admin.Get(ctx, types.NamespacedName{Namespace: w.ns, Name: runpod.RoleBinding}, &binding))
	apply := func(change func(*rbacv1.RoleBinding)) error {
		next := rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1",
			Kind: "RoleBinding"}, ObjectMeta: meta(binding.Name),
			RoleRef: binding.RoleRef, Subjects: slices.Clone(binding.Subjects)}
		change(&next)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&next)
		w.must(err)
		return asManager.Patch(ctx, &next, client.RawPatch(types.ApplyPatchType, mustJSON(t, content)),
			client.FieldOwner("x"), client.ForceOwnership, dry)
	}
	if err := apply(func(*rbacv1.RoleBinding) {}); err != nil {
		t.Errorf("the binding as it was: %v", err)
	}
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "default" }), "and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "kube-system" }),
		"and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) {
		b.Subjects = append(b.Subjects,
			rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:authenticated"})
	}), "and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Labels = nil; b.Name = "commgroup-run2" }),
		"cannot patch resource")

	refused(t, asManager.Delete(ctx, theirs.DeepCopy(), dry), "no ConfigMaps but its own")
	taken := theirs.DeepCopy()
	taken.Labels = meta("x").Labels
	refused(t, asManager.Update(ctx, taken, dry), "no ConfigMaps but its own")
	refused(t, asManager.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: w.ns}}, dry),
		"no ConfigMaps but its own")
	owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: w.group.Name,
		UID: w.group.UID}}
	for namespace, words := range map[string]string{"kube-system": "outside of the namespaces of the cluster",
		operatorNamespace: "and of the operator", w.ns: ""} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "aws-auth", Namespace: namespace,
			Labels: meta("x").Labels, OwnerReferences: owner}}
		if err := asManager.Create(ctx, cm.DeepCopy(), dry); words != "" {
			refused(t, err, words)
		} else if err != nil {
			t.Errorf("a ConfigMap of its group: %v", err)
		}
		cm.OwnerReferences = nil
		refused(t, asManager.Create(ctx, cm, dry), "belongs to a CommGroup")
	}
	refused(t, asManager.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(w.ns)), "no ConfigMaps but its own")
	if err := admin.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("someone's ConfigMap: %v", err)
	}

	w.refresh()
	for name, change := range map[string]func(*v1alpha1.CommGroup){
		"spec":       func(g *v1alpha1.CommGroup) { g.Spec.RanksPerNode = 4 },
		"annotation": func(g *v1alpha1.CommGroup) { g.Annotations = map[string]string{"a": "b"} },
		"label":      func(g *v1alpha1.CommGroup) { g.Labels = map[string]string{"a": "b"} },
	} {
		group := w.group.DeepCopy()
		change(group)
		if err := asManager.Update(ctx, group, dry); err == nil ||
			!strings.Contains(err.Error(), "but its finalizers and its status") {
			t.Errorf("the manager changes a CommGroup's %s: %v", name, err)
		}
	}
	run := &v1alpha1.CommRun{}
	w.must(asManager.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: w.group.Status.Run.Name}, run))
	suspended := run.DeepCopy()
	suspended.Spec.Suspend = true
	refused(t, asManager.Patch(ctx, suspended, client.MergeFrom(run), dry), "but its labels, owners and status")
}

// TestStolenManagerTokenLeavesFinalizers: with one an object, and its namespace, would stay for ever; without one that
// someone relies on it would go too early.
func TestStolenManagerTokenLeavesFinalizers(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	ctx, dry := t.Context(), client.DryRunAll
	const words = "may add no finalizer, and take off none but rcclx.io/cleanup"
	w.refresh()
	for name, tc := range map[string]struct {
		before, after []string
		words         string
	}{
		"added":             {nil, []string{"example.com/stay"}, words},
		"its own, added":    {nil, []string{v1alpha1.Finalizer}, words},
		"its own, removed":  {[]string{v1alpha1.Finalizer}, nil, ""},
		"someone's, kept":   {[]string{v1alpha1.Finalizer, "example.com/stay"}, []string{"example.com/stay"}, ""},
		"someone's removed": {[]string{"example.com/stay"}, nil, words},
	} {
		group := w.group.DeepCopy()
		w.must(admin.Get(ctx, client.ObjectKeyFromObject(group), group))
		group.Finalizers = tc.before
		w.must(admin.Update(ctx, group))
		next := group.DeepCopy()
		next.Finalizers = tc.after
		if err := asManager.Update(ctx, next, dry); tc.words != "" {
			refused(t, err, tc.words)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		group.Finalizers = nil
		w.must(admin.Update(ctx, group))
	}
	ct := w.commTask(w.nodes[0])
	ct.Finalizers = []string{"example.com/stay"}
	refused(t, asManager.Update(ctx, ct, dry), words)
	owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: w.group.Name,
		UID: w.group.UID}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: w.ns,
		Labels:          map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"},
		OwnerReferences: owner, Finalizers: []string{"example.com/stay"}}}
	refused(t, asManager.Create(ctx, cm, dry), words)
	stay := metav1.ObjectMeta{Name: "x", Namespace: w.ns, Finalizers: []string{"example.com/stay"}}
	refused(t, asManager.Create(ctx,
		&corev1.Event{ObjectMeta: stay, InvolvedObject: corev1.ObjectReference{Namespace: w.ns}}, dry), words)
	refused(t, asManager.Create(ctx, &eventsv1.Event{ObjectMeta: stay, EventTime: metav1.NowMicro(), Action: "x",
		Reason: "x", ReportingController: "x.io/y", ReportingInstance: "x", Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{Namespace: w.ns}}, dry), words)
	stay.Namespace = operatorNamespace
	refused(t, asManager.Create(ctx, &coordinationv1.Lease{ObjectMeta: stay}, dry), "may add no finalizer to a lease")
	for _, object := range []client.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: runpod.ServiceAccount}},
		&rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: runpod.RoleBinding},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-agent-run"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: runpod.ServiceAccount,
				Namespace: w.ns}}},
	} {
		object.SetNamespace(w.ns)
		object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"})
		object.SetFinalizers([]string{"example.com/stay"})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		w.must(err)
		refused(t, asManager.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, mustJSON(t, content)),
			client.FieldOwner("x"), client.ForceOwnership, dry), words)
	}
}

// TestGatingChangesNoOtherStatus tries each field of a Node's status, also those that Kubernetes may add.
func TestGatingChangesNoOtherStatus(t *testing.T) {
	w := newWorld(t, 1, nil)
	values := map[string]string{
		"addresses": `[{"type":"Hostname","address":"x"}]`, "allocatable": `{"x/y":"1"}`, "capacity": `{"x/y":"1"}`,
		"config":          `{"error":"x"}`,
		"daemonEndpoints": `{"kubeletEndpoint":{"Port":1}}`, "features": `{"supplementalGroupsPolicy":true}`,
		"images":   `[{"names":["x"],"sizeBytes":1}]`,
		"nodeInfo": `{"kernelVersion":"x"}`, "phase": `"Running"`, "runtimeHandlers": `[{"name":"x"}]`,
		"volumesAttached": `[{"name":"x","devicePath":"y"}]`,
		"volumesInUse":    `["x"]`, "declaredFeatures": `["MyFeature"]`,
	}
	status := reflect.TypeFor[corev1.NodeStatus]()
	for i := range status.NumField() {
		name, _, _ := strings.Cut(status.Field(i).Tag.Get("json"), ",")
		if name == "conditions" {
			continue
		}
		value, known := values[name]
		if !known {
			t.Errorf("a Node's status.%s is new: add it to the policy commgroup-manager-node-marks and here", name)
			continue
		}
		patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{%q:%s}}`, name, value))
		before := w.node(w.nodes[0])
		target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: before.Name}}
		err := asManager.Status().Patch(t.Context(), target, patch, client.DryRunAll)
		if err == nil && reflect.DeepEqual(target.Status, before.Status) {
			continue // this API server keeps no such field
		}
		refused(t, err, "the manager of CommGroups may change nothing of a Node's status")
	}
}

// TestAgentsKeepToTheirPart: a compromised run image holds its pod's token, which must not tell lies about the node;
// nor a monitor about a run.
func TestAgentsKeepToTheirPart(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	node := w.nodes[0]
	w.report(node, 300_000, nil)
	run := podClient(t, w.ns, runpod.ServiceAccount, node)
	monitor := podClient(t, operatorNamespace, monitorAccount, node)
	patch := func(c client.Client, object client.Object, body string) error {
		return c.Status().Patch(t.Context(), object.DeepCopyObject().(client.Object),
			client.RawPatch(types.MergePatchType, []byte(body)))
	}
	task := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: w.commTask(node).Name}}
	of := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, body := range []string{`{"status":{"facts":{"kernelRelease":"x"}}}`, `{"status":{"facts":null}}`,
		`{"status":null}`} {
		refused(t, patch(run, of, body), "cannot patch resource")
	}
	refused(t, run.Create(t.Context(), newCommNode(w.node(node)), client.DryRunAll), "cannot create resource")
	refused(t, run.Get(t.Context(), client.ObjectKeyFromObject(of), of.DeepCopy()), "cannot get resource")
	lies := []string{`{"status":{"run":{"verdict":"Fail"}}}`, `{"status":{"run":null}}`, `{"status":null}`}
	for _, body := range lies {
		refused(t, patch(monitor, task, body), "cannot patch resource")
	}
	// The policy holds a monitor to its part also where somebody gave it more.
	w.must(admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "more", Namespace: w.ns},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: runpod.ClusterRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: monitorAccount,
			Namespace: operatorNamespace}}}))
	w.eventually("the monitor's further right", func() bool {
		return monitor.Get(t.Context(), client.ObjectKeyFromObject(task), task.DeepCopy()) == nil
	})
	for _, body := range lies {
		refused(t, patch(monitor, task, body), "a monitor writes its node's CommNode only")
	}
	if err := patch(run, task, `{"status":{"run":{"reason":"`+v1alpha1.ReasonAllPassed+`"}}}`); err != nil {
		t.Errorf("a run pod's own part: %v", err)
	}
	if err := patch(monitor, of, `{"status":{"facts":{"kernelRelease":"6.9.0"}}}`); err != nil {
		t.Errorf("a monitor's own part: %v", err)
	}
	// Neither the spec nor metadata gets through by way of the status.
	const metadata = `"metadata":{"labels":{"x":"y"},"annotations":{"x":"y"},"finalizers":["x.io/y"],"ownerReferences":null}`
	taskBefore, nodeBefore := w.commTask(node), w.commNode(node)
	for _, err := range []error{
		patch(run, task, `{`+metadata+`,"spec":{"ranks":{"first":7}},"status":{"run":{"reason":"x"}}}`),
		patch(monitor, of, `{`+metadata+`,"spec":{"nodeUID":"x"},"status":{"facts":{"kernelRelease":"6.9.1"}}}`),
	} {
		if err != nil {
			t.Logf("refused: %v", err)
		}
	}
	taskAfter, nodeAfter := w.commTask(node), w.commNode(node)
	if !reflect.DeepEqual(taskBefore.Spec, taskAfter.Spec) || !reflect.DeepEqual(nodeBefore.Spec, nodeAfter.Spec) {
		t.Errorf("an agent changed a spec: %+v, %+v", taskAfter.Spec, nodeAfter.Spec)
	}
	for _, pair := range [][2]client.Object{{taskBefore, taskAfter}, {nodeBefore, nodeAfter}} {
		before, after := pair[0], pair[1]
		if !reflect.DeepEqual(before.GetLabels(), after.GetLabels()) ||
			!reflect.DeepEqual(before.GetAnnotations(), after.GetAnnotations()) ||
			!reflect.DeepEqual(before.GetFinalizers(), after.GetFinalizers()) ||
			!reflect.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) {
			t.Errorf("an agent changed the metadata of %T: %+v", after, after)
		}
	}
	for _, c := range []client.Client{run, monitor} {
		for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.PodList{}, &corev1.NodeList{},
			&corev1.ConfigMapList{}, &v1alpha1.CommGroupList{}, &v1alpha1.CommNodeList{}} {
			refused(t, c.List(context.Background(), kind, client.InNamespace(w.ns)), "cannot list resource")
		}
		refused(t, c.Delete(t.Context(), taskAfter.DeepCopy()), "cannot delete resource")
		refused(t, c.Delete(t.Context(), nodeAfter.DeepCopy()), "cannot delete resource")
	}
}

// TestSomeonesRunAccountIsLeftAlone: run pods would have its rights, whatever they are.
func TestSomeonesRunAccountIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1, nil)
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: runpod.ServiceAccount, Namespace: w.ns}}
	w.must(admin.Create(t.Context(), theirs))
	w.settle()
	w.reportAllFacts()
	for range 5 {
		result, err := w.r.Reconcile(w.ctx, w.request())
		w.must(err)
		if result.RequeueAfter <= 0 {
			t.Errorf("result %+v, expected another reconcile", result)
		}
	}
	w.refresh()
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonRunPodNotStarted,
		"ServiceAccount "+w.ns+"/commgroup-run exists", "Rename or delete")
	w.wantNoCulprit()
	if len(w.pods()) != 0 {
		t.Error("a run pod with someone's account")
	}
	w.must(admin.Delete(w.ctx, w.group))
	for range 3 {
		_, _ = w.r.Reconcile(w.ctx, w.request())
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil ||
		len(theirs.Labels) != 0 {
		t.Errorf("someone's account: %v, labels %v", err, theirs.Labels)
	}
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
