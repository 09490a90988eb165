package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// schemaNextStep is what brings the CRDs to this manager's revision.
const schemaNextStep = "apply the CRDs of this release first: kubectl apply --server-side -f config/crd/bases, " +
	"or helm upgrade with crds.enabled=true"

// crdNames are the CRDs that a manager needs.
var crdNames = []string{"commgroups.rcclx.io", "commtasks.rcclx.io", "commruns.rcclx.io", "commnodes.rcclx.io"}

// installedCRD is what the API server says of one CRD.
type installedCRD struct {
	name        string
	annotations map[string]string
	err         error
}

// checkSchemas reads the installed CRDs and refuses those that are older than the needed revision. The API server would
// drop the fields that it does not know, silently. The error is errUnanswered where the API server did not answer.
func checkSchemas(ctx context.Context, reader client.Reader, needed int) error {
	installed := make([]installedCRD, len(crdNames))
	for i, name := range crdNames {
		var crd metav1.PartialObjectMetadata
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		err := reader.Get(ctx, client.ObjectKey{Name: name}, &crd)
		if unanswered(err) {
			return fmt.Errorf("%w: read CRD %s: %w", errUnanswered, name, err)
		}
		installed[i] = installedCRD{name: name, annotations: crd.Annotations, err: err}
	}
	warnings, err := judgeSchemas(installed, needed)
	for _, w := range warnings {
		ctrl.Log.WithName("schema").Info("WARNING: " + w)
	}
	return err
}

// judgeSchemas says whether a manager that needs a revision can work with what is installed. A newer CRD is worth a
// warning alone: it knows all that the manager writes.
func judgeSchemas(installed []installedCRD, needed int) (warnings []string, err error) {
	var errs []error
	for _, crd := range installed {
		found, err := schemaRevision(crd)
		switch {
		case err != nil:
			errs = append(errs, err)
		case found < needed:
			errs = append(errs, fmt.Errorf("CRD %s has schema revision %d, this manager needs %d or later, "+
				"else the API server would drop fields without a word; %s", crd.name, found, needed, schemaNextStep))
		case found > needed:
			warnings = append(warnings, fmt.Sprintf("CRD %s has schema revision %d, this manager is of revision %d: "+
				"it knows nothing of newer fields; upgrade the manager to the CRDs' release", crd.name, found, needed))
		}
	}
	return warnings, errors.Join(errs...)
}

func schemaRevision(crd installedCRD) (int, error) {
	switch {
	case apierrors.IsNotFound(crd.err):
		return 0, fmt.Errorf("CRD %s is not installed; %s", crd.name, schemaNextStep)
	case apierrors.IsForbidden(crd.err):
		return 0, fmt.Errorf("CRD %s could not be read, so its schema is not known: %w; let the manager's account "+
			"get it, as ClusterRole commgroup-manager of this release does", crd.name, crd.err)
	case crd.err != nil:
		return 0, fmt.Errorf("CRD %s could not be read, so its schema is not known: %w", crd.name, crd.err)
	}
	value, ok := crd.annotations[v1alpha1.AnnotationSchemaRevision]
	if !ok {
		return 0, fmt.Errorf("CRD %s has no annotation %s: it is older than the first revision; %s",
			crd.name, v1alpha1.AnnotationSchemaRevision, schemaNextStep)
	}
	revision, err := strconv.Atoi(value)
	if err != nil || revision < 1 {
		return 0, fmt.Errorf("CRD %s has annotation %s=%q, expected a count from 1 on; %s",
			crd.name, v1alpha1.AnnotationSchemaRevision, value, schemaNextStep)
	}
	return revision, nil
}
