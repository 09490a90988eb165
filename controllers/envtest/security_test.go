package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	"rcclx.io/commgroup-operator/controllers"
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
	model.Spec.Volumes = slices.DeleteFunc(model.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access") })
	for _, containers := range [][]corev1.Container{model.Spec.Containers, model.Spec.InitContainers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, "kube-api-access") })
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
		"another account":    {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }, "runs as the account commgroup-run"},
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
		"the runtime's capabilities": {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil }, "each drops ALL"},
		"a port of the node": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 10250, HostPort: 10250}}
		}, "no part of its node's own"},
		"a process of a Windows host": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{RunAsUserName: ptr.To("x")}
		}, "no part of its node's own"},
		"another SELinux type": {func(p *corev1.Pod) { p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }, "of SELinux but the runtime's"},
		"another SELinux user": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "system_u"}
		}, "of SELinux but the runtime's"},
		"another seccomp profile": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("x.json")}
		}, "confined by its runtime's seccomp profile"},
		"another AppArmor profile": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To("x")}
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
		"the cluster's namespace":  {func(p *corev1.Pod) { p.Namespace = "kube-system" }, "in a namespace of the cluster's own"},
		"the operator's namespace": {func(p *corev1.Pod) { p.Namespace = operatorNamespace }, "or the operator's own"},
		"unconfined":               {func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined }, "confined by its runtime's seccomp profile"},
		"the host's files": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, "mounts neither the node's files"},
		"a Secret": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
		}, "nor Secrets"},
		"a Secret among others": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: secret}}}}}})
		}, "nor Secrets"},
		"a claim": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
		}, "nor claims"},
		"a Secret's variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: "k"}}})
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
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: httpTo("192.0.2.1").HTTPGet}}
		}, "names a host"},
		"a last hook that calls a host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: httpTo("192.0.2.1").HTTPGet}}
		}, "names a host"},
		"another's name": {func(p *corev1.Pod) {
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"kubernetes.default.svc"}}}
		}, "finds hosts as its cluster does"},
		"another's names": {func(p *corev1.Pod) {
			p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}
		}, "finds hosts as its cluster does"},
		"a finalizer": {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stay"} }, "may add no finalizer"},
		"a Secret's variables": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
		}, "no variables from Secrets"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, try(tc.change), tc.words) })
	}
	for name, change := range map[string]func(*corev1.Pod){
		"what Kueue's admission adds": func(p *corev1.Pod) { p.Finalizers = []string{"kueue.x-k8s.io/managed"} },
		"a sidecar's own probe":       func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: httpTo("")} },
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

