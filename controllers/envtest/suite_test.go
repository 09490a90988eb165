// Package envtest runs the reconciler against a real etcd and API server, with the manager's own permissions.
package envtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

const (
	operatorNamespace = testenv.Namespace
	managerUser       = testenv.ManagerUser
	agentImage        = testenv.AgentImage
)

var (
	restConfig *rest.Config
	scheme     = runtime.NewScheme()
	admin      client.Client // a cluster administrator
	asManager  client.Client // with the roles of config/rbac and nothing else
)

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

func runSuite(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // what matters is in status and events
	env, err := testenv.Environment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	restConfig, err = env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "envtest: could not start etcd and kube-apiserver of",
			env.BinaryAssetsDirectory+":", err)
		return 1
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "envtest: stop:", err)
		}
	}()
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "envtest:", err)
		return 1
	}
	return m.Run()
}

func setUp() error {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	restConfig.QPS = -1
	var err error
	if admin, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	impersonating := rest.CopyConfig(restConfig)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: managerUser, Groups: testenv.ManagerGroups}
	if asManager, err = client.New(impersonating, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return testenv.Install(context.Background(), admin)
}

// readObjects reads a file below config/.
func readObjects(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := testenv.Objects(filepath.Join("..", "..", "config", path))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// world is one namespace with one CommGroup, nodes of its own, and a clock that only the test moves.
type world struct {
	*testing.T
	ctx    context.Context
	ns     string
	group  *v1alpha1.CommGroup
	joined *state.Group // with its latest CommRun
	nodes  []string
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
	r      *controllers.CommGroupReconciler
}

// newWorld makes nodes with 8 GPUs each and a CommGroup of them; change may alter the group before it is created.
func newWorld(t *testing.T, nodes int, change func(*v1alpha1.CommGroup)) *world {
	t.Helper()
	w := &world{T: t, ctx: t.Context(), clock: clocktesting.NewFakePassiveClock(time.Now()),
		events: events.NewFakeRecorder(1000)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	w.must(admin.Create(w.ctx, ns))
	w.ns = ns.Name
	for i := range nodes {
		w.addNode(fmt.Sprintf("%s-n%d", w.ns, i), 8)
	}
	w.group = &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: w.ns},
		Spec: v1alpha1.CommGroupSpec{
			Members: v1alpha1.MembersSpec{
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": w.ns}}},
			Benchmark: v1alpha1.BenchmarkSpec{Collectives: []v1alpha1.Collective{v1alpha1.AllReduce},
				MinSizeBytes: 1024, MaxSizeBytes: 1 << 20},
		},
	}
	if change != nil {
		change(w.group)
	}
	w.must(admin.Create(w.ctx, w.group))
	w.restart()
	t.Cleanup(w.cleanUp)
	return w
}

// restart is a new manager: it has nothing but the objects.
func (w *world) restart() {
	w.r = controllers.New(controllers.Dependencies{Client: asManager, APIReader: asManager, Recorder: w.events,
		Clock: w.clock, Config: controllers.Config{AgentImage: agentImage, DefaultRuntimeImage: "rocm:test"}})
}

func (w *world) cleanUp() {
	ctx := context.Background()
	w.ctx = ctx
	for _, name := range w.nodes {
		_ = client.IgnoreNotFound(admin.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		// Owned by the Node, but envtest has no garbage collector.
		_ = client.IgnoreNotFound(admin.Delete(ctx, &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	_ = admin.Delete(ctx, w.group)
	w.endPods()
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	_, _ = w.r.Reconcile(ctx, w.request())
	// The group's own, which each later reconcile of any group would read.
	for _, owned := range []client.Object{&v1alpha1.CommTask{}, &v1alpha1.CommRun{}} {
		_ = admin.DeleteAllOf(ctx, owned, client.InNamespace(w.ns))
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) request() ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.group)}
}

func (w *world) addNode(name string, gpus int64) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": w.ns}}}
	w.must(admin.Create(w.ctx, node))
	w.nodes = append(w.nodes, name)
	if gpus > 0 {
		node.Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(gpus,
			resource.DecimalSI)}
		node.Status.Capacity = node.Status.Allocatable
		w.must(admin.Status().Update(w.ctx, node))
	}
}

// settle reconciles until a reconcile changes nothing, as the watches would have it, and reads the group.
func (w *world) settle() ctrl.Result {
	w.Helper()
	before := w.fingerprint()
	for range 30 {
		result, err := w.r.Reconcile(w.ctx, w.request())
		if err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		after := w.fingerprint()
		if before == after {
			w.refresh()
			return result
		}
		before = after
	}
	w.Fatal("30 reconciles, and each changed something: the controller fights itself")
	return ctrl.Result{}
}

func (w *world) refresh() {
	w.Helper()
	if err := client.IgnoreNotFound(admin.Get(w.ctx, w.request().NamespacedName, w.group)); err != nil {
		w.Fatal(err)
	}
	var err error
	w.joined, err = state.Of(w.ctx, admin, w.group)
	w.must(err)
}

// fingerprint is the resource versions of everything that the controller may write.
func (w *world) fingerprint() string {
	w.Helper()
	versions := map[string]string{}
	lists := []client.ObjectList{&v1alpha1.CommGroupList{}, &v1alpha1.CommRunList{}, &v1alpha1.CommTaskList{},
		&corev1.PodList{}, &corev1.ConfigMapList{}}
	for _, list := range lists {
		w.must(admin.List(w.ctx, list, client.InNamespace(w.ns)))
		w.must(meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			versions[fmt.Sprintf("%T/%s", o, m.GetName())] = m.GetResourceVersion()
			return err
		}))
	}
	for _, name := range w.nodes {
		node := &corev1.Node{}
		w.must(client.IgnoreNotFound(admin.Get(w.ctx, client.ObjectKey{Name: name}, node)))
		versions["node/"+name] = node.ResourceVersion
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(&b, "%s=%s\n", key, versions[key])
	}
	return b.String()
}

