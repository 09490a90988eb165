package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	// LabelGroup carries the CommGroup's name on every object that the controller creates.
	LabelGroup = "rcclx.io/commgroup"
	// LabelGroupNamespace carries the CommGroup's namespace on objects that live in another namespace.
	LabelGroupNamespace = "rcclx.io/commgroup-namespace"
	// LabelGroupUID carries the CommGroup's UID, so that a re-created group never adopts old objects.
	LabelGroupUID = "rcclx.io/commgroup-uid"
	// LabelRole is "monitor" or "run" on pods.
	LabelRole = "rcclx.io/role"
	// LabelRunID carries the run's id on run pods.
	LabelRunID = "rcclx.io/run-id"
	// RoleMonitor is the value of LabelRole on monitors.
	RoleMonitor = "monitor"
	// RoleRun is the value of LabelRole on run pods.
	RoleRun = "run"
	// LabelStage is on run pods what they are for: "group" on those of a group's stage, absent on those of a node
	// alone.
	LabelStage = "rcclx.io/stage"
	// StagePodGroup is the value of LabelStage on pods of a group's stage.
	StagePodGroup = "group"
	// LabelNode carries a label-safe form of the node's name on CommTasks and run pods.
	LabelNode = "rcclx.io/node"

	// ManagerLease is the Lease of the managers' leader election, in the operator's namespace.
	ManagerLease = "commgroup-manager.rcclx.io"
	// AnnotationBaselineFrom on a CommGroup has the id of a run: a person's word that what it and those after it show
	// is the new normal. The first one that passes begins the baseline anew.
	AnnotationBaselineFrom = "rcclx.io/baseline-from"
	// AnnotationGroup carries namespace/name of the CommGroup, unshortened, on pods and monitors.
	AnnotationGroup = "rcclx.io/commgroup"
	// AnnotationSettingsHash says on a published ConfigMap which settings it holds.
	AnnotationSettingsHash = "rcclx.io/settings-hash"
	// AnnotationRun says on a published ConfigMap which run proved it.
	AnnotationRun = "rcclx.io/proven-by-run"
	// AnnotationOrigin says on a published ConfigMap whether it was proven on hardware or in the simulator.
	AnnotationOrigin = "rcclx.io/origin"

	// AnnotationGatingPrefix with a CommGroup's UID behind it holds on a Node what that group's gating says of the
	// node.
	AnnotationGatingPrefix = "gating.rcclx.io/"
	// AnnotationGatingExempt on a Node keeps every group's gating from it, unless its value is "false".
	AnnotationGatingExempt = AnnotationGatingPrefix + "exempt"
	// LabelCommValidated is "failed" or "passed" on Nodes that a group marks by Label.
	LabelCommValidated = "rcclx.io/comm-validated"
	// CommValidatedFailed is the value of LabelCommValidated on a node that failed.
	CommValidatedFailed = "failed"
	// CommValidatedPassed is its value on one that passed.
	CommValidatedPassed = "passed"
	// TaintCommFailed with the effect NoSchedule is on Nodes that a group marks by Taint.
	TaintCommFailed = "rcclx.io/comm-failed"
	// TaintReadiness is the taint of config/samples/node-readiness-rule.yaml; run pods tolerate it, or it could never
	// be lifted.
	TaintReadiness = "readiness.k8s.io/comm-validated"
	// NodeConditionCommValidated is the condition of Nodes that a group marks by Condition.
	NodeConditionCommValidated = "CommValidated"
	// NodeConditionCommProblem goes with it and says the opposite, for what takes True for trouble
	// (docs/decisions/0020).
	NodeConditionCommProblem = "CommProblem"

	// Finalizer was set on CommGroups by managers up to version 0.1; later ones take it off
	// (docs/decisions/0016-no-finalizer.md).
	Finalizer = "rcclx.io/cleanup"

	// FieldManagerController names the manager as a writer: CommTask specs and everything that it creates.
	FieldManagerController = "commgroup-controller"
	// FieldManagerMonitor names the monitor as the writer of CommNode status.facts.
	FieldManagerMonitor = "commgroup-monitor"
	// FieldManagerRun names the run pod's agent as the writer of CommTask status.run.
	FieldManagerRun = "commgroup-run"
	// FieldManagerSession names the group pod's agent as the writer of CommTask status.session.
	FieldManagerSession = "commgroup-session"

	// ResourceGPU is the extended resource that AMD's device plugin publishes.
	ResourceGPU = "amd.com/gpu"
)

// CommTaskName is the name of the CommTask that stands for one node in one group. It is deterministic, so that an
// agent finds its object from the group's and the node's name alone. Both may hold dots: group a on node b.c and group
// a.b on node c would share one name, so that a group with a dot carries a hash of both.
func CommTaskName(group, node string) string {
	if strings.Contains(group, ".") {
		return hashedName(group+"/"+node, group+"."+node, 200)
	}
	return boundedName(group+"."+node, 200)
}

// CommRunName is the name of the CommRun of a group's run, by its number.
func CommRunName(group string, number int64) string {
	return boundedName(group+"-"+strconv.FormatInt(number, 10), 200)
}

// LabelValue returns s where it fits a label value (63 characters), else a shortened form with a hash.
func LabelValue(s string) string { return boundedName(s, 63) }

func boundedName(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return hashedName(s, s, limit)
}

// hashedName is s, cut to the limit, with a hash of the identity behind it.
func hashedName(identity, s string, limit int) string {
	sum := sha256.Sum256([]byte(identity))
	tail := "-" + hex.EncodeToString(sum[:])[:10]
	// A name's part may not end in a dot or dash before the tail's own dash.
	return strings.TrimRight(s[:min(len(s), limit-len(tail))], "-._") + tail
}
