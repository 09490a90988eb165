package supportbundle

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

// managerNamespaces are where managers run; where they may not be looked up, the namespace that the chart uses.
func (g *gatherer) managerNamespaces(ctx context.Context) []string {
	within, cancel := context.WithTimeout(ctx, g.o.ItemDeadline)
	defer cancel()
	list, err := g.Kube.AppsV1().Deployments(metav1.NamespaceAll).List(within,
		metav1.ListOptions{LabelSelector: managerLabels})
	if err != nil {
		g.b.note("Deployments of all namespaces could not be listed (%v), so the manager was looked for in %s only; "+
			"--system-namespace names another.", err, g.o.SystemNamespace)
		return []string{g.o.SystemNamespace}
	}
	var out []string
	for i := range list.Items {
		if ns := list.Items[i].Namespace; !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	if len(out) == 0 {
		g.b.miss("manager/", "the manager",
			fmt.Errorf("no Deployment with the label %s in any namespace: is the operator installed?", managerLabels))
		return []string{g.o.SystemNamespace}
	}
	slices.Sort(out)
	return out
}

// podList gives pods as YAML, redacted, and remembers them for their logs.
func (g *gatherer) podList(ctx context.Context, namespace, labels string) ([]byte, error) {
	var all []corev1.Pod
	for token := ""; ; {
		list, err := g.Kube.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: labels, Limit: pageSize, Continue: token})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if token = list.Continue; token == "" {
			break
		}
	}
	order := map[string]int{}
	for i := range g.nodes {
		order[g.nodes[i].Spec.NodeName] = i
	}
	if labels == monitorLabels && len(order) > 0 {
		all = slices.DeleteFunc(all, func(p corev1.Pod) bool { // those of other nodes serve other groups
			_, member := order[p.Spec.NodeName]
			return !member && p.Spec.NodeName != ""
		})
	}
	slices.SortStableFunc(all, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(podRank(&a), podRank(&b)),
			cmp.Compare(order[a.Spec.NodeName], order[b.Spec.NodeName]), cmp.Compare(a.Name, b.Name))
	})
	if more := len(all) - g.o.MaxNodes; more > 0 {
		g.b.note("%d of %d pods with %s in %s are left out.", more, len(all), labels, namespace)
		all = all[:g.o.MaxNodes]
	}
	g.podsMu.Lock()
	g.pods = append(g.pods, all[:min(len(all), g.o.MaxPods)]...)
	g.podsMu.Unlock()
	if more := len(all) - g.o.MaxPods; more > 0 {
		g.b.note("Logs of %d of %d pods with %s in %s are left out, those that failed and those on the worst "+
			"nodes are in.", more, len(all), labels, namespace)
	}
	out := make([]corev1.Pod, 0, len(all))
	for i := range all {
		p := all[i].DeepCopy()
		redactMeta(&p.ObjectMeta)
		redactPodSpec(&p.Spec)
		out = append(out, *p)
	}
	if len(out) == 0 && labels == managerLabels {
		return nil, fmt.Errorf("no manager runs in namespace %s, so there is no log of one: nothing that the bundle "+
			"shows was kept up to date; look at its Deployment's replicas and events", namespace)
	}
	if len(out) == 0 {
		return []byte("# no pod with " + labels + " in " + namespace + "\n"), nil
	}
	return yaml.Marshal(map[string]any{"pods": out})
}

// podRank: failed and restarted pods first.
func podRank(p *corev1.Pod) int {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.RestartCount > 0 || s.State.Waiting != nil && s.State.Waiting.Reason != "" &&
			s.State.Waiting.Reason != "PodInitializing" {
			return 0
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodPending {
		return 0
	}
	return 1
}

// logs are items for each container of the pods that were found, and for the run before a restart.
func (g *gatherer) logs() []item {
	var items []item
	for i := range g.pods {
		p := &g.pods[i]
		if p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "" {
			continue // never placed: it has no log, and its status says why
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			base := "pods/" + fileName(p.Namespace) + "/" + fileName(p.Name) + "/" + fileName(s.Name)
			if s.State.Waiting == nil {
				items = append(items, item{base + ".log", "log", g.logOf(p, s.Name, false)})
			}
			if s.RestartCount > 0 {
				items = append(items, item{base + ".previous.log", "log before the restart", g.logOf(p, s.Name, true)})
			}
		}
	}
	return items
}

func (g *gatherer) logOf(p *corev1.Pod, container string, previous bool) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		lines := int64(20000)
		stream, err := g.Kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name,
			&corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines}).Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.Close() }()
		raw, err := io.ReadAll(io.LimitReader(stream, int64(max(16*g.o.LogBytes, 1<<20))))
		if err != nil && len(raw) == 0 {
			return nil, err
		}
		text := boundedLog(raw, g.o.LogBytes)
		if err != nil {
			text += fmt.Sprintf("\n... the rest could not be read: %v\n", err)
		}
		return []byte(text), nil
	}
}