// ask creates a CommRun, which asks for a run.
func (w *world) ask(name string) {
	w.Helper()
	w.must(admin.Create(w.ctx, state.NewRun(w.group, name)))
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) commTask(node string) *v1alpha1.CommTask {
	w.Helper()
	ct := &v1alpha1.CommTask{}
	w.must(admin.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: v1alpha1.CommTaskName(w.group.Name, node)}, ct))
	return ct
}

// newCommNode is what a node's monitor creates.
func newCommNode(node *corev1.Node) *v1alpha1.CommNode {
	return &v1alpha1.CommNode{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
		Spec: v1alpha1.CommNodeSpec{NodeUID: string(node.UID)},
	}
}

// commNode is the node's CommNode; where there is none it is created.
func (w *world) commNode(node string) *v1alpha1.CommNode {
	w.Helper()
	cn := &v1alpha1.CommNode{}
	err := admin.Get(w.ctx, client.ObjectKey{Name: node}, cn)
	if apierrors.IsNotFound(err) {
		cn = newCommNode(w.node(node))
		err = admin.Create(w.ctx, cn)
	}
	w.must(err)
	return cn
}

func (w *world) pods() []corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	w.must(admin.List(w.ctx, &pods, client.InNamespace(w.ns),
		client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}))
	return pods.Items
}

func (w *world) podOn(node string) *corev1.Pod {
	w.Helper()
	pods := w.pods()
	for i := range pods {
		if pods[i].Labels[v1alpha1.LabelNode] == v1alpha1.LabelValue(node) {
			return &pods[i]
		}
	}
	w.Fatalf("no run pod for node %s among %d", node, len(pods))
	return nil
}

// endPods is the kubelet that ends every pod that was told to.
func (w *world) endPods() {
	for _, pod := range w.pods() {
		if !pod.DeletionTimestamp.IsZero() {
			_ = client.IgnoreNotFound(admin.Delete(w.ctx, &pod, client.GracePeriodSeconds(0)))
		}
	}
}

// bind is the scheduler.
func (w *world) bind(pod *corev1.Pod, node string) {
	w.Helper()
	w.must(admin.SubResource("binding").Create(w.ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// start binds the node's pod and says that its ranks run.
func (w *world) start(node string) *corev1.Pod {
	w.Helper()
	pod := w.podOn(node)
	w.bind(pod, node)
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}}}
	w.must(admin.Status().Update(w.ctx, pod))
	return pod
}

// end says that the node's ranks ended with the code.
func (w *world) end(pod *corev1.Pod, code int32, message string) {
	w.Helper()
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	now := metav1.NewTime(w.clock.Now())
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now,
			FinishedAt: now}}}}
	w.must(admin.Status().Update(w.ctx, pod))
}

// facts of a node, by the test's clock.
func (w *world) facts(change func(*v1alpha1.NodeFacts)) *v1alpha1.NodeFacts {
	facts := &v1alpha1.NodeFacts{
		ObservedTime: metav1.NewTime(w.clock.Now()), ValidForSeconds: 600, Origin: v1alpha1.OriginHardware,
		KernelRelease: "6.8.0",
		Driver:        v1alpha1.DriverFacts{Kind: "DKMS", Version: "6.14.5"},
		ROCm:          v1alpha1.ROCmFacts{State: "Found", Version: "7.0.2"},
		GPUModel:      "MI300X", GFXTarget: "gfx942", GPUCount: 8, DeviceCount: 8, Partition: "SPX/NPS1",
		XGMI: v1alpha1.XGMIFacts{Mesh: "Full", Hives: 1, Links: 56},
	}
	if change != nil {
		change(facts)
	}
	return facts
}

