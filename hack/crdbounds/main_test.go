package main

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// crds are the CustomResourceDefinitions as they are generated.
func crds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	paths, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, crd)
	}
	return out
}

// TestEveryInputIsBounded: whoever may write an object may fill it, and etcd and the manager's memory are everybody's.
func TestEveryInputIsBounded(t *testing.T) {
	for _, crd := range crds(t) {
		for _, version := range crd.Spec.Versions {
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			if spec.Type != "object" || len(spec.Properties) == 0 {
				t.Fatalf("%s has no spec", crd.Name)
			}
			for _, field := range unbounded(&spec, "spec") {
				t.Errorf("%s: %s has no bound: set it by a marker, or by hack/crdbounds where the type is not ours",
					crd.Name, field)
			}
		}
	}
}

// unbounded are the lists, maps and texts that may be of any length.
func unbounded(s *apiextensionsv1.JSONSchemaProps, path string) []string {
	var out []string
	switch {
	case s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields:
		out = append(out, path+" (any content)")
	case s.Type == "array" && s.MaxItems == nil:
		out = append(out, path+" (list)")
	case s.AdditionalProperties != nil && s.MaxProperties == nil:
		out = append(out, path+" (map)")
	case (s.Type == "string" || s.XIntOrString) && s.MaxLength == nil && len(s.Enum) == 0 && s.Format == "":
		out = append(out, path+" (text)")
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, unbounded(s.Items.Schema, path+"[]")...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out = append(out, unbounded(s.AdditionalProperties.Schema, path+"{}")...)
	}
	for name := range s.Properties {
		field := s.Properties[name]
		out = append(out, unbounded(&field, path+"."+name)...)
	}
	return out
}

func TestUnboundedFindsEachKind(t *testing.T) {
	var s apiextensionsv1.JSONSchemaProps
	if err := yaml.Unmarshal([]byte(
		`{type: object, properties: {a: {type: array, items: {type: string}}, b: {type: object, additionalProperties: {type: string, maxLength: 1}}, c: {x-kubernetes-int-or-string: true},
		d: {x-kubernetes-preserve-unknown-fields: true}, e: {type: string, enum: [x]}, f: {type: integer}, g: {type: string, format: date-time}}}`),
		&s); err != nil {
		t.Fatal(err)
	}
	if got := unbounded(&s, "spec"); len(got) != 5 {
		t.Errorf("got %v", got)
	}
}
