package observability

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/agent/discover"
	agentmetrics "rcclx.io/commgroup-operator/agent/metrics"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	groupmetrics "rcclx.io/commgroup-operator/controllers/metrics"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/test/observability/promproof"
)

// stored reads objects that a demo left: SIMULATED, of testdata.
type stored struct {
	client.Reader
	group *state.Group
	tasks v1alpha1.CommTaskList
	nodes v1alpha1.CommNodeList
}

// List implements client.Reader for the kinds that the collector asks for.
func (s *stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.CommGroupList:
		group, _ := s.group.Objects()
		list.Items = []v1alpha1.CommGroup{*group}
	case *v1alpha1.CommRunList:
		_, run := s.group.Objects()
		list.Items = []v1alpha1.CommRun{*run}
	case *v1alpha1.CommTaskList:
		list.Items = s.tasks.Items
	case *v1alpha1.CommNodeList:
		list.Items = s.nodes.Items
	}
	return nil
}

// demo is the state that a demo left behind, with its reports a minute old.
func demo(t *testing.T) *stored {
	t.Helper()
	s := &stored{}
	var group v1alpha1.CommGroup
	var run v1alpha1.CommRun
	for file, into := range map[string]any{"commgroup.yaml": &group, "commrun.yaml": &run, "commtasks.yaml": &s.tasks,
		"commnodes.yaml": &s.nodes} {
		text, err := os.ReadFile(filepath.Join("testdata", "demo", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatal(err)
		}
	}
	s.group = state.Join(&group, state.RunsOf(&group, []v1alpha1.CommRun{run}))
	// That demo ended with a lost link, which it does not have here.
	apimeta.SetStatusCondition(&s.group.Status.Conditions,
		metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady})
	s.group.Status.Culprits = nil
	for i := range s.nodes.Items {
		if f := s.nodes.Items[i].Status.Facts; f != nil {
			f.ObservedTime = metav1.NewTime(time.Now().Add(-time.Minute))
		}
		for j := range s.nodes.Items[i].ManagedFields {
			now := metav1.NewTime(time.Now().Add(-time.Minute))
			s.nodes.Items[i].ManagedFields[j].Time = &now
		}
	}
	return s
}

