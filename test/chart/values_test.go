package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// What a value of Kubernetes' own form holds has no description here.
	value := s.Properties == nil
	for _, child := range s.Properties {
		value = value || child.Properties == nil && child.Description == ""
	}
	if value {
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

// TestEveryValueMatters: each value, changed in an install where all is on, changes what is rendered. One that did not
// would be a promise that nothing keeps.
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
		"namespaces":      {{"openshift.enabled", false}},
		"metrics.enabled": {{"metrics.serviceMonitor.enabled", false}, {"metrics.podMonitor.enabled", false}},
		"validatingAdmissionPolicy.enabled": {{"gating.enabled", false},
			{"validatingAdmissionPolicy.acceptUnboundAgents", true}},
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
		if _, err := render(t, with(t, "{}", append(slices.Clone(path), "misspelt"), "x")); err == nil ||
			!strings.Contains(err.Error(), "misspelt") {
			t.Errorf("%s.misspelt: %v, expected it to be refused by name", strings.Join(path, "."), err)
		}
		for key, child := range s.Properties {
			walk(append(slices.Clone(path), key), &child)
		}
	}
	walk(nil, &root)
	for _, values := range []string{
		"manager: {replicas: two}", "manager: {image: {pullPolicy: Sometimes}}", "namespaces: ml",
		"metrics: {port: 70000}",
		"global: {imagePullSecrets: [mirror]}", "podDisruptionBudget: {unhealthyPodEvictionPolicy: Never}",
		// What the API server or the manager would refuse once all else is installed.
		"privilegedNamespaces: [a b]", `privilegedNamespaces: ["a'b"]`, "namespaces: [Upper]",
		"networkPolicy: {runNamespaces: [a/b]}", "sample: {namespace: a b}",
		"dashboards: {namespace: a b}", "dashboards: {label: 'x: y'}", "dashboards: {label: a/b/c}",
		"monitor: {tolerations: [{key: 1}]}", "monitor: {tolerations: [{operator: Foo}]}",
		"manager: {tolerations: [{effect: Foo}]}", "monitor: {resources: {limits: {memory: bogus}}}",
		"monitor: {intervalSeconds: 4}", "monitor: {reportValidSeconds: 29}", "agent: {resources: {}}",
		"manager: {resources: {limit: {memory: 1Gi}}}",
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
		{"{namespaces: [ml], privilegedNamespaces: [other]}",
			"privilegedNamespaces names other, which is not among namespaces (ml)"},
		{"{namespaces: [ml], sample: {enabled: true, namespace: other}}",
			"sample.namespace names other, which is not among namespaces (ml)"},
		{"{namespaces: [ml], networkPolicy: {runNamespaces: [other]}}",
			"networkPolicy.runNamespaces names other, which is not among namespaces (ml)"},
		{"{namespaces: [ml], openshift: {enabled: true, runNamespaces: [other]}}",
			"openshift.runNamespaces names other, which is not among namespaces (ml)"},
		{"privilegedNamespaces: [" + namespace + "]",
			"privilegedNamespaces names " + namespace + ", where the operator itself runs"},
		{"networkPolicy: {runNamespaces: [" + namespace + "]}",
			"networkPolicy.runNamespaces names " + namespace + ", where the operator itself runs"},
		{"openshift: {enabled: true, runNamespaces: [" + namespace + "]}",
			"openshift.runNamespaces names " + namespace + ", where the operator itself runs"},
		{"{defaultRuntimeImage: r, sample: {enabled: true, namespace: " + namespace + "}}",
			"sample.namespace names " + namespace + ", where the operator itself runs"},
		{"sample: {enabled: true}", "set defaultRuntimeImage, or sample.spec.runtime.image"},
		{"openshift: {enabled: true}", "name the namespaces of your CommGroups in openshift.runNamespaces"},
		{"metrics: {port: 8081}", "metrics.port is 8081, on which health is served"},
		{"metrics: {monitorPort: 8081}", "metrics.monitorPort is 8081, on which health is served"},
		{"podDisruptionBudget: {maxUnavailable: abc}",
			`podDisruptionBudget.maxUnavailable is "abc": expected a number`},
		{"podDisruptionBudget: {maxUnavailable: -1}", `podDisruptionBudget.maxUnavailable is "-1": expected a number`},
		{"monitor: {maxUnavailable: abc}", `monitor.maxUnavailable is "abc": expected a number`},
		{"monitor: {maxUnavailable: 0%}", "no monitor would ever be replaced"},
		{"monitor: {intervalSeconds: 60, reportValidSeconds: 100}", "a report has to hold for two looks at least"},
		{"global: {imageRegistry: 'https://registry.example'}", "without https:// before it"},
		{"manager: {image: {registry: 'registry.example/Upper'}}", "which is no image reference"},
		{"agent: {image: {repository: 'commgroup-agent:v1'}}", "which is no image reference"},
		{"agent: {image: {tag: 'two words'}}", "which is no image reference"},
		{"defaultRuntimeImage: 'docker://registry.example/rocm:7.0'", "defaultRuntimeImage give the image"},
		{"prometheusRules: {enabled: true}", "each alert links to its page below it"},
		{"prometheusRules: {enabled: true, runbookBaseURL: docs/runbooks}", "an address that begins with https://"},
		{"manager: {podLabels: {app.kubernetes.io/name: x}}",
			"manager.podLabels sets app.kubernetes.io/name, by which the chart knows its own objects"},
		{"manager: {podAnnotations: {kubectl.kubernetes.io/default-container: x}}",
			"manager.podAnnotations sets kubectl.kubernetes.io/default-container"},
		{"global: {commonLabels: {helm.sh/chart: x}}", "global.commonLabels sets helm.sh/chart"},
		{"metrics: {serviceMonitor: {enabled: true, labels: {app.kubernetes.io/part-of: x}}}",
			"metrics.serviceMonitor.labels sets app.kubernetes.io/part-of"},
		{"{global: {commonLabels: {release: a}}, metrics: {serviceMonitor: {enabled: true, labels: {release: b}}}}",
			"metrics.serviceMonitor.labels and global.commonLabels both set release"},
		{"gating: {enabled: true}", "name the namespaces whose CommGroups may mark nodes in privilegedNamespaces"},
		{"{gating: {enabled: true}, privilegedNamespaces: [ml], validatingAdmissionPolicy: {enabled: " +
			"false, acceptUnboundAgents: true}}", "gating.enabled needs validatingAdmissionPolicy.enabled"},
		{"validatingAdmissionPolicy: {enabled: false}", "set validatingAdmissionPolicy.acceptUnboundAgents=true"},
		{"runPriorityClass: {name: ''}", "name the class, or set create to false"},
		{"crds: {enabled: false, keep: false}", "would then delete the CRDs and every CommGroup"},
		{"metrics: {enabled: false, serviceMonitor: {enabled: true}}", "would find nothing to scrape"},
		{"metrics: {podMonitor: {enabled: true}}", "needs metrics.bearerTokenSecret.name"},
	} {
		_, err := render(t, c.values)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected it to be refused with %q", c.values, err, c.want)
		}
	}
	for _, kind := range []string{"metrics: {serviceMonitor: {enabled: true}}",
		"prometheusRules: {enabled: true, runbookBaseURL: 'https://pages.example'}"} {
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

// TestNullIsRefused: null takes a value away, which no template reckons with: an egress rule without ports would allow
// all.
func TestNullIsRefused(t *testing.T) {
	root := readSchema(t)
	walk := func(path []string, s *schema) {
		for key, child := range s.Properties {
			at := append(slices.Clone(path), key)
			if types, ok := child.Type.([]any); !ok || !slices.Contains(types, any("null")) {
				if _, err := render(t, with(t, "{}", at, nil)); err == nil ||
					!strings.Contains(err.Error(), "missing property '"+key+"'") {
					t.Errorf("%s=null: %v, expected it to be refused by name", strings.Join(at, "."), err)
				}
			}
		}
	}
	walk(nil, &root)
	for _, group := range []string{"networkPolicy", "manager", "crds", "sample"} {
		child := root.Properties[group]
		walk([]string{group}, &child)
	}
}

// TestImagesThatWork: what a user may rightly write as an image is not refused.
func TestImagesThatWork(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"global: {imageRegistry: 'registry.example:5000/mirror/'}",
			"registry.example:5000/mirror/commgroup-manager:dev"},
		{"global: {imageRegistry: localhost}", "localhost/commgroup-manager:dev"},
		{"global: {imageRegistry: '[2001:db8::1]:5000'}", "[2001:db8::1]:5000/commgroup-manager:dev"},
		{"global: {imageRegistry: 'Registry.Example'}", "Registry.Example/commgroup-manager:dev"},
		{"manager: {image: {repository: a_b/c--d/e.f, tag: V1.2_3-rc.1}}", "a_b/c--d/e.f:V1.2_3-rc.1"},
		{"defaultRuntimeImage: rocm", "--default-runtime-image=rocm"},
		{"defaultRuntimeImage: 'registry.example/rocm:7.0@sha256:" + strings.Repeat("0", 64) + "'",
			"rocm:7.0@sha256:0000"},
	} {
		if out, err := render(t, c.values); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, expected an image %s", c.values, err, c.want)
		}
	}
}

