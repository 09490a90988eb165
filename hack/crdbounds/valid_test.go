package main

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// TestAPIServerTakesTheCRDs: its own validation compiles all rules and estimates their cost.
func TestAPIServerTakesTheCRDs(t *testing.T) {
	for _, crd := range crds(t) {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		var internal apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
			&internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{internal.Spec.Versions[0].Name}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
			t.Errorf("%s: %v", crd.Name, err)
		}
	}
}
