package supportbundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/htmlreport"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// gatherer carries what later parts need of earlier ones.
type gatherer struct {
	Clients
	o     Options
	b     *Bundle
	group *state.Group
	shown *state.Group    // group, redacted
	nodes []report.Member // the worst first
	// unread says why the nodes' CommNodes could not be read; empty where they were.
	unread string
	// podsMu guards pods: those whose logs are wanted.
	podsMu sync.Mutex
	pods   []corev1.Pod
}

// managerLabels and monitorLabels find the operator's objects, whatever the chart's release is called.
const (
	managerLabels = "app.kubernetes.io/name=commgroup-manager"
	monitorLabels = "app.kubernetes.io/name=commgroup-monitor"
)

// basics reads the group and its members, which tell what else to look for.
func (g *gatherer) basics(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, g.o.ItemDeadline)
	defer cancel()
	stored := &v1alpha1.CommGroup{}
	err := g.Groups.Get(within, client.ObjectKey{Namespace: g.o.Namespace, Name: g.o.Name}, stored)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %s/%s; kubectl get commgroups -A lists them", ErrNoGroup, g.o.Namespace, g.o.Name)
	}
	runs := g.commRuns(ctx)
	if err != nil {
		g.b.miss("commgroup.yaml", "the CommGroup", err) // the rest may still tell why
	} else {
		clean := stored.DeepCopy()
		redactMeta(&clean.ObjectMeta)
		clean.Spec.Runtime.ImagePullSecrets = redactPullSecrets(clean.Spec.Runtime.ImagePullSecrets)
		g.yaml("commgroup.yaml", clean)
		g.group = state.Join(stored, state.RunsOf(stored, runs))
		shown := *g.group
		shown.ObjectMeta, shown.Spec = clean.ObjectMeta, clean.Spec
		g.shown = &shown
	}
	if err := g.commTasks(ctx); err != nil {
		g.b.miss("commtasks/", "CommTasks", err)
	}
	g.commNodes(ctx)
	return nil
}

// commRuns are those of the group's name, an earlier group's too.
func (g *gatherer) commRuns(ctx context.Context) []v1alpha1.CommRun {
	within, cancel := context.WithTimeout(ctx, g.o.ItemDeadline)
	defer cancel()
	var list v1alpha1.CommRunList
	if err := g.Groups.List(within, &list, client.InNamespace(g.o.Namespace)); err != nil {
		g.b.miss("runs/", "the CommRuns, which have the results", err)
		return nil
	}
	runs := slices.DeleteFunc(list.Items, func(r v1alpha1.CommRun) bool { return r.Spec.GroupName != g.o.Name })
	for i := range runs {
		run := &runs[i]
		redactMeta(&run.ObjectMeta)
		if t := run.Status.Template; t != nil {
			t.Runtime.ImagePullSecrets = redactPullSecrets(t.Runtime.ImagePullSecrets)
		}
		g.yaml("runs/"+fileName(run.Name)+".yaml", run)
	}
	return runs
}

func (g *gatherer) yaml(path string, object any) {
	data, err := yaml.Marshal(object)
	if err != nil {
		g.b.miss(path, "object", err)
		return
	}
	g.b.add(path, data)
}

func (g *gatherer) commTasks(ctx context.Context) error {
	// thousands of objects are many pages
	within, cancel := context.WithTimeout(ctx, max(g.o.ItemDeadline, g.o.Deadline/3))
	defer cancel()
	for token := ""; ; {
		var list v1alpha1.CommTaskList
		if err := g.Groups.List(within, &list, client.InNamespace(g.o.Namespace),
			client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(g.o.Name)},
			client.Limit(pageSize), client.Continue(token)); err != nil {
			return err
		}
		for i := range list.Items {
			redactMeta(&list.Items[i].ObjectMeta)
		}
		g.nodes = append(g.nodes, report.Members(list.Items)...)
		if token = list.Continue; token == "" {
			break
		}
	}
	var culprits []v1alpha1.Culprit
	if g.group != nil {
		culprits = g.group.Status.Culprits
	}
	worstFirst(g.nodes, culprits)
	for i := range g.nodes[:min(len(g.nodes), g.o.MaxNodes)] {
		g.yaml("commtasks/"+fileName(g.nodes[i].Spec.NodeName)+".yaml", &g.nodes[i].CommTask)
	}
	if more := len(g.nodes) - g.o.MaxNodes; more > 0 {
		g.b.note("%d of %d CommTasks are left out, the worst are in; members.csv has all in short.", more, len(g.nodes))
	}
	return nil
}