func (g *gatherer) deployments(ctx context.Context, namespace string) ([]byte, error) {
	list, err := g.Kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: managerLabels})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		redactMeta(&list.Items[i].ObjectMeta)
		redactPodSpec(&list.Items[i].Spec.Template.Spec)
	}
	return yaml.Marshal(map[string]any{"deployments": list.Items})
}

func (g *gatherer) daemonSets(ctx context.Context, namespace string) ([]byte, error) {
	list, err := g.Kube.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: monitorLabels})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		redactMeta(&list.Items[i].ObjectMeta)
		redactPodSpec(&list.Items[i].Spec.Template.Spec)
	}
	return yaml.Marshal(map[string]any{"daemonSets": list.Items})
}

func (g *gatherer) leases(ctx context.Context, namespace string) ([]byte, error) {
	list, err := g.Kube.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		redactMeta(&list.Items[i].ObjectMeta)
	}
	return yaml.Marshal(map[string]any{"leases": list.Items})
}

// kubeNodes are items for the members' Nodes, trimmed.
func (g *gatherer) kubeNodes() []item {
	wanted := g.nodes[:min(len(g.nodes), g.o.MaxNodes)]
	items := make([]item, 0, len(wanted))
	for i := range wanted {
		name := wanted[i].Spec.NodeName
		items = append(items,
			item{"nodes/" + fileName(name) + ".yaml", "Node", func(ctx context.Context) ([]byte, error) {
				n, err := g.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				return yaml.Marshal(trimmedNode(n))
			}})
	}
	return items
}

// trimmedNode is what of a Node bears on GPUs and pods.
func trimmedNode(n *corev1.Node) map[string]any {
	info := n.Status.NodeInfo
	info.MachineID, info.SystemUUID = "", ""
	gating := map[string]string{}
	for k, v := range n.Annotations {
		if strings.HasPrefix(k, v1alpha1.AnnotationGatingPrefix) {
			gating[k] = v
		}
	}
	return map[string]any{"name": n.Name, "uid": n.UID, "created": n.CreationTimestamp, "labels": n.Labels,
		"gatingAnnotations": gating, "unschedulable": n.Spec.Unschedulable, "taints": n.Spec.Taints,
		"conditions": n.Status.Conditions, "capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable,
		"nodeInfo": info}
}

// concerns says whether an event of the group's namespace is of the group, its CommTasks or its pods.
func (g *gatherer) concerns(e *corev1.Event) bool {
	o := e.InvolvedObject
	switch o.Kind {
	case "CommGroup":
		return o.Name == g.o.Name
	case "CommTask", "Pod", "ConfigMap":
		return strings.HasPrefix(o.Name, g.o.Name)
	case "Node", "CommNode":
		return slices.ContainsFunc(g.nodes[:min(len(g.nodes), g.o.MaxNodes)], func(n report.Member) bool {
			return n.Spec.NodeName == o.Name
		})
	}
	return false
}

// events are lines in the order of time.
func (g *gatherer) events(ctx context.Context, namespace string, keep func(*corev1.Event) bool) ([]byte, error) {
	var all []corev1.Event
	for token := ""; ; {
		list, err := g.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if keep(&list.Items[i]) {
				all = append(all, list.Items[i])
			}
		}
		if token = list.Continue; token == "" || len(all) >= maxEvents {
			break
		}
	}
	at := func(e *corev1.Event) metav1.Time {
		switch {
		case !e.LastTimestamp.IsZero():
			return e.LastTimestamp
		case !e.EventTime.IsZero():
			return metav1.Time{Time: e.EventTime.Time}
		default:
			return e.CreationTimestamp
		}
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return at(&a).Compare(at(&b).Time) })
	if len(all) >= maxEvents {
		g.b.note("Events of %s are cut at %d.", namespace, maxEvents)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %d events in namespace %s, the newest last\n", len(all), namespace)
	for i := range all {
		e := &all[i]
		fmt.Fprintf(&b, "%s %s %s %s/%s x%d: %s\n", at(e).UTC().Format("2006-01-02T15:04:05Z"), e.Type, e.Reason,
			e.InvolvedObject.Kind, e.InvolvedObject.Name, max(e.Count, 1), strings.Join(strings.Fields(e.Message), " "))
	}
	return []byte(b.String()), nil
}
