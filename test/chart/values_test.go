package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is as much of a JSON schema as the chart's has.
type schema struct {
	Type                 any               `json:"type"`
	Description          string            `json:"description"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Examples             []any             `json:"examples"`
}

func readSchema(t *testing.T) schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartPath(), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// values calls do for each value of the schema.
func (s *schema) values(path []string, do func(path []string, s *schema)) {
	if s.Properties == nil {
		do(path, s)
		return
	}
	for key, child := range s.Properties {
		child.values(append(slices.Clone(path), key), do)
	}
}

// with is values as YAML with one value set.
func with(t *testing.T, values string, path []string, value any) string {
	t.Helper()
	all := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &all); err != nil {
		t.Fatal(err)
	}
	at := all
	for _, key := range path[:len(path)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
	out, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestEveryValueMatters: each value, changed in an install where all is on, changes what is rendered. One that did not would be a
// promise that nothing keeps.
func TestEveryValueMatters(t *testing.T) {
	base := valueSets(t)["everything"]
	before, err := render(t, base)
	if err != nil {
		t.Fatal(err)
	}
	// What another value has to be for the value to matter, or for the two to go together.
	besides := map[string][]struct {
		path  string
		value any
	}{
		"namespaces":                                    {{"openshift.enabled", false}},
		"metrics.enabled":                               {{"metrics.serviceMonitor.enabled", false}, {"metrics.podMonitor.enabled", false}},
		"validatingAdmissionPolicy.enabled":             {{"gating.enabled", false}, {"validatingAdmissionPolicy.acceptUnboundAgents", true}},
		"validatingAdmissionPolicy.acceptUnboundAgents": nil, // tested by TestRefusals: it allows, and renders nothing
	}
	root := readSchema(t)
	root.values(nil, func(path []string, s *schema) {
		name := strings.Join(path, ".")
		more, special := besides[name]
		if special && more == nil {
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.Description == "" {
				t.Error("it has no description")
			}
			was, values := before, base
			for _, m := range more {
				values = with(t, values, strings.Split(m.path, "."), m.value)
			}
			if len(more) > 0 {
				var err error
				if was, err = render(t, values); err != nil {
					t.Fatal(err)
				}
			}
			after, err := render(t, with(t, values, path, another(t, name, s, current(t, values, path))))
			if err != nil {
				t.Fatal(err)
			}
			if after == was {
				t.Error("it changes nothing that is rendered: no template uses it")
			}
		})
	})
}

// current is the value in the values, else the chart's default.
func current(t *testing.T, values string, path []string) any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartPath(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{values, string(data)} {
		var at any
		if err := yaml.Unmarshal([]byte(text), &at); err != nil {
			t.Fatal(err)
		}
		found := true
		for _, key := range path {
			m, ok := at.(map[string]any)
			if at, found = m[key]; !ok || !found {
				found = false
				break
			}
		}
		if found {
			return at
		}
	}
	t.Fatalf("%s is in the schema and not in values.yaml", strings.Join(path, "."))
	return nil
}

// another is a value that differs from the current one: the schema's example, or one that follows from the type.
func another(t *testing.T, name string, s *schema, now any) any {
	t.Helper()
	for _, example := range s.Examples {
		if fmt.Sprint(example) != fmt.Sprint(now) {
			return example
		}
	}
	switch v := now.(type) {
	case bool:
		return !v
	case float64:
		return v + 1
	case string:
		return "changed"
	case []any:
		return []any{}
	case map[string]any:
		return map[string]any{}
	}
	t.Fatalf("%s: no other value than %v is known: give its schema examples", name, now)
	return nil
}

// TestUnknownValues: a word misspelt at any level is refused, not passed over.
func TestUnknownValues(t *testing.T) {
	root := readSchema(t)
	var walk func(path []string, s *schema)
	walk = func(path []string, s *schema) {
		if s.Properties == nil {
			return
		}
		if s.AdditionalProperties != false {
			t.Errorf("%s takes values that it does not know", strings.Join(path, "."))
		}
		if _, err := render(t, with(t, "{}", append(slices.Clone(path), "misspelt"), "x")); err == nil || !strings.Contains(err.Error(), "misspelt") {
			t.Errorf("%s.misspelt: %v, expected it to be refused by name", strings.Join(path, "."), err)
		}
		for key, child := range s.Properties {
			walk(append(slices.Clone(path), key), &child)
		}
	}
	walk(nil, &root)
	for _, values := range []string{
		"manager: {replicas: two}", "manager: {image: {pullPolicy: Sometimes}}", "namespaces: ml", "metrics: {port: 70000}",
		"global: {imagePullSecrets: [mirror]}", "podDisruptionBudget: {unhealthyPodEvictionPolicy: Never}",
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s was taken", values)
		}
	}
}

// TestRefusals: values that cannot work are refused in words that say what to do.
func TestRefusals(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ values, want string }{
		{"manager: {replicas: 0}", "set it to 1 or more"},
		{"manager: {image: {digest: sha256:abc}}", "expected sha256: and 64 hex digits"},
		{"agent: {image: {tag: x, digest: '" + digest + "'}}", "agent.image has both a tag (x) and a digest"},
		{"namespaces: [" + namespace + "]", "keep CommGroups in namespaces of their own"},
		{"{namespaces: [ml], privilegedNamespaces: [other]}", "privilegedNamespaces names other, which is not among namespaces (ml)"},
		{"{namespaces: [ml], sample: {enabled: true, namespace: other}}", "sample.namespace is other, which is not among namespaces (ml)"},
		{"gating: {enabled: true}", "name the namespaces whose CommGroups may mark nodes in privilegedNamespaces"},
		{"{gating: {enabled: true}, privilegedNamespaces: [ml], validatingAdmissionPolicy: {enabled: false, acceptUnboundAgents: true}}", "gating.enabled needs validatingAdmissionPolicy.enabled"},
		{"validatingAdmissionPolicy: {enabled: false}", "set validatingAdmissionPolicy.acceptUnboundAgents=true"},
		{"runPriorityClass: {name: ''}", "name the class, or set create to false"},
		{"metrics: {enabled: false, serviceMonitor: {enabled: true}}", "would find nothing to scrape"},
		{"metrics: {podMonitor: {enabled: true}}", "needs metrics.bearerTokenSecret.name"},
	} {
		_, err := render(t, c.values)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected it to be refused with %q", c.values, err, c.want)
		}
	}
	for _, kind := range []string{"metrics: {serviceMonitor: {enabled: true}}", "prometheusRules: {enabled: true}"} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(kind), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := helm(t, "template", release, chartPath(), "--namespace", namespace, "--values", file)
		if err == nil || !strings.Contains(err.Error(), "install the Prometheus operator first") {
			t.Errorf("%s without the API %s: %v", kind, prometheusAPI, err)
		}
	}
	if _, err := render(t, "{}", "--kube-version", "1.29.0"); err == nil || !strings.Contains(err.Error(), "1.30") {
		t.Errorf("Kubernetes 1.29: %v, expected it to be refused with the version that is needed", err)
	}
}

// TestCommonLabels: global.commonLabels are on every object but the CRDs, and each object tells what it is a part of.
func TestCommonLabels(t *testing.T) {
	rendered, err := render(t, valueSets(t)["everything"])
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t, rendered) {
		if d.object.GetKind() == "CustomResourceDefinition" {
			continue
		}
		labels := d.object.GetLabels()
		if labels["team"] != "fabric" || labels["app.kubernetes.io/part-of"] != "commgroup-operator" || labels["app.kubernetes.io/name"] == "" {
			t.Errorf("%s: labels are %v", d.name(), labels)
		}
	}
}