// commNodes reads what is known of the members' nodes.
func (g *gatherer) commNodes(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, max(g.o.ItemDeadline, g.o.Deadline/3))
	defer cancel()
	unread, err := report.ReadNodes(within, g.Groups, g.nodes)
	if unread != "" {
		err = errors.New(unread)
	}
	if err != nil {
		g.unread = err.Error()
		g.b.miss("commnodes/", "CommNodes", err)
	}
	for i := range g.nodes[:min(len(g.nodes), g.o.MaxNodes)] {
		if n := g.nodes[i].Node; n != nil {
			redactMeta(&n.ObjectMeta)
			g.yaml("commnodes/"+fileName(n.Name)+".yaml", n)
		}
	}
	if len(g.nodes) > 0 {
		g.b.add("members.csv", membersCSV(g.nodes))
	}
}

// worstFirst puts nodes that a culprit names first, then those that failed, then those without a verdict.
func worstFirst(nodes []report.Member, culprits []v1alpha1.Culprit) {
	named := map[string]bool{}
	for _, c := range culprits {
		for _, n := range c.Nodes() {
			named[n] = true
		}
	}
	rank := func(n *report.Member) int {
		verdict, _ := report.Outcome(n)
		switch {
		case named[n.Spec.NodeName]:
			return 0
		case verdict == v1alpha1.VerdictFail || verdict == v1alpha1.VerdictError:
			return 1
		case verdict != v1alpha1.VerdictPass:
			return 2
		default:
			return 3
		}
	}
	slices.SortStableFunc(nodes, func(a, b report.Member) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Spec.Ranks.First, b.Spec.Ranks.First),
			cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
}

