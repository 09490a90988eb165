package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

var now = time.Date(2026, 11, 28, 15, 0, 0, 0, time.UTC)

const secret = "hunter2-very-secret"

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels,
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"env":"` + secret + `"}`}}
}

func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull-me"}},
		Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"},
			{Name: "MY_PASSWORD", Value: secret}, {Name: "HF_HOME", Value: secret}}}}}
}

func pod(namespace, name, node string, labels map[string]string, restarts int32) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(namespace, name, labels), Spec: podSpec(node),
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
			RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
}

// cluster is a group of n nodes with its pods, the operator, and a Secret that nobody may read.
func cluster(t *testing.T, n int) (Clients, *kubefake.Clientset) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	group := &state.Group{ObjectMeta: meta("ml", "pool", nil), Status: state.Status{Culprits: []v1alpha1.Culprit{
		{Kind: "Node", Name: "node-1", Node: "node-1", Reason: "SlowNode", Message: "slow; drain it"}},
		Published: &v1alpha1.PublishedStatus{ConfigMapName: "pool-rccl-settings"},
		Run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Phase: v1alpha1.RunPhaseFinished,
			StartTime: metav1.NewTime(now)},
		Results: []v1alpha1.GroupResultSeries{{Variant: v1alpha1.VariantBaseline,
			Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16, SizeBytes: []int64{1 << 20},
			LatencyNanoseconds: []int64{654321}, BusBandwidthMBps: []int64{1602}, MinBusBandwidthMBps: []int64{1602}}}}}
	group.UID = "group-uid"
	group.Spec.Runtime.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-me"}}
	crds := make([]client.Object, 0, 4)
	for _, kind := range []string{"commgroups", "commruns", "commtasks", "commnodes"} {
		crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"versions": []any{map[string]any{"name": "v1alpha1", "schema": map[string]any{"big": "one"}}}}}}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		crd.SetName(kind + ".rcclx.io")
		crds = append(crds, crd)
	}
	stored, run := group.Objects()
	run.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: secret}
	elsewhere := state.NewRun(&metav1.ObjectMeta{Namespace: "ml", Name: "other"}, "other-1")
	groups := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored, run, elsewhere).WithObjects(crds...)
	mine := map[string]string{v1alpha1.LabelGroup: "pool", v1alpha1.LabelRole: v1alpha1.RoleRun}
	monitor := map[string]string{"app.kubernetes.io/name": "commgroup-monitor",
		v1alpha1.LabelRole: v1alpha1.RoleMonitor}
	manager := map[string]string{"app.kubernetes.io/name": "commgroup-manager"}
	controlled := meta("ml", "pool-rccl-settings", nil)
	yes := true
	controlled.OwnerReferences = []metav1.OwnerReference{{UID: group.UID, Controller: &yes}}
	objects := []runtime.Object{
		&corev1.Secret{ObjectMeta: meta("ml", "pull-me", nil), StringData: map[string]string{"x": secret}},
		&corev1.ConfigMap{ObjectMeta: controlled, Data: map[string]string{"RCCL_X": "1"}},
		&appsv1.Deployment{ObjectMeta: meta("ops", "commgroup-manager", manager),
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: podSpec("")}}},
		pod("ops", "manager-0", "node-0", manager, 1),
		&appsv1.DaemonSet{ObjectMeta: meta("ops", "commgroup-monitor", monitor),
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: podSpec("")}}},
		pod("ops", "monitor-elsewhere", "elsewhere", monitor, 1), // a node of no member
		&corev1.Event{ObjectMeta: meta("ml", "e1", nil),
			InvolvedObject: corev1.ObjectReference{Kind: "CommGroup", Name: "pool"}, Reason: "RunFinished",
			Message: "over"},
		&corev1.Event{ObjectMeta: meta("ml", "e2", nil),
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "someone-elses"},
			Reason:         "Foreign", Message: "x"},
	}
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		ct := &v1alpha1.CommTask{ObjectMeta: meta("ml", v1alpha1.CommTaskName("pool", name),
			map[string]string{v1alpha1.LabelGroup: "pool"}),
			Spec: v1alpha1.CommTaskSpec{NodeName: name, Ranks: v1alpha1.RankRange{First: int32(i * 8)}}}
		groups = groups.WithObjects(ct)
		cn := &v1alpha1.CommNode{ObjectMeta: meta("", name, nil), Status: v1alpha1.CommNodeStatus{
			Facts: &v1alpha1.NodeFacts{GPUModel: "MI300X", Problems: []v1alpha1.Problem{{Code: "NICDown"}}}}}
		groups = groups.WithObjects(cn)
		node := &corev1.Node{ObjectMeta: meta("", name, map[string]string{"zone": "a"}),
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "192.0.2.7"}}}}
		objects = append(objects, node, pod("ml", "pool-run-"+name, name, mine, 0),
			pod("ops", "monitor-"+name, name, monitor, 0))
	}
	kube := kubefake.NewClientset(objects...)
	return Clients{Kube: kube, Groups: groups.Build()}, kube
}

func options() Options {
	return Options{Namespace: "ml", Name: "pool", Now: now, Version: "test"}
}

func byPath(b *Bundle) map[string]string {
	out := map[string]string{}
	for _, f := range b.Files {
		out[f.Path] = string(f.Data)
	}
	return out
}

func TestCollect(t *testing.T) {
	c, kube := cluster(t, 3)
	b, err := Collect(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Missing) > 0 {
		t.Errorf("missing: %+v", b.Missing)
	}
	files := byPath(b)
	for _, path := range []string{"summary.md", "report.html", "commgroup.yaml", "runs/pool-1.yaml",
		"commtasks/node-1.yaml", "commnodes/node-1.yaml", "members.csv", "events.txt", "cluster.yaml", "settings.yaml",
		"nodes/node-0.yaml", "pods/run.yaml", "pods/monitors-ops.yaml", "manager/deployments-ops.yaml",
		"manager/daemonsets-ops.yaml", "manager/pods-ops.yaml", "pods/ml/pool-run-node-2/main.log",
		"pods/ops/monitor-node-0/main.log", "pods/ops/manager-0/main.log", "pods/ops/manager-0/main.previous.log"} {
		if files[path] == "" {
			t.Errorf("%s is not in the bundle", path)
		}
	}
	for path, data := range files {
		for _, taken := range []string{secret, "pull-me", "managedFields", "192.0.2.7", "last-applied"} {
			if strings.Contains(data, taken) {
				t.Errorf("%s holds %q", path, taken)
			}
		}
	}
	if !strings.Contains(files["report.html"], "Baseline: 1M, 654 µs") ||
		!strings.Contains(files["runs/pool-1.yaml"], "654321") || files["runs/other-1.yaml"] != "" {
		t.Errorf("the last run's results are not in the report, or not only this group's runs are in the bundle")
	}
	if !strings.Contains(files["pods/run.yaml"], "value: INFO") || !strings.Contains(files["pods/run.yaml"], redacted) {
		t.Error("the library's own variables must stay, and others say that they were taken out")
	}
	if text := files["pods/monitors-ops.yaml"]; !strings.Contains(text, "monitor-node-0") ||
		strings.Contains(text, "elsewhere") {
		t.Errorf("monitors are\n%s", text)
	}
	if !strings.Contains(files["members.csv"], "MI300X") || !strings.Contains(files["members.csv"], "NICDown") {
		t.Errorf("members are\n%s", files["members.csv"])
	}
	if strings.Contains(files["events.txt"], "Foreign") ||
		!strings.Contains(files["events.txt"], "RunFinished CommGroup/pool x1: over") {
		t.Errorf("events are\n%s", files["events.txt"])
	}
	if strings.Contains(files["cluster.yaml"], "big") || !strings.Contains(files["cluster.yaml"], "v1alpha1") {
		t.Errorf("versions are\n%s", files["cluster.yaml"])
	}
	for _, a := range kube.Actions() {
		if a.GetResource().Resource == "secrets" {
			t.Errorf("Secrets were touched: %v", a)
		}
	}
	again, err := Collect(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Files {
		if b.Files[i].Path != again.Files[i].Path || !bytes.Equal(b.Files[i].Data, again.Files[i].Data) {
			t.Errorf("a second bundle differs in %s", b.Files[i].Path)
		}
	}
}

// TestPartial: what the API server refuses is listed with the reason, and everything else is there.
func TestPartial(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, resource, missing, there string
	}{
		"no events":      {"list", "events", "events.txt", "pods/run.yaml"},
		"no pods":        {"list", "pods", "pods/run.yaml", "nodes/node-0.yaml"},
		"no nodes":       {"get", "nodes", "nodes/node-0.yaml", "events.txt"},
		"no deployments": {"list", "deployments", "manager/deployments-commgroup-system.yaml", "events.txt"},
		"no settings":    {"get", "configmaps", "settings.yaml", "events.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube := cluster(t, 2)
			kube.PrependReactor(tc.verb, tc.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil,
					apierrors.NewForbidden(schema.GroupResource{Resource: tc.resource}, "", errors.New("not you"))
			})
			b, err := Collect(t.Context(), c, options())
			if err != nil {
				t.Fatal(err)
			}
			files := byPath(b)
			listed := false
			for _, m := range b.Missing {
				listed = listed || m.Path == tc.missing && strings.Contains(m.Why, "not you")
			}
			if !listed || files[tc.missing] != "" || files[tc.there] == "" {
				t.Errorf("missing %+v; %s there: %v", b.Missing, tc.there, files[tc.there] != "")
			}
			if !strings.Contains(files["summary.md"], tc.missing) {
				t.Error("the summary does not list what is missing")
			}
		})
	}
}

// TestSummaryTellsTheCase: verdict, culprits and next step are on the first page, and it lists no part that is not
// there.
func TestSummaryTellsTheCase(t *testing.T) {
	group := &state.Group{}
	group.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonSlowNode, Message: "1 of 3 is slow", LastTransitionTime: metav1.NewTime(now)}}
	group.Status.Run = &v1alpha1.GroupRunStatus{ID: "1-2", Phase: v1alpha1.RunPhaseFinished,
		Verdict: v1alpha1.VerdictFail, StartTime: metav1.NewTime(now)}
	for i := range 7 {
		name := fmt.Sprintf("node-%d", i)
		group.Status.Culprits = append(group.Status.Culprits,
			v1alpha1.Culprit{Kind: "Node", Name: name, Node: name, Reason: v1alpha1.ReasonSlowNode, Message: "slow"})
	}
	g := &gatherer{group: group}
	b := &Bundle{Files: []File{{"nodes/a.yaml", nil}}}
	text := summary(b, options(), g.caseWords())
	for _, want := range []string{"Ready: False (SlowNode)", "1 of 3 is slow", "Run 1-2: Finished Fail", "node-0",
		"and 2 more culprits", "Next step: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "settings.yaml") || !strings.Contains(text, "`nodes/`") {
		t.Errorf("the summary lists what is not there:\n%s", text)
	}
}

// TestLogsThatAreGoneAreTold: a failed member without a run pod has no log in the bundle, and the summary says so.
func TestLogsThatAreGoneAreTold(t *testing.T) {
	failed := func(node string) report.Member {
		m := report.NoMember(node)
		m.Spec.Run = &v1alpha1.RunAssignment{ID: "1-1",
			Closed: &v1alpha1.RunClosure{Verdict: v1alpha1.VerdictError, Reason: "X"}}
		return m
	}
	left := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml",
		Labels: map[string]string{v1alpha1.LabelNode: "a"}}}
	for want, nodes := range map[string][]report.Member{"": {failed("a")},
		"Of 1 of 2 members": {failed("a"), failed("b")}} {
		g := &gatherer{o: options(), b: &Bundle{}, nodes: nodes, pods: []corev1.Pod{left}}
		g.podLogsLeft()
		if got := strings.Join(g.b.Notes, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%d failed: %q", len(nodes), got)
		}
	}
}

// TestWithoutCommNodes: who may not read CommNodes gets the rest, and reads in the bundle which role is lacking.
func TestWithoutCommNodes(t *testing.T) {
	c, _ := cluster(t, 2)
	c.Groups = interceptor.NewClient(c.Groups.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, node := o.(*v1alpha1.CommNode); node {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "commnodes"}, key.Name, nil)
			}
			return inner.Get(ctx, key, o, opts...)
		}})
	b, err := Collect(t.Context(), c, options())
	if err != nil {
		t.Fatal(err)
	}
	files := byPath(b)
	if len(b.Missing) != 1 || b.Missing[0].Path != "commnodes/" || files["commtasks/node-1.yaml"] == "" ||
		files["members.csv"] == "" {
		t.Errorf("missing %+v", b.Missing)
	}
	for _, path := range []string{"summary.md", "report.html"} {
		if !strings.Contains(files[path], report.NodesRole) {
			t.Errorf("%s does not name the role", path)
		}
	}
}

func TestNoGroup(t *testing.T) {
	c, _ := cluster(t, 1)
	o := options()
	o.Name = "nobody"
	if _, err := Collect(t.Context(), c, o); !errors.Is(err, ErrNoGroup) ||
		!strings.Contains(err.Error(), "ml/nobody") {
		t.Errorf("got %v", err)
	}
}

// TestDeadline: a server that never answers ends nothing but its own part.
func TestDeadline(t *testing.T) {
	g := &gatherer{o: Options{ItemDeadline: time.Millisecond, Deadline: time.Minute}, b: &Bundle{}}
	g.run(t.Context(), []item{
		{"slow", "x", func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }},
		{"fast", "x", func(context.Context) ([]byte, error) { return []byte("y"), nil }},
		{"nothing", "x", func(context.Context) ([]byte, error) { return nil, nil }},
	})
	if len(g.b.Files) != 1 || g.b.Files[0].Path != "fast" || len(g.b.Missing) != 1 ||
		!strings.Contains(g.b.Missing[0].Why, "no answer within 1ms") {
		t.Errorf("files %v, missing %v", g.b.Files, g.b.Missing)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.run(ctx, []item{{"late", "x", func(ctx context.Context) ([]byte, error) { return nil, ctx.Err() }}})
	if len(g.b.Missing) != 2 || !strings.Contains(g.b.Missing[1].Why, "deadline of 1m0s was over") {
		t.Errorf("missing %v", g.b.Missing)
	}
}

// TestManyNodes: the bounds hold, the culprit's node is in, and the summary says what is not.
func TestManyNodes(t *testing.T) {
	c, _ := cluster(t, 30)
	o := options()
	o.MaxNodes, o.MaxPods = 4, 2
	b, err := Collect(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	files := byPath(b)
	count := map[string]int{}
	for path := range files {
		count[path[:strings.LastIndex("/"+path, "/")]]++
	}
	if count["commtasks/"] != 4 || count["commnodes/"] != 4 || count["nodes/"] != 4 ||
		files["commtasks/node-1.yaml"] == "" || strings.Count(files["members.csv"], "\n") != 31 {
		t.Errorf("%v", count)
	}
	for _, want := range []string{"26 of 30 CommTasks are left out", "Logs of 2 of 4 pods"} {
		if !strings.Contains(files["summary.md"], want) {
			t.Errorf("the summary lacks %q:\n%s", want, files["summary.md"])
		}
	}
}

func TestWrite(t *testing.T) {
	var packed bytes.Buffer
	b := &Bundle{Files: []File{{"summary.md", []byte("a")}, {"nodes/n.yaml", []byte("b: c")}}}
	if err := b.Write(&packed, "folder", now); err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(unzip)
	for _, f := range b.Files {
		head, err := in.Next()
		if err != nil || head.Name != "folder/"+f.Path {
			t.Fatalf("%v %v", head, err)
		}
		if data, _ := io.ReadAll(in); !bytes.Equal(data, f.Data) {
			t.Errorf("%s holds %q", head.Name, data)
		}
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("more than the files: %v", err)
	}
}

func TestScrub(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0abcdef.c2lnbmF0dXJl"
	for in, want := range map[string]string{
		"Authorization: Bearer abcdefgh12345": "Authorization: Bearer REDACTED",
		"x " + jwt + " y":                     "x REDACTED y",
		"HF_TOKEN=abcdef123":                  "HF_TOKEN=REDACTED",
		`"password": "` + secret + `"`:        `"password": "REDACTED"`,
		"https://me:pw@host/x":                "https://REDACTED@host/x",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----z": "REDACTED PRIVATE KEYz",
		"-----BEGIN PRIVATE KEY-----\ncut":                                     "REDACTED PRIVATE KEY",
		"AKIAABCDEFGHIJKLMNOP":                                                 "REDACTED",
		`{"msg":"got {\"password\":\"hunter2 two\"}","n":1}`:                   `{"msg":"got {\"password\":\"REDACTED\"}","n":1}`,
		"run --token hunter2 --verbose":                                        "run --token REDACTED --verbose",
		"args:\n- --db-password\n- hunter2\n- --port": "args:\n- --db-password\n" +
			"- REDACTED\n- --port",
		`["--password","hunter2","--port"]`:               `["--password","REDACTED","--port"]`,
		`{"auths":{"r.example":{"auth":"aHVudGVyMg=="}}}`: `{"auths":{"r.example":{"auth":"REDACTED"}}}`,
		"secretKey=hunter2 size=3":                        "secretKey=REDACTED size=3",
		"pwd=x1":                                          "pwd=REDACTED",
		"clientSecret: 'it''s hunter2'\nnext: 1":          "clientSecret: 'REDACTED'\nnext: 1",
		"password: two words\nnext: 1":                    "password: REDACTED\nnext: 1",
		"password: p,w;d\n":                               "password: REDACTED\n",
		// What a supporter needs stays.
		`{"automountServiceAccountToken":false,"nodeName":"a"}`: `{"automountServiceAccountToken":false,"nodeName":"a"}`,
		"token: null\nsecret:\n  secretName: certificates":      "token: null\nsecret:\n  secretName: certificates",
		"--token-file /run/t --metrics-addr :8080":              "--token-file /run/t --metrics-addr :8080",
		"automountServiceAccountToken: false":                   "automountServiceAccountToken: false",
		"- serviceAccountToken:\n    expirationSeconds: 3607":   "- serviceAccountToken:\n    expirationSeconds: 3607",
		"secretName: certificates":                              "secretName: certificates",
		"Link 0000:5b:00.0<->0000:a5:00.0: SlowLink":            "Link 0000:5b:00.0<->0000:a5:00.0: SlowLink",
		"NCCL INFO Using network IB":                            "NCCL INFO Using network IB",
	} {
		if got := scrub(in); got != want {
			t.Errorf("scrub(%q) = %q, expected %q", in, got, want)
		}
	}
}

func FuzzScrub(f *testing.F) {
	f.Add("a", "b")
	f.Add("token=", "\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		// Whatever stands around it, a token of a service account does not get through.
		const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0abcdef.c2lnbmF0dXJl"
		if got := scrub(before + " " + jwt + " " + after); strings.Contains(got, jwt) {
			t.Errorf("%q", got)
		}
	})
}

// FuzzScrubNamed: in whatever form a value of a secret's name is written, it is taken out.
func FuzzScrubNamed(f *testing.F) {
	f.Add(0, "hunter2")
	f.Add(3, "two words, and: more")
	f.Add(5, `a\b'c"d`)
	names := []string{"password", "DB_PASSWORD", "clientSecret", "api-key", "secretKey", "pwd", "token", "auth",
		"accessKey", "credentials"}
	f.Fuzz(func(t *testing.T, which int, value string) {
		if len(value) > 40 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Skip("no value in one line")
		}
		name, value := names[max(which, -which-1)%len(names)], "h2x"+value+"x2h"
		inner, err := json.Marshal(map[string]string{name: value})
		if err != nil {
			t.Fatal(err)
		}
		outer, err := json.Marshal(map[string]string{"msg": string(inner)})
		if err != nil {
			t.Fatal(err)
		}
		forms := []string{string(inner), string(outer)}
		if !strings.ContainsAny(value, "\"'\\<") {
			forms = append(forms, name+": "+value+"\nnext: 1")
			if !strings.ContainsAny(value, " &") {
				forms = append(forms, name+"="+value+" next=1", "--"+name+" "+value+" next", "- --"+name+"\n- "+value)
			}
		}
		for _, form := range forms {
			if got := scrub(form); strings.Contains(got, "h2x") || strings.Contains(got, "x2h") {
				t.Errorf("%s becomes %s", form, got)
			}
		}
	})
}

func TestBoundedLog(t *testing.T) {
	if got := boundedLog([]byte("one\ntwo\nthree\n"), 100); got != "one\ntwo\nthree\n" {
		t.Errorf("%q", got)
	}
	if got := boundedLog([]byte("one\ntwo\nthree\n"), 9); got != "... 8 bytes before this were left out\nthree\n" {
		t.Errorf("%q", got)
	}
	if got := boundedLog([]byte("a\xffb"), 100); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

func TestFileName(t *testing.T) {
	for in, want := range map[string]string{"node-1.example": "node-1.example", "../../etc": ".._.._etc", "..": "_..",
		"a/b\\c": "a_b_c", "": "_"} {
		if got := fileName(in); got != want {
			t.Errorf("fileName(%q) = %q, expected %q", in, got, want)
		}
	}
}
