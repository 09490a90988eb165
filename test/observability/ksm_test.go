package observability

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
	"rcclx.io/commgroup-operator/test/observability/process"
)

// ksmConfig is what the test needs of the configuration.
type ksmConfig struct {
	Spec struct {
		Resources []ksmResource
	}
}

type ksmResource struct {
	GroupVersionKind struct{ Group, Version, Kind string }
	MetricNamePrefix string
	LabelsFromPath   map[string][]string
	Metrics          []ksmMetric
}

type ksmMetric struct {
	Name string
	Each struct {
		Type        string
		Gauge, Info ksmValues
		StateSet    struct {
			ksmValues
			LabelName string
			List      []string
		}
	}
}

type ksmValues struct {
	Path           []string
	LabelsFromPath map[string][]string
	ValueFrom      []string
}

// TestKubeStateMetrics holds what the real kube-state-metrics makes of the generated configuration, with the rights
// that the documentation gives it, against the objects.
func TestKubeStateMetrics(t *testing.T) {
	program := ksmProgram(t)
	config := filepath.Join(testenv.Root(), "dashboards", "kube-state-metrics", "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	parsed := ksmConfig{}
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	env, c := apiServer(t)
	objects := []*unstructured.Unstructured{create(t, c, fullGroup()), create(t, c, fullTask()),
		create(t, c, fullNode())}
	kubeconfig := ksmUser(t, env, c)
	address := process.FreeAddress(t)
	host, port, _ := net.SplitHostPort(address)
	telemetryHost, telemetryPort, _ := net.SplitHostPort(process.FreeAddress(t))
	log := process.Start(t, program, "--kubeconfig="+kubeconfig,
		"--custom-resource-state-only", "--custom-resource-state-config-file="+config,
		"--host="+host, "--port="+port, "--telemetry-host="+telemetryHost, "--telemetry-port="+telemetryPort)

	var families map[string]*dto.MetricFamily
	shown := func(what string, groups int) {
		process.Eventually(t, what, time.Minute, func(ctx context.Context) error {
			body, err := process.Get(ctx, "http://"+address+"/metrics")
			if err != nil {
				return err
			}
			parser := expfmt.NewTextParser(model.LegacyValidation)
			if families, err = parser.TextToMetricFamilies(bytes.NewReader(body)); err != nil {
				return err
			}
			for name, want := range map[string]int{"kube_commgroup_info": groups, "kube_commtask_info": 1,
				"kube_commnode_info": 1} {
				if got := len(families[name].GetMetric()); got != want {
					return fmt.Errorf("%d series of %s among %d metrics, want %d; log: %s",
						got, name, len(families), want, log)
				}
			}
			return nil
		})
	}
	shown("kube-state-metrics to show all kinds of objects", 1)
	for i := range parsed.Spec.Resources {
		r := &parsed.Spec.Resources[i]
		object := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == r.GroupVersionKind.Kind
		})]
		for j := range r.Metrics {
			m := &r.Metrics[j]
			name := r.MetricNamePrefix + "_" + m.Name
			want := expected(t, r, m, object)
			if len(want) == 0 {
				t.Errorf("%s: the object has no value at %v: fill it in, so that the metric is tested", name, m.Each)
			}
			compare(t, name, families[name], want)
		}
	}
	young := fullGroup()
	young.Name, young.Status = "young", v1alpha1.CommGroupStatus{}
	create(t, c, young)
	shown("kube-state-metrics to show a group without a status", 2)
	if strings.Contains(log.String(), "got nil") {
		t.Errorf("kube-state-metrics tells what is optional and absent as an error:\n%s", log)
	}
	if strings.Contains(log.String(), "forbidden") {
		t.Errorf("kube-state-metrics was refused something with the documented rights:\n%s", log)
	}
}

// ksmProgram is the real kube-state-metrics, built where it is not there or another version than hack/ksm names.
func ksmProgram(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var problems bytes.Buffer
	build := exec.CommandContext(ctx, filepath.Join(testenv.Root(), "hack", "tool.sh"), "kube-state-metrics")
	build.Stderr = &problems
	program, err := build.Output()
	if err != nil {
		t.Fatalf("building kube-state-metrics from its module: %v\n%s", err, problems.String())
	}
	return strings.TrimSpace(string(program))
}

func apiServer(t *testing.T) (*envtest.Environment, client.Client) {
	t.Helper()
	env, config := testenv.Start(t)
	c := testenv.Admin(t, config)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml"}}); err != nil {
		t.Fatal(err)
	}
	return env, c
}

// create stores an object with its status, and reads it back as the API server has it.
func create(t *testing.T, c client.Client, object client.Object) *unstructured.Unstructured {
	t.Helper()
	withStatus := object.DeepCopyObject().(client.Object)
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	withStatus.SetResourceVersion(object.GetResourceVersion())
	withStatus.SetUID(object.GetUID())
	if err := c.Status().Update(t.Context(), withStatus); err != nil {
		t.Fatal(err)
	}
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(gvk)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ksmUser gives kube-state-metrics the rights that docs/dashboards.md says it needs, and no others.
func ksmUser(t *testing.T, env *envtest.Environment, c client.Client) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "dashboards.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(doc), "<!-- kube-state-metrics rights -->\n```yaml\n")
	text, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("docs/dashboards.md has no block of YAML after <!-- kube-state-metrics rights -->")
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(text), role); err != nil {
		t.Fatal(err)
	}
	const name = "kube-state-metrics"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return testenv.Kubeconfig(t, env, name)
}