// reportFacts is the node's monitor, but for the API server's record of who wrote: the test's clock says when.
func (w *world) reportFacts(node string, change func(*v1alpha1.NodeFacts)) {
	w.Helper()
	cn := w.commNode(node)
	cn.Status.Facts = w.facts(change)
	w.must(admin.Status().Update(w.ctx, cn))
}

// applyFacts is the node's monitor as it writes: the API server records when, by its own clock.
func (w *world) applyFacts(node string, change func(*v1alpha1.NodeFacts)) {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.facts(change))
	w.must(err)
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"facts": content}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommNode"))
	u.SetName(w.commNode(node).Name)
	w.must(admin.Status().Apply(w.ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(v1alpha1.FieldManagerMonitor), client.ForceOwnership))
}

func (w *world) reportAllFacts() {
	w.Helper()
	for _, node := range w.nodes {
		w.reportFacts(node, nil)
	}
}

// report is the node's agent at the end of its run.
func (w *world) report(node string, busBWMBps int64, change func(*v1alpha1.NodeRunStatus)) {
	w.Helper()
	ct := w.commTask(node)
	run := ct.Spec.Run
	if run == nil {
		w.Fatalf("node %s has no assignment", node)
	}
	now := metav1.NewTime(w.clock.Now())
	r := &v1alpha1.NodeRunStatus{
		ID: run.ID, Generation: run.Generation, Phase: v1alpha1.NodeRunFinished, StartTime: now, FinishTime: &now,
		Verdict: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonAllPassed,
		Library: &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3", BuildHash: "abc"},
		Environment: []v1alpha1.EnvVar{{Name: "HSA_NO_SCRATCH_RECLAIM", Value: "1"},
			{Name: "RCCL_ENABLE_DDA_ALLREDUCE", Value: "1"}},
		Settings: []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Requested: "Preferred",
			Effective: v1alpha1.EffectivePartial, Reason: v1alpha1.SettingReasonAboveThreshold,
			Verified: v1alpha1.VerifiedConfirmed, Cause: "up to 30408704 B"}},
	}
	plan := w.joined.Status.Plan
	for _, variant := range plan.Variants {
		for _, c := range plan.Collectives {
			s := v1alpha1.ResultSeries{Variant: variant, Collective: c, Datatype: plan.Datatypes[0]}
			for _, size := range plan.SizesBytes {
				s.SizeBytes = append(s.SizeBytes, size)
				s.LatencyNanoseconds = append(s.LatencyNanoseconds, 20_000)
				s.BusBandwidthMBps = append(s.BusBandwidthMBps, busBWMBps)
			}
			r.Results = append(r.Results, s)
		}
	}
	if change != nil {
		change(r)
	}
	ct.Status.Run = r
	w.must(admin.Status().Update(w.ctx, ct))
}

// finish starts, reports and ends the run on one node.
func (w *world) finish(node string, busBWMBps int64, change func(*v1alpha1.NodeRunStatus)) {
	w.Helper()
	pod := w.start(node)
	w.report(node, busBWMBps, change)
	w.end(pod, 0, "")
	w.settle()
	w.endPods()
	w.settle()
}

// wantCondition checks one condition's status and reason, and that its message holds all the words.
func (w *world) wantCondition(kind string, status metav1.ConditionStatus, reason string, words ...string) {
	w.Helper()
	c := meta.FindStatusCondition(w.group.Status.Conditions, kind)
	if c == nil {
		w.Fatalf("no condition %s", kind)
		return
	}
	if c.Status != status || c.Reason != reason {
		w.Fatalf("%s is %s/%s (%s), expected %s/%s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	if c.ObservedGeneration != w.group.Generation {
		w.Errorf("%s speaks of generation %d, the spec's is %d", kind, c.ObservedGeneration, w.group.Generation)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			w.Errorf("%s says %q, without %q", kind, c.Message, word)
		}
	}
}

// update changes the group's spec or metadata as a user would.
func (w *world) update(change func(*v1alpha1.CommGroup)) {
	w.Helper()
	w.refresh()
	change(w.group)
	w.must(admin.Update(w.ctx, w.group))
}

// sentEvents are the events sent so far, each "Type Reason note".
func (w *world) sentEvents() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}