// serve exposes a collector over HTTP until the test ends, and gives its address.
func serve(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// accepted is a reporter whose reports are all taken.
type accepted struct{}

func (accepted) Report(context.Context, *v1alpha1.NodeFacts) error { return nil }
func (accepted) Has(context.Context) (bool, error)                 { return true, nil }
func (accepted) Last(context.Context) (*v1alpha1.NodeFacts, error) { return nil, nil }

// agent is the metrics of a monitor that scanned a simulated node.
func agent(t *testing.T, node string, change func(*nodetree.Node)) *agentmetrics.Recorder {
	t.Helper()
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name = node
	change(&n)
	folder := t.TempDir()
	if err := nodetree.Write(folder, n); err != nil {
		t.Fatal(err)
	}
	root, err := discover.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	r := &agentmetrics.Recorder{
		Node: node, Version: "test",
		Scanner: discover.NewScanner(root, discover.Options{Simulated: true}), Reporter: accepted{},
		Clock: clock.RealClock{},
	}
	facts, err := r.Scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(t.Context(), facts.NodeFacts(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return r
}

// ofARunningManager are panels that show controller-runtime's own metrics, which only a manager at work has:
// TestCluster has them.
var ofARunningManager = map[string]string{
	"CommGroup - fleet/Reconciles a second":               "controller-runtime",
	"CommGroup - fleet/Groups that wait to be reconciled": "controller-runtime",
}

// watch starts a Prometheus over the group's collector and a monitor's on each of its nodes, of which the first one's
// is changed.
func watch(t *testing.T, s *stored, change func(*nodetree.Node)) *promproof.Server {
	t.Helper()
	promproof.Program(t)
	elected := make(chan struct{})
	close(elected)
	manager := promproof.Target{Job: "manager", Scheme: "http", Addresses: []string{serve(t,
		&groupmetrics.Collector{Reader: s, Elected: elected, PerNode: true, Version: "test"})}}
	monitors := promproof.Target{Job: "monitors", Scheme: "http"}
	for i := range s.nodes.Items {
		changed := func(*nodetree.Node) {}
		if i == 0 {
			changed = change
		}
		monitors.Addresses = append(monitors.Addresses, serve(t, agent(t, s.nodes.Items[i].Name, changed)))
	}
	server := promproof.Start(t, rulesFile, manager, monitors)
	server.Up(1 + len(monitors.Addresses))
	return server
}

// Each panel has data from what a demo left, but for those that name what is wrong, and each rule can be evaluated;
// nothing is wrong there, and no alert is raised.
func TestGoodGroup(t *testing.T) {
	server := watch(t, demo(t), func(*nodetree.Node) {})
	server.Dashboards(dashboardsFolder, ofARunningManager)
	server.Quiet(time.Minute)
}

// A group with one of everything that is wrong raises the alerts for it, and the dashboards name what it is.
func TestBrokenGroup(t *testing.T) {
	s := demo(t)
	status := &s.group.Status
	apimeta.SetStatusCondition(&status.Conditions,
		metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSlowLink})
	status.Run.Verdict = v1alpha1.VerdictFail
	status.Culprits = []v1alpha1.Culprit{{Node: s.nodes.Items[0].Name, Kind: "Link",
		Name: "0000:5b:00.0<->0000:a5:00.0", Reason: v1alpha1.ReasonSlowLink, Message: "m"}}
	status.Members.Reporting, status.Members.Stale = status.Members.Selected-1, 1
	status.Results[0].WrongElements = 3
	status.Settings[0].Requested, status.Settings[0].Effective = string(v1alpha1.FeatureRequired),
		v1alpha1.EffectiveNotInEffect
	status.Checks = []v1alpha1.PerformanceCheck{{Source: "spec", Measurement: "Baseline AllReduce BFloat16 67108864 B",
		State: v1alpha1.CheckNotMet, Mode: v1alpha1.JudgingEnforce,
		MeasuredMBps: ptrTo(int64(150000)), ExpectedMBps: ptrTo(int64(300000)), Percent: ptrTo(int32(50))}}
	status.Gating = &v1alpha1.GatingStatus{Breaker: "Open"}
	status.NextRunTime = &metav1.Time{Time: time.Now().Add(-2 * time.Hour)}
	server := watch(t, s, func(n *nodetree.Node) {
		n.Links = append(n.Links, nodetree.Link{A: 3, B: 6, Kind: nodetree.LinkPCIe})
	})
	alerts := []string{"CommGroupNotReady", "CommGroupFailed", "CommGroupCulpritFound",
		"CommGroupMembersNotReporting", "CommGroupResultsStale", "CommGroupWrongData",
		"CommGroupSettingNotEffective", "CommGroupPerformanceBelowExpected", "CommGroupGatingBreakerOpen",
		"CommGroupRunOverdue", "CommGroupXGMILinkDown", "CommGroupAgentProblem"}
	server.Dashboards(dashboardsFolder, ofARunningManager, alerts...)
	rules := server.Raised(time.Minute, alerts...)
	culprit := rules["CommGroupCulpritFound"].Alerts[0]
	if want := "Link 0000:5b:00.0<->0000:a5:00.0 on node " + s.nodes.Items[0].Name +
		": SlowLink"; culprit.Annotations["summary"] != want {
		t.Errorf("the alert says %q, want %q", culprit.Annotations["summary"], want)
	}
	if r := rules["CommGroupManagerDown"]; len(r.Alerts) > 0 {
		t.Errorf("the manager is scraped, and CommGroupManagerDown is raised: %+v", r.Alerts)
	}
}

func ptrTo[T int32 | int64](v T) *T { return &v }
