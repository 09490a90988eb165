package controllers

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// maxWrittenBytes bounds the JSON of what is made for each node: there may be 12,500 of a group, and all groups share etcd and the
// manager's memory. The rules on the spec keep within it; a CommGroup from before a rule may not.
const maxWrittenBytes = 48 << 10

// errTooLarge: an object of one node is larger than the operator writes.
var errTooLarge = errors.New("the object is too large")

// withinBounds refuses an object that is too large. It looks at what the controller writes: a CommNode's status is its agents'.
func withinBounds(object client.Object) error {
	largest := ""
	switch o := object.(type) {
	case *v1alpha1.CommNode:
		own := *o
		own.Status = v1alpha1.CommNodeStatus{}
		object, largest = &own, "runtime.env, benchmark.thresholds"
	case *corev1.Pod:
		largest = "runtime.pod.annotations, runtime.pod.labels"
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if len(data) > maxWrittenBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are written for each node: shorten %s of the CommGroup", errTooLarge, len(data), maxWrittenBytes, largest)
	}
	return nil
}
