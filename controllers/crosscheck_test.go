package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestCrossCheckNamesTheNode: a mismatch of counts is in Compatible; labels are a remark in it and one event.
func TestCrossCheckNamesTheNode(t *testing.T) {
	w := readyWorld(t, 3)
	w.nodes[1].Status.Allocatable = testkit.Resources(v1alpha1.ResourceGPU, "7")
	w.settle()
	w.want(t, v1alpha1.ConditionCompatible, metav1.ConditionFalse, v1alpha1.ReasonGPUCountMismatch,
		"Node n00001: KFD shows 8 devices, the device plugin offers 7")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGPUCountMismatch)
	if c := w.group.Status.Culprits; len(c) != 1 || c[0].Node != "n00001" ||
		c[0].Reason != v1alpha1.ReasonGPUCountMismatch {
		t.Errorf("culprits %+v", c)
	}
	w.nodes[1].Status.Allocatable = w.nodes[1].Status.Capacity
	w.nodes[2].Labels["amd.com/gpu.product-name"] = "AMD_Instinct_MI325X"
	for range 3 {
		w.settle()
	}
	w.want(t, v1alpha1.ConditionCompatible, metav1.ConditionTrue, v1alpha1.ReasonAllCompatible,
		"InventoryMismatch: on n00002: label product-name says AMD_Instinct_MI325X and KFD shows MI300X")
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if n := w.count(v1alpha1.ReasonInventoryMismatch); n != 1 {
		t.Errorf("%d events", n)
	}
	if w.group.Status.Run.ID != "1-1" {
		t.Errorf("run %+v", w.group.Status.Run)
	}
}
