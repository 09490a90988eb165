package chart

import (
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// TestPrometheusKinds: the objects for the Prometheus operator have no field that its own types do not know, and scrape
// with TLS and a token. No Prometheus operator runs here: what it makes of them is not proven.
func TestPrometheusKinds(t *testing.T) {
	rendered, err := render(t, valueSets(t)["everything"])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range documents(t, rendered) {
		seen[d.object.GetKind()] = true
		switch d.object.GetKind() {
		case "ServiceMonitor":
			var m monitoringv1.ServiceMonitor
			if err := yaml.UnmarshalStrict([]byte(d.text), &m); err != nil {
				t.Fatal(err)
			}
			e := m.Spec.Endpoints[0]
			if e.Scheme == nil || *e.Scheme != "https" || e.Port != "metrics" ||
				e.Authorization == nil || e.Authorization.Credentials.Name != "scrape-token" ||
				e.Interval != "15s" || len(e.RelabelConfigs) != 1 || len(e.MetricRelabelConfigs) != 1 {
				t.Errorf("ServiceMonitor: %+v", e)
			}
		case "PodMonitor":
			var m monitoringv1.PodMonitor
			if err := yaml.UnmarshalStrict([]byte(d.text), &m); err != nil {
				t.Fatal(err)
			}
			e := m.Spec.PodMetricsEndpoints[0]
			if e.Scheme == nil || *e.Scheme != "https" || e.Port == nil || *e.Port != "metrics" ||
				e.Authorization == nil || e.Authorization.Credentials.Name != "scrape-token" {
				t.Errorf("PodMonitor: %+v", e)
			}
		case "PrometheusRule":
			var r monitoringv1.PrometheusRule
			if err := yaml.UnmarshalStrict([]byte(d.text), &r); err != nil {
				t.Fatal(err)
			}
			alerts := 0
			for _, g := range r.Spec.Groups {
				for i := range g.Rules {
					if g.Rules[i].Alert == "" {
						continue
					}
					alerts++
					if url := g.Rules[i].Annotations["runbook_url"]; !strings.HasPrefix(url,
						"https://pages.example/runbooks/alerts/") {
						t.Errorf("alert %s links to %q", g.Rules[i].Alert, url)
					}
				}
			}
			if alerts == 0 {
				t.Error("the PrometheusRule has no alert")
			}
		}
	}
	for _, kind := range notServed {
		if !seen[kind] {
			t.Errorf("no %s was rendered", kind)
		}
	}

	// Without a Secret of its own a ServiceMonitor shows Prometheus' own token.
	rendered, err = render(t, "metrics: {serviceMonitor: {enabled: true}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t, rendered) {
		if d.object.GetKind() != "ServiceMonitor" {
			continue
		}
		var m monitoringv1.ServiceMonitor
		if err := yaml.UnmarshalStrict([]byte(d.text), &m); err != nil {
			t.Fatal(err)
		}
		if file := m.Spec.Endpoints[0].BearerTokenFile; !strings.HasSuffix(file, "/serviceaccount/token") { //nolint:staticcheck // the one way to show Prometheus' own token
			t.Errorf("the token's file is %q", file)
		}
	}
}