// TestStolenManagerTokenMakesMonitorsOnly: the one way to privilege on a node is held tight.
func TestStolenManagerTokenMakesMonitorsOnly(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.settle()
	model := w.monitors()[0]
	try := func(change func(*appsv1.DaemonSet)) error {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "attempt", Namespace: operatorNamespace, Labels: maps.Clone(model.Labels)}, Spec: *model.Spec.DeepCopy()}
		change(ds)
		return asManager.Create(t.Context(), ds, client.DryRunAll)
	}
	if err := try(func(*appsv1.DaemonSet) {}); err != nil {
		t.Fatalf("a monitor as it was: %v", err)
	}
	container := func(change func(*corev1.Container)) func(*appsv1.DaemonSet) {
		return func(d *appsv1.DaemonSet) { change(&d.Spec.Template.Spec.Containers[0]) }
	}
	pod := func(change func(*corev1.PodSpec)) func(*appsv1.DaemonSet) {
		return func(d *appsv1.DaemonSet) { change(&d.Spec.Template.Spec) }
	}
	for name, tc := range map[string]struct {
		change func(*appsv1.DaemonSet)
		words  string
	}{
		"another image":   {container(func(c *corev1.Container) { c.Image = "evil:1" }), "of image " + agentImage},
		"another command": {container(func(c *corev1.Container) { c.Command = []string{"/bin/sh", "-c", "id"} }), "/agent monitor"},
		"a hook": {container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/rank"}}}}
		}), "/agent monitor"},
		"a probe that runs something": {container(func(c *corev1.Container) {
			c.LivenessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/rank"}}}
		}), "/agent monitor"},
		"a probe of a host":       {container(func(c *corev1.Container) { c.LivenessProbe.HTTPGet.Host = "192.0.2.1" }), "probed by HTTP at its own address"},
		"another probe of a host": {container(func(c *corev1.Container) { c.ReadinessProbe.HTTPGet.Host = "192.0.2.1" }), "probed by HTTP at its own address"},
		"a connection to a host":  {container(func(c *corev1.Container) { c.LivenessProbe.ProbeHandler = tcpTo("192.0.2.1") }), "probed by HTTP at its own address"},
		"a remote procedure": {container(func(c *corev1.Container) {
			c.LivenessProbe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}
		}), "probed by HTTP"},
		"another's name": {pod(func(p *corev1.PodSpec) {
			p.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"x"}}}
		}), "finds hosts as its cluster does"},
		"another's names": {pod(func(p *corev1.PodSpec) { p.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}} }), "finds hosts as its cluster does"},
		"another runtime": {pod(func(p *corev1.PodSpec) { p.RuntimeClassName = ptr.To("x") }), "runs as the cluster's pods do"},
		"devices": {pod(func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: ptr.To("x")}}
		}), "runs as the cluster's pods do"},
		"the runtime's annotation": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Annotations = map[string]string{"cdi.k8s.io/x": "vendor.com/device=0"}
		}, "runs as the cluster's pods do"},
		"a finalizer": {func(d *appsv1.DaemonSet) { d.Finalizers = []string{"example.com/stay"} }, "may add no finalizer"},
		"another container": {pod(func(p *corev1.PodSpec) {
			p.Containers = append(p.Containers, corev1.Container{Name: "more", Image: "evil:1"})
		}), "/agent monitor"},
		"an init container": {pod(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "more", Image: agentImage, Command: []string{"/agent", "monitor"}}}
		}), "/agent monitor"},
		"another account": {pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "commgroup-manager" }), "account commgroup-monitor"},
		"root": {container(func(c *corev1.Container) {
			c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot = ptr.To(int64(0)), nil
		}), "a monitor is not root"},
		"arguments":      {container(func(c *corev1.Container) { c.Args = []string{"--host-root", "/"} }), "/agent monitor"},
		"another option": {container(func(c *corev1.Container) { c.Command = append(c.Command, "--metrics-cert-dir=/host/opt") }), "/agent monitor"},
		"the disks' group": {pod(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{6}}
		}), "user and group 65532 alone"},
		"the disks' group as its own": {container(func(c *corev1.Container) { c.SecurityContext.RunAsGroup = ptr.To(int64(6)) }), "user and group 65532 alone"},
		"a group of volumes":          {pod(func(p *corev1.PodSpec) { p.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(int64(6))} }), "user and group 65532 alone"},
		"a port of the node":          {container(func(c *corev1.Container) { c.Ports[0].HostPort = c.Ports[0].ContainerPort }), "its node's namespaces and ports"},
		"a file of the node as the agent": {container(func(c *corev1.Container) {
			c.VolumeMounts[3].SubPath, c.VolumeMounts[3].MountPath = "bin/python3", "/agent"
		}), "whole and below /host"},
		"a part of a folder":        {container(func(c *corev1.Container) { c.VolumeMounts[3].SubPath = "x" }), "whole and below /host"},
		"a folder in another place": {container(func(c *corev1.Container) { c.VolumeMounts[3].MountPath = "/host/../etc" }), "whole and below /host"},
		"reports to someone else": {container(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.1"})
		}), "whom it reports to"},
		"host processes":     {pod(func(p *corev1.PodSpec) { p.HostPID = true }), "none of its node's namespaces"},
		"host network":       {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), "none of its node's namespaces"},
		"the whole host":     {pod(func(p *corev1.PodSpec) { p.Volumes[0].HostPath.Path = "/" }), "and nothing else"},
		"the kubelet's keys": {pod(func(p *corev1.PodSpec) { p.Volumes[0].HostPath.Path = "/sys/../var/lib/kubelet" }), ""},
		"to write":           {container(func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = false }), "to read"},
		"a Secret": {pod(func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
		}), "and nothing else"},
		"a Secret's variable": {container(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}})
		}), "no variables from Secrets"},
		"not a monitor": {func(d *appsv1.DaemonSet) { d.Labels = nil }, "no DaemonSets but those of monitors"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, try(tc.change), tc.words) })
	}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "attempt", Namespace: w.ns, Labels: maps.Clone(model.Labels)}, Spec: *model.Spec.DeepCopy()}
	refused(t, asManager.Create(t.Context(), ds, client.DryRunAll), "cannot create resource")
}

