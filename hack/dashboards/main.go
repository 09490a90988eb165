// Command dashboards writes all that follows from the metrics' contract and the API for monitoring systems: Prometheus
// rules with their tests and runbook pages, Grafana dashboards, and the configuration of kube-state-metrics. It prints
// the files' names.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rcclx.io/commgroup-operator/dashboards/grafana"
	kubestatemetrics "rcclx.io/commgroup-operator/dashboards/kube-state-metrics"
	"rcclx.io/commgroup-operator/dashboards/prometheus"
)

func main() {
	out := flag.String("out", ".", "folder to write below, laid out as the repository")
	flag.Parse()
	if err := run(".", *out); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, content := filepath.Join(out, name), files[name]
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}

// chart is where the chart's templates find what they include.
const chart = "charts/commgroup-operator/files"

// generate gives each file's content by its path in the repository, whose CRDs it reads.
func generate(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	rules, err := prometheus.Rules()
	if err != nil {
		return nil, err
	}
	files["dashboards/prometheus/rules.yaml"], files[chart+"/rules.yaml"] = rules, rules
	if files["dashboards/prometheus/rules_test.yaml"], err = prometheus.RuleTests(); err != nil {
		return nil, err
	}
	for _, a := range prometheus.Alerts() {
		files["docs/runbooks/alerts/"+a.Name+".md"] = a.Markdown()
	}
	files["docs/runbooks/alerts/README.md"] = prometheus.Index()
	for _, d := range grafana.Dashboards() {
		text, err := d.JSON()
		if err != nil {
			return nil, err
		}
		files["dashboards/grafana/"+d.UID+".json"], files[chart+"/dashboards/"+d.UID+".json"] = text, text
	}
	crds := [][]byte{}
	for _, kind := range []string{"commgroups", "commnodes", "commtasks"} {
		text, err := os.ReadFile(filepath.Join(root, "config/crd/bases/rcclx.io_"+kind+".yaml"))
		if err != nil {
			return nil, err
		}
		crds = append(crds, text)
	}
	files["dashboards/kube-state-metrics/config.yaml"], err = kubestatemetrics.Config(crds...)
	return files, err
}
