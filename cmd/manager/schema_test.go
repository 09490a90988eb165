package main

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestJudgeSchemas(t *testing.T) {
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	revision := func(value string) installedCRD {
		return installedCRD{annotations: map[string]string{v1alpha1.AnnotationSchemaRevision: value}}
	}
	for name, test := range map[string]struct {
		crd         installedCRD
		err, warned string // parts of the text, in order; empty for none
	}{
		"equal": {crd: revision("5")},
		"newer": {crd: revision("6"), warned: "schema revision 6, this manager is of revision 5"},
		"older": {crd: revision("4"), err: "schema revision 4, this manager needs 5 or later"},
		"from before": {crd: installedCRD{annotations: map[string]string{"other": "5"}},
			err: "has no annotation rcclx.io/schema-revision"},
		"no annotations": {err: "has no annotation"},
		"zero":           {crd: revision("0"), err: `="0", expected a count from 1 on`},
		"negative":       {crd: revision("-5"), err: "expected a count"},
		"no number":      {crd: revision("v5"), err: "expected a count"},
		"empty":          {crd: revision(""), err: "expected a count"},
		"beyond an int":  {crd: revision("99999999999999999999"), err: "expected a count"},
		"missing": {crd: installedCRD{err: apierrors.NewNotFound(resource, "x")},
			err: "is not installed; apply the CRDs of this release first"},
		"not allowed": {crd: installedCRD{err: apierrors.NewForbidden(resource, "x", errors.New("no role"))},
			err: "let the manager's account get it"},
		"API server gone": {crd: installedCRD{err: errors.New("connection refused")},
			err: "its schema is not known: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			test.crd.name = "things.rcclx.io"
			warnings, err := judgeSchemas([]installedCRD{test.crd}, 5)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if (said != "") != (test.err != "") || !strings.Contains(said, test.err) ||
				said != "" && !strings.Contains(said, "things.rcclx.io") {
				t.Errorf("error %v, expected one with the CRD's name and %q", err, test.err)
			}
			if got := strings.Join(warnings, "; "); (got != "") != (test.warned != "") ||
				!strings.Contains(got, test.warned) {
				t.Errorf("warned %q, expected %q", got, test.warned)
			}
		})
	}
	// One good CRD does not stand in for the other, and both faults are told at once.
	_, err := judgeSchemas([]installedCRD{{name: "a"}, revision("5"), {name: "b"}}, 5)
	if err == nil || !strings.Contains(err.Error(), "CRD a ") || !strings.Contains(err.Error(), "CRD b ") {
		t.Errorf("error %v, expected both CRDs without a revision", err)
	}
}

func FuzzSchemaRevision(f *testing.F) {
	f.Add("1")
	f.Add("-1")
	f.Add("0x10")
	f.Fuzz(func(t *testing.T, value string) {
		revision, err := schemaRevision(installedCRD{name: "x",
			annotations: map[string]string{v1alpha1.AnnotationSchemaRevision: value}})
		if (err == nil) != (revision >= 1) {
			t.Errorf("%q: revision %d, error %v", value, revision, err)
		}
	})
}