func membersCSV(nodes []report.Member) []byte {
	rows := [][]string{{"node", "ranks", "verdict", "reason", "gpuModel", "gpuCount", "rocm", "driver", "xgmiMesh",
		"partition", "problems", "observedTime"}}
	for i := range nodes {
		n := &nodes[i]
		verdict, reason := report.Outcome(n)
		h := n.Hardware()
		row := []string{n.Spec.NodeName, n.Spec.Ranks.Summary, string(verdict), reason, h.Model, h.GPUs, h.ROCm,
			h.Driver, h.Mesh, h.Mode}
		if f := n.Facts(); f != nil {
			var problems []string
			for _, p := range f.Problems {
				problems = append(problems, p.Code)
			}
			row = append(row, strings.Join(problems, " "), f.ObservedTime.UTC().Format("2006-01-02T15:04:05Z"))
		}
		for len(row) < len(rows[0]) {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		return nil // a buffer takes everything
	}
	return b.Bytes()
}

// rest gathers everything else: first the lists, then what they point to.
func (g *gatherer) rest(ctx context.Context) {
	system := g.managerNamespaces(ctx)
	items := []item{
		{"report.html", "the page for a browser", g.page},
		{"cluster.yaml", "versions", g.cluster},
		{"settings.yaml", "the published ConfigMap", g.settings},
		{"pods/run.yaml", "run pods", func(ctx context.Context) ([]byte, error) {
			return g.podList(ctx, g.o.Namespace, v1alpha1.LabelGroup+"="+v1alpha1.LabelValue(g.o.Name))
		}},
	}
	for _, ns := range system {
		items = append(items,
			item{"pods/monitors-" + ns + ".yaml", "monitors",
				func(ctx context.Context) ([]byte, error) { return g.podList(ctx, ns, monitorLabels) }},
			item{"manager/daemonsets-" + ns + ".yaml", "monitors' DaemonSet",
				func(ctx context.Context) ([]byte, error) { return g.daemonSets(ctx, ns) }},
			item{"manager/deployments-" + ns + ".yaml", "the manager's Deployment",
				func(ctx context.Context) ([]byte, error) { return g.deployments(ctx, ns) }},
			item{"manager/pods-" + ns + ".yaml", "the manager's pods",
				func(ctx context.Context) ([]byte, error) { return g.podList(ctx, ns, managerLabels) }},
			item{"manager/leases-" + ns + ".yaml", "who leads",
				func(ctx context.Context) ([]byte, error) { return g.leases(ctx, ns) }},
			item{"manager/events-" + ns + ".txt", "events of the operator's namespace",
				func(ctx context.Context) ([]byte, error) {
					return g.events(ctx, ns, func(*corev1.Event) bool { return true })
				}})
	}
	if !slices.Contains(system, g.o.Namespace) {
		items = append(items, item{"events.txt", "events of the group", func(ctx context.Context) ([]byte, error) {
			return g.events(ctx, g.o.Namespace, g.concerns)
		}})
	}
	g.run(ctx, items)
	g.run(ctx, append(g.kubeNodes(), g.logs()...))
}

// page is the HTML report of the same objects.
func (g *gatherer) page(context.Context) ([]byte, error) {
	if g.group == nil {
		return nil, fmt.Errorf("the CommGroup could not be read")
	}
	var b bytes.Buffer
	if err := htmlreport.Write(&b, htmlreport.Input{Group: g.shown, Nodes: g.nodes, Unread: g.unread, Now: g.o.Now,
		Version: g.o.Version}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// cluster tells the versions of the API server, of the CRDs without their schemas, and of this program.
func (g *gatherer) cluster(ctx context.Context) ([]byte, error) {
	info, err := g.Kube.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	out := map[string]any{"apiServer": info, "kubectlCommgroup": g.o.Version}
	var crds []map[string]any
	for _, resource := range []string{"commgroups", "commruns", "commtasks", "commnodes"} {
		name := resource + "." + v1alpha1.GroupVersion.Group
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		if err := g.Groups.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			crds = append(crds, map[string]any{"name": name, "error": err.Error()})
			g.b.miss("cluster.yaml", "the CRD "+name, err)
			continue
		}
		annotations := crd.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			if m, ok := v.(map[string]any); ok {
				delete(m, "schema")
				delete(m, "additionalPrinterColumns")
			}
		}
		status, _, _ := unstructured.NestedMap(crd.Object, "status")
		crds = append(crds, map[string]any{"name": name, "generation": crd.GetGeneration(), "annotations": annotations,
			"labels": crd.GetLabels(), "versions": versions, "status": status})
	}
	out["crds"] = crds
	return yaml.Marshal(out)
}

// settings is the ConfigMap that the group published; one of somebody else is not read.
func (g *gatherer) settings(ctx context.Context) ([]byte, error) {
	if g.group == nil || g.group.Status.Published == nil {
		return nil, nil
	}
	cm, err := g.Kube.CoreV1().ConfigMaps(g.o.Namespace).Get(ctx, g.group.Status.Published.ConfigMapName,
		metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(cm, g.group) {
		return nil, fmt.Errorf("ConfigMap %s does not belong to this CommGroup, so it was left out", cm.Name)
	}
	redactMeta(&cm.ObjectMeta)
	return yaml.Marshal(cm)
}

// podLogsLeft says of how many members that failed no run pod, and so no log, is there any more.
func (g *gatherer) podLogsLeft() {
	if slices.ContainsFunc(g.b.Missing, func(m Missing) bool { return m.Path == "pods/run.yaml" }) {
		return
	}
	has := map[string]bool{}
	for i := range g.pods {
		if g.pods[i].Namespace == g.o.Namespace {
			has[g.pods[i].Labels[v1alpha1.LabelNode]] = true
		}
	}
	bad, without := 0, 0
	for i := range g.nodes {
		if verdict, _ := report.Outcome(&g.nodes[i]); verdict == v1alpha1.VerdictFail ||
			verdict == v1alpha1.VerdictError {
			bad++
			if !has[v1alpha1.LabelValue(g.nodes[i].Spec.NodeName)] {
				without++
			}
		}
	}
	if without > 0 {
		g.b.note("Of %d of %d members with verdict Fail or Error no log of a run pod is here: "+
			"it went with its pod, which had to be deleted, was one too many (16 are kept), or is of the run before. "+
			"What a rank that failed printed last is in its CommTask, `status.run.logTail`. "+
			"For a whole log run again (`kubectl commgroup run %s -n %s`), and follow it: `kubectl logs -f -n "+
			"%s -l %s=%s,%s=%s --all-containers --prefix`.", without, bad, g.o.Name, g.o.Namespace, g.o.Namespace,
			v1alpha1.LabelGroup, v1alpha1.LabelValue(g.o.Name), v1alpha1.LabelRole, v1alpha1.RoleRun)
	}
}