// TestStolenManagerTokenTouchesItsOwnOnly: accounts, bindings, ConfigMaps and CommGroups of others.
func TestStolenManagerTokenTouchesItsOwnOnly(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	ctx, dry := t.Context(), client.DryRunAll
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: w.ns, Labels: map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"}}
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.ns}}
	w.must(admin.Create(ctx, theirs))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.ns}}
	w.must(admin.Create(ctx, account))

	refused(t, asManager.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta("another")}, dry), "cannot create resource")
	refused(t, asManager.Delete(ctx, account.DeepCopy(), dry), "cannot delete resource")
	refused(t, asManager.Get(ctx, client.ObjectKeyFromObject(account), &corev1.ServiceAccount{}), "cannot get resource")
	refused(t, asManager.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace(w.ns)), "cannot list resource")
	refused(t, asManager.List(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(w.ns)), "cannot list resource")
	for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.ServiceList{}, &rbacv1.RoleList{}, &appsv1.DeploymentList{}} {
		refused(t, asManager.List(ctx, kind, client.InNamespace(w.ns)), "cannot list resource")
	}

	var binding rbacv1.RoleBinding
	w.must(admin.Get(ctx, types.NamespacedName{Namespace: w.ns, Name: controllers.RunRoleBinding}, &binding))
	apply := func(change func(*rbacv1.RoleBinding)) error {
		next := rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, ObjectMeta: meta(binding.Name),
			RoleRef: binding.RoleRef, Subjects: slices.Clone(binding.Subjects)}
		change(&next)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&next)
		w.must(err)
		return asManager.Patch(ctx, &next, client.RawPatch(types.ApplyPatchType, mustJSON(t, content)), client.FieldOwner("x"), client.ForceOwnership, dry)
	}
	if err := apply(func(*rbacv1.RoleBinding) {}); err != nil {
		t.Errorf("the binding as it was: %v", err)
	}
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "default" }), "and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "kube-system" }), "and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:authenticated"})
	}), "and nothing to anyone else")
	refused(t, apply(func(b *rbacv1.RoleBinding) { b.Labels = nil; b.Name = "commgroup-run2" }), "cannot patch resource")

	refused(t, asManager.Delete(ctx, theirs.DeepCopy(), dry), "no ConfigMaps but its own")
	taken := theirs.DeepCopy()
	taken.Labels = meta("x").Labels
	refused(t, asManager.Update(ctx, taken, dry), "no ConfigMaps but its own")
	refused(t, asManager.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: w.ns}}, dry), "no ConfigMaps but its own")
	owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: w.group.Name, UID: w.group.UID}}
	for namespace, words := range map[string]string{"kube-system": "outside of the namespaces of the cluster", operatorNamespace: "and of the operator", w.ns: ""} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "aws-auth", Namespace: namespace, Labels: meta("x").Labels, OwnerReferences: owner}}
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
		"annotation": func(g *v1alpha1.CommGroup) { g.Annotations = map[string]string{v1alpha1.AnnotationRunRequested: "1"} },
		"label":      func(g *v1alpha1.CommGroup) { g.Labels = map[string]string{"a": "b"} },
	} {
		group := w.group.DeepCopy()
		change(group)
		if err := asManager.Update(ctx, group, dry); err == nil || !strings.Contains(err.Error(), "but its finalizers and its status") {
			t.Errorf("the manager changes a CommGroup's %s: %v", name, err)
		}
	}
}

// TestStolenManagerTokenLeavesFinalizers: with one an object, and its namespace, would stay for ever; without one that someone relies
// on it would go too early.
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
	owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: w.group.Name, UID: w.group.UID}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: w.ns, Labels: map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"},
		OwnerReferences: owner, Finalizers: []string{"example.com/stay"}}}
	refused(t, asManager.Create(ctx, cm, dry), words)
	stay := metav1.ObjectMeta{Name: "x", Namespace: w.ns, Finalizers: []string{"example.com/stay"}}
	refused(t, asManager.Create(ctx, &corev1.Event{ObjectMeta: stay, InvolvedObject: corev1.ObjectReference{Namespace: w.ns}}, dry), words)
	refused(t, asManager.Create(ctx, &eventsv1.Event{ObjectMeta: stay, EventTime: metav1.NowMicro(), Action: "x", Reason: "x", ReportingController: "x.io/y",
		ReportingInstance: "x", Type: corev1.EventTypeNormal, Regarding: corev1.ObjectReference{Namespace: w.ns}}, dry), words)
	stay.Namespace = operatorNamespace
	refused(t, asManager.Create(ctx, &coordinationv1.Lease{ObjectMeta: stay}, dry), "may add no finalizer to a lease")
	for _, object := range []client.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: controllers.RunServiceAccount}},
		&rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: controllers.RunRoleBinding},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-agent-run"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: controllers.RunServiceAccount, Namespace: w.ns}}},
	} {
		object.SetNamespace(w.ns)
		object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "commgroup-operator"})
		object.SetFinalizers([]string{"example.com/stay"})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		w.must(err)
		refused(t, asManager.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, mustJSON(t, content)), client.FieldOwner("x"), client.ForceOwnership, dry), words)
	}
}

