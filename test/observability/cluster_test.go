package observability

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"rcclx.io/commgroup-operator/internal/testenv"
	"rcclx.io/commgroup-operator/test/observability/promproof"
)

const operatorNamespace = "commgroup-system"

var (
	dashboardsFolder = filepath.Join(testenv.Root(), "dashboards", "grafana")
	rulesFile        = filepath.Join(testenv.Root(), "dashboards", "prometheus", "rules.yaml")
)

// TestCluster evaluates every dashboard and rule with a real Prometheus that scrapes the real operator of a running
// cluster: the demo's, by `make test-demo`, whose kubeconfig COMMGROUP_CLUSTER names. COMMGROUP_ALERTS are the alerts,
// with commas between them, that must be raised there since a member is broken; without it, none may be.
func TestCluster(t *testing.T) {
	kubeconfig := os.Getenv("COMMGROUP_CLUSTER")
	if kubeconfig == "" {
		t.Skip("SKIPPED: COMMGROUP_CLUSTER names no kubeconfig; make test-demo runs this against the demo")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	targets := promproof.Targets(t, kube, operatorNamespace)
	server := promproof.Start(t, rulesFile, targets...)
	server.Up(promproof.Count(targets))
	if broken := os.Getenv("COMMGROUP_ALERTS"); broken != "" {
		alerts := strings.Split(broken, ",")
		server.Dashboards(dashboardsFolder, nil, alerts...)
		server.Raised(time.Minute, alerts...)
		return
	}
	server.Dashboards(dashboardsFolder, nil)
	server.Quiet(time.Minute)
}