// TestSample: it is made by an install and by an upgrade that switches it on, and not in the operator's own namespace.
func TestSample(t *testing.T) {
	for _, c := range []struct{ values, namespace string }{
		{"{defaultRuntimeImage: r, sample: {enabled: true}}", "default"},
		{"{sample: {enabled: true, spec: {runtime: {image: r}}}}", "default"},
		{"{sample: {enabled: true, spec: {runtime: {image: r}, members: {nodeNames: [a]}}}}", "default"},
		{"{defaultRuntimeImage: r, namespaces: [ml, research], sample: {enabled: true}}", "ml"},
		{"{defaultRuntimeImage: r, namespaces: [ml, research], sample: {enabled: true, namespace: research}}",
			"research"},
	} {
		for _, args := range [][]string{nil, {"--is-upgrade"}} {
			rendered, err := render(t, c.values, args...)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, d := range documents(t, rendered) {
				if d.object.GetKind() != "CommGroup" {
					continue
				}
				found++
				if members, _, _ := unstructured.NestedMap(d.object.Object, "spec", "members"); len(members) != 1 ||
					(members["nodeNames"] != nil) != strings.Contains(c.values, "nodeNames") {
					t.Errorf("%s: the members are %v: a selection of one's own takes the place of the default",
						c.values, members)
				}
				if d.object.GetNamespace() != c.namespace ||
					d.object.GetAnnotations()["helm.sh/hook"] != "post-install,post-upgrade" {
					t.Errorf("%s: the sample is in %s with annotations %v, expected %s",
						c.values, d.object.GetNamespace(), d.object.GetAnnotations(), c.namespace)
				}
			}
			if found != 1 {
				t.Errorf("%s %v: %d samples, expected 1", c.values, args, found)
			}
		}
	}
}

// TestSpreadConstraints: a constraint without a selector gets the managers' own, and one with a selector stays as it
// is.
func TestSpreadConstraints(t *testing.T) {
	rendered, err := render(t,
		"manager: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, "+
			"{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]}")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t, rendered) {
		if d.object.GetKind() != "Deployment" {
			continue
		}
		var got []string
		constraints, _, _ := unstructured.NestedSlice(d.object.Object, "spec", "template", "spec",
			"topologySpreadConstraints")
		for _, c := range constraints {
			selector, _, _ := unstructured.NestedMap(c.(map[string]any), "labelSelector", "matchLabels") //nolint:forcetypeassert // the test ends then
			got = append(got, fmt.Sprint(selector))
		}
		if want := []string{"map[app.kubernetes.io/name:commgroup-manager]", "map[a:b]"}; !slices.Equal(got, want) {
			t.Errorf("selectors are %v, expected %v", got, want)
		}
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
		if labels["team"] != "fabric" || labels["app.kubernetes.io/part-of"] != "commgroup-operator" ||
			labels["app.kubernetes.io/name"] == "" {
			t.Errorf("%s: labels are %v", d.name(), labels)
		}
	}
}
