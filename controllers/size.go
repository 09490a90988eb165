package controllers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// maxWrittenBytes bounds the JSON of what is made for each node: there may be 12,500 of a group, and all groups share etcd and the
// manager's memory. The rules on the spec keep within it; a CommGroup from before a rule may not.
const maxWrittenBytes = 48 << 10

// errTooLarge: an object of one node is larger than the operator writes.
var errTooLarge = errors.New("the object is too large")

// changeWithinBounds refuses a CommTask that is too large, and larger than the one that is there: a run of a CommGroup from before a rule
// would otherwise never end on the node.
func changeWithinBounds(change CommTaskChange) error {
	err := withinBounds(change.Desired)
	if err == nil || change.Current == nil {
		return err
	}
	// What the controller adds to an assignment as the run goes on has bounds of its own.
	writtenBytes := func(ct *v1alpha1.CommTask) int {
		own := *ct
		own.Status = v1alpha1.CommTaskStatus{}
		if ct.Spec.Run != nil {
			run := *ct.Spec.Run
			run.Closed, run.Waiting, run.Stale, run.Platform, run.PodName = nil, nil, nil, nil, ""
			own.Spec.Run = &run
		}
		data, jsonErr := json.Marshal(&own)
		if jsonErr != nil {
			return math.MaxInt
		}
		return len(data)
	}
	if writtenBytes(change.Desired) <= writtenBytes(change.Current) {
		return nil
	}
	return err
}

// withinBounds refuses an object that is too large. It looks at what the controller writes: a CommTask's status is its agents'.
func withinBounds(object client.Object) error {
	largest := ""
	switch o := object.(type) {
	case *v1alpha1.CommTask:
		own := *o
		own.Status = v1alpha1.CommTaskStatus{}
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