// TestGatingChangesNoOtherStatus tries each field of a Node's status, also those that Kubernetes may add.
func TestGatingChangesNoOtherStatus(t *testing.T) {
	w := newWorld(t, 1, nil)
	values := map[string]string{
		"addresses": `[{"type":"Hostname","address":"x"}]`, "allocatable": `{"x/y":"1"}`, "capacity": `{"x/y":"1"}`, "config": `{"error":"x"}`,
		"daemonEndpoints": `{"kubeletEndpoint":{"Port":1}}`, "features": `{"supplementalGroupsPolicy":true}`, "images": `[{"names":["x"],"sizeBytes":1}]`,
		"nodeInfo": `{"kernelVersion":"x"}`, "phase": `"Running"`, "runtimeHandlers": `[{"name":"x"}]`, "volumesAttached": `[{"name":"x","devicePath":"y"}]`,
		"volumesInUse": `["x"]`, "declaredFeatures": `["MyFeature"]`,
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

// TestAgentsKeepToTheirPart: a compromised run image holds its pod's token, which must not tell lies about the node; nor a monitor
// about a run.
func TestAgentsKeepToTheirPart(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	node := w.nodes[0]
	w.report(node, 300_000, nil)
	run := podClient(t, w.ns, controllers.RunServiceAccount, node)
	monitor := podClient(t, operatorNamespace, controllers.MonitorServiceAccount, node)
	patch := func(c client.Client, body string) error {
		target := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: w.commTask(node).Name}}
		return c.Status().Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(body)))
	}
	const words = "a monitor writes status.facts only"
	refused(t, patch(run, `{"status":{"facts":{"kernelRelease":"x"}}}`), words)
	refused(t, patch(run, `{"status":{"facts":null}}`), words)
	refused(t, patch(run, `{"status":null}`), words)
	refused(t, patch(monitor, `{"status":{"run":{"verdict":"Fail"}}}`), words)
	refused(t, patch(monitor, `{"status":{"run":null}}`), words)
	if err := patch(run, `{"status":{"run":{"reason":"`+v1alpha1.ReasonAllPassed+`"}}}`); err != nil {
		t.Errorf("a run pod's own part: %v", err)
	}
	if err := patch(monitor, `{"status":{"facts":{"kernelRelease":"6.9.0"}}}`); err != nil {
		t.Errorf("a monitor's own part: %v", err)
	}
	// Neither the spec nor metadata gets through by way of the status.
	before := w.commTask(node)
	if err := patch(monitor, `{"metadata":{"labels":{"x":"y"},"annotations":{"x":"y"},"finalizers":["x.io/y"],"ownerReferences":null},"spec":{"ranks":{"first":7}},"status":{"facts":{"kernelRelease":"6.9.1"}}}`); err != nil {
		t.Logf("refused: %v", err)
	}
	after := w.commTask(node)
	if !reflect.DeepEqual(before.Labels, after.Labels) || !reflect.DeepEqual(before.Annotations, after.Annotations) || !reflect.DeepEqual(before.Finalizers, after.Finalizers) ||
		!reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences) || !reflect.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("an agent changed more than the status: %+v, %+v", after.ObjectMeta, after.Spec)
	}
	for _, c := range []client.Client{run, monitor} {
		for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.PodList{}, &corev1.NodeList{}, &corev1.ConfigMapList{}, &v1alpha1.CommGroupList{}} {
			refused(t, c.List(context.Background(), kind, client.InNamespace(w.ns)), "cannot list resource")
		}
		refused(t, c.Delete(t.Context(), after.DeepCopy()), "cannot delete resource")
	}
}

// TestSomeonesRunAccountIsLeftAlone: run pods would have its rights, whatever they are.
func TestSomeonesRunAccountIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1, nil)
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: controllers.RunServiceAccount, Namespace: w.ns}}
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
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonRunPodNotStarted, "ServiceAccount "+w.ns+"/commgroup-run exists", "Rename or delete")
	w.wantNoCulprit()
	if len(w.pods()) != 0 {
		t.Error("a run pod with someone's account")
	}
	w.must(admin.Delete(w.ctx, w.group))
	for range 3 {
		_, _ = w.r.Reconcile(w.ctx, w.request())
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || len(theirs.Labels) != 0 {
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
