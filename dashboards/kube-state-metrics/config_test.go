package kubestatemetrics

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"verdict": "verdict", "observedGeneration": "observed_generation",
		"busBandwidthMBps": "bus_bandwidth_megabytes_per_second",
		"limitGPUMinutes":  "limit_gpu_minutes", "gpuCount": "gpu_count", "ROCmVersion": "ro_cm_version",
		"errorPPM": "error_parts_per_million",
		"bootID":   "boot_id", "GPUCount": "gpu_count",
	} {
		if got := snake(in); got != want {
			t.Errorf("snake(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMetricNameHasItsUnit(t *testing.T) {
	at := &apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
	for path, want := range map[string]string{
		"status.run.startTime":  "status_run_start_timestamp_seconds",
		"status.baseline.since": "status_baseline_since_timestamp_seconds",
		"status.published.time": "status_published_timestamp_seconds",
	} {
		if got := metricName(at, strings.Split(path, ".")); got != want {
			t.Errorf("the name of %s is %q, want %q", path, got, want)
		}
	}
}

func crd(kind, schema string) []byte {
	return []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: x.rcclx.io}
spec:
  group: rcclx.io
  names: {kind: ` + kind + `, plural: x}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: ` + schema + `}
`)
}

// What does not fit is an error, and no metric that never has a value.
func TestConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct{ crd, says []byte }{
		"no CRD":          {[]byte("kind: ["), []byte("could not be read")},
		"an unknown kind": {crd("CommCake", "{type: object}"), []byte("CommCake")},
		"a lost field": {crd("CommGroup",
			"{type: object, properties: {spec: {type: object}, status: {type: object}}}"), []byte("there is no field")},
	} {
		if _, err := Config(c.crd); err == nil || !strings.Contains(err.Error(), string(c.says)) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestConditionsAreKnownByTheirFields(t *testing.T) {
	item := apiextensionsv1.JSONSchemaProps{Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"type": {}, "status": {}}}
	list := apiextensionsv1.JSONSchemaProps{Type: "array",
		Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}}
	if isConditions(&list) {
		t.Error("a list without lastTransitionTime was taken for conditions")
	}
	item.Properties["lastTransitionTime"] = apiextensionsv1.JSONSchemaProps{}
	if !isConditions(&list) {
		t.Error("a list of conditions was not known")
	}
}
