package controllers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestUnreadablePartitionFile: of a finished group, one node whose memory mode cannot be read any more changes nothing.
func TestUnreadablePartitionFile(t *testing.T) {
	w := readyWorld(t, 3)
	run := w.group.Status.Run.ID
	w.nodes[1].Labels["amd.com/compute-memory-partition"] = "spx_nps1"
	facts := w.factsOn("n00001")
	facts.Partition = "SPX/unknown"
	facts.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemPartitionUnreadable,
		Path: "sys/bus/pci/devices/0000:05:00.0/current_memory_partition"}}
	w.settle()
	w.want(t, v1alpha1.ConditionCompatible, metav1.ConditionTrue, v1alpha1.ReasonAllCompatible)
	w.want(t, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	c := meta.FindStatusCondition(w.group.Status.Conditions, v1alpha1.ConditionCompatible)
	if w.group.Status.Run.ID != run || w.group.Status.Members.Stale != 0 ||
		strings.Contains(c.Message, v1alpha1.ReasonInventoryMismatch) {
		t.Errorf("run %s, then %s, stale %d: %s", run, w.group.Status.Run.ID, w.group.Status.Members.Stale, c.Message)
	}
}
