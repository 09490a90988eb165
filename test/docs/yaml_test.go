package docs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// foreign are groups whose kinds our API server does not know: their YAML is only parsed.
var foreign = map[string]bool{"jobset.x-k8s.io": true, "readiness.node.x-k8s.io": true, "monitoring.coreos.com": true,
	"kustomize.config.k8s.io": true, "k8s.cni.cncf.io": true, "kueue.x-k8s.io": true, "security.openshift.io": true}

// objects are the whole objects of a piece of YAML; one without a kind is part of one, and must parse.
func objects(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var content any
		if err := d.Decode(&content); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		fields, ok := content.(map[string]any)
		if !ok || fields["kind"] == nil || fields["apiVersion"] == nil || fields["metadata"] == nil {
			continue
		}
		out = append(out, &unstructured.Unstructured{Object: fields})
	}
}

// TestYAML: each piece parses, and a real API server takes each whole object, with no field that it does not know.
func TestYAML(t *testing.T) {
	type example struct {
		where  string
		object *unstructured.Unstructured
	}
	var examples []example
	for path, text := range pages(t) {
		for i, block := range read(text).yaml {
			where := fmt.Sprintf("%s, piece %d of YAML", path, i+1)
			if strings.Contains("\n"+block+"\n", "\n...\n") {
				continue // an excerpt of what a command printed
			}
			found, err := objects(block)
			if err != nil {
				t.Errorf("%s: %v", where, err)
			}
			for _, o := range found {
				if group := schema.FromAPIVersionAndKind(o.GetAPIVersion(), o.GetKind()).Group; !foreign[group] {
					examples = append(examples, example{where, o})
				}
			}
		}
	}
	if len(examples) < 5 {
		t.Fatalf("found only %d whole objects", len(examples))
	}
	c := testenv.Client(t)
	made := map[string]bool{"": true, "default": true}
	for _, e := range examples {
		o := e.object
		ns := o.GetNamespace()
		if ns == "" {
			ns = "default" // as kubectl has it; kinds without a namespace ignore it
		}
		if !made[ns] {
			made[ns] = true
			if err := c.Create(t.Context(),
				&unstructured.Unstructured{Object: map[string]any{"apiVersion": corev1.SchemeGroupVersion.String(),
					"kind": "Namespace", "metadata": map[string]any{"name": ns}}}); err != nil {
				t.Fatalf("namespace %s: %v", ns, err)
			}
		}
		if namespaced, err := c.IsObjectNamespaced(o); err != nil {
			t.Errorf("%s: %v", e.where, err)
			continue
		} else if namespaced {
			o.SetNamespace(ns)
		}
		if err := c.Create(t.Context(), o, client.DryRunAll, &client.CreateOptions{
			Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}); err != nil {
			t.Errorf("%s: %s %s: %v", e.where, o.GetKind(), o.GetName(), err)
		}
	}
}
