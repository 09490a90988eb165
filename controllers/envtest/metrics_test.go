package envtest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"rcclx.io/commgroup-operator/controllers"
	"rcclx.io/commgroup-operator/controllers/metrics"
)

// token makes an account in the test's namespace and gives a token of it.
func (w *world) token(account string) string {
	w.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: account}}
	w.must(admin.Create(w.ctx, sa))
	request := &authenticationv1.TokenRequest{}
	w.must(admin.SubResource("token").Create(w.ctx, sa, request))
	return request.Status.Token
}

// freeAddress is one on which nothing listens now.
func (w *world) freeAddress() string {
	w.Helper()
	l, err := (&net.ListenConfig{}).Listen(w.ctx, "tcp", "127.0.0.1:0")
	w.must(err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// startManager runs a manager with its metrics as cmd/manager has them, and the manager's own permissions. All managers
// of a process share one registry of metrics, so that the collector is taken out of it when the manager ends.
func (w *world) startManager(address string, reconcile bool) (collector *metrics.Collector, stop func()) {
	w.Helper()
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: managerUser,
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: controllers.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: address, SecureServing: true,
			FilterProvider: filters.WithAuthenticationAndAuthorization}, LeaderElection: true,
		LeaderElectionID: "commgroup-manager.rcclx.io", LeaderElectionNamespace: operatorNamespace,
		LeaderElectionReleaseOnCancel: true, Controller: config.Controller{SkipNameValidation: ptr.To(true)}})
	w.must(err)
	if reconcile {
		r := controllers.New(controllers.Dependencies{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
			Clock: clock.RealClock{}, Recorder: mgr.GetEventRecorder("commgroup-manager"),
			Config: controllers.Config{AgentImage: "agent:test", DefaultRuntimeImage: "rocm:test"}})
		w.must(r.SetupWithManager(mgr, 2))
	}
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return &metrics.Collector{Reader: mgr.GetClient(), Elected: mgr.Elected(), PerNode: true, Version: "test"}, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// scrape asks a manager over HTTPS; status 0 means that nobody listens yet.
func scrape(ctx context.Context, address, token string) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test's own manager
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// TestMetrics: who may scrape the manager, what it then tells, and that nothing is left of a group that is gone.
func TestMetrics(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	scraper, stranger := w.token("scraper"), w.token("stranger")
	w.must(admin.Create(w.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-scraper"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: "scraper"}}}))
	address := w.freeAddress()
	collector, stop := w.startManager(address, true)
	defer stop()
	w.must(ctrlmetrics.Registry.Register(collector))
	defer ctrlmetrics.Registry.Unregister(collector)

	ours := fmt.Sprintf(`group_namespace="%s"`, w.ns)
	w.eventually("metrics of the members", func() bool {
		_, body := scrape(w.ctx, address, scraper)
		return strings.Contains(body,
			fmt.Sprintf(`commgroup_members{group=%q,%s,state="selected"} 2`, w.group.Name, ours))
	})
	for _, tc := range []struct {
		who, token string
		want       int
	}{{"nobody", "", http.StatusUnauthorized}, {"an account without the right", stranger, http.StatusForbidden},
		{"the scraper", scraper, http.StatusOK}} {
		if status, body := scrape(w.ctx, address, tc.token); status != tc.want ||
			strings.Contains(body, "commgroup_") != (tc.want == http.StatusOK) {
			t.Errorf("%s: HTTP %d, want %d", tc.who, status, tc.want)
		}
	}
	for _, node := range w.nodes {
		w.applyFacts(node, nil)
	}
	w.eventually("the members' last reports", func() bool {
		_, body := scrape(w.ctx, address, scraper)
		return strings.Contains(body, "commgroup_node_last_report_timestamp_seconds{") &&
			strings.Contains(body, "commgroup_oldest_report_timestamp_seconds{") && strings.Contains(body,
			fmt.Sprintf(`commgroup_members{group=%q,%s,state="reporting"} 2`, w.group.Name, ours))
	})
	_, body := scrape(w.ctx, address, scraper)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("the scrape does not parse: %v", err)
	}
	if families["commgroup_condition"] == nil || families["controller_runtime_reconcile_total"] == nil {
		t.Errorf("conditions or controller-runtime's own metrics are not in the %d families", len(families))
	}

	// A second manager waits for the lease: it serves, and says nothing of groups.
	secondAddress := w.freeAddress()
	second, stopSecond := w.startManager(secondAddress, false)
	w.eventually("the second manager",
		func() bool { status, _ := scrape(w.ctx, secondAddress, ""); return status == http.StatusUnauthorized })
	own := prometheus.NewRegistry()
	own.MustRegister(second)
	if got, err := own.Gather(); err != nil || len(got) > 0 {
		t.Errorf("one that does not lead has %d families of metrics: %v", len(got), err)
	}
	stopSecond()

	w.must(admin.Delete(w.ctx, w.group))
	w.eventually("the end of the group's series", func() bool {
		w.endPods()
		status, body := scrape(w.ctx, address, scraper)
		return status == http.StatusOK && !strings.Contains(body, ours)
	})
}
