// Package demo shows the operator on simulated nodes: it brings a cluster up, installs the operator, applies the sample
// CommGroup, waits for its outcome and prints it.
package demo

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
)

// FaultyNode is the node that a fault is put on.
const FaultyNode = "sim-node-2"

// pairedNode is the other one where the fault is between two.
const pairedNode = "sim-node-1"

// Fault is one thing that can be made to go wrong on FaultyNode, and what the operator is expected to say of it.
type Fault struct {
	Name string
	// Setting for simrocm.conf; empty where the fault is in the node's tree.
	Setting string
	// ROCm version of the node's tree; empty means the others'.
	ROCm string
	// Description for users.
	Description string
	// Reasons that name the fault: of a culprit, or of the condition Compatible.
	Reasons []string
	// GPUs (ordinals) that a culprit has to name; empty means that the node is enough.
	GPUs []int
	// Span: the fault shows only over several nodes. Kind of the culprit, and what its name has to hold.
	Span  bool
	Kind  string
	Named []string
	// Unsearched: the group's own test names the culprit, and the group is not formed again without it.
	Unsearched bool
	// Incompatible: the fault shows in the condition Compatible, and there is no run.
	Incompatible bool
	// Problem is the reason of the culprit that the monitor's facts give, where the fault is found in them while it
	// runs.
	Problem string
	// Change makes the fault after the group has become Ready: it changes what the node's tree is made from. Such a
	// fault is judged by JudgeChange.
	Change func(*nodetree.Node)
}

// Faults by the name that FAULT= takes.
var Faults = []Fault{
	{Name: "slow-link", Setting: "slow-link:2-5:25", GPUs: []int{2, 5}, Reasons: []string{v1alpha1.ReasonSlowLink},
		Description: "the xGMI link between GPU 2 and GPU 5 runs at 25 % of its bandwidth"},
	{Name: "hang", Setting: "hang:3", GPUs: []int{3}, Reasons: []string{v1alpha1.ReasonRankHung},
		Description: "kernels on GPU 3 never complete"},
	{Name: "wrong-data", Setting: "wrong-data:6", GPUs: []int{6}, Reasons: []string{v1alpha1.ReasonWrongData},
		Description: "GPU 6 contributes corrupted data"},
	{Name: "init-abort", Setting: "init-abort:4", GPUs: []int{4},
		Reasons:     []string{v1alpha1.ReasonRankDied, v1alpha1.ReasonInitFailed},
		Description: "the process on GPU 4 aborts while the communicator is formed"},
	{Name: "rocm-mismatch", ROCm: "6.4.1", Incompatible: true, Reasons: []string{v1alpha1.ReasonMixedROCmVersions},
		Description: "the node has ROCm 6.4.1 while the others have 7.0.2"},
	{Name: "slow-node-net", Span: true, Setting: "slow-node-net:20", Kind: "Node", Named: []string{FaultyNode},
		Reasons:     []string{v1alpha1.ReasonSlowNode, v1alpha1.ReasonSlowGroup},
		Description: "all NICs run at 20 % of their bandwidth"},
	{Name: "slow-pair", Span: true, Setting: "slow-pair-nodes:" + pairedNode + ":20", Kind: "Pair",
		Named: []string{FaultyNode, pairedNode}, Reasons: []string{v1alpha1.ReasonSlowPair},
		Description: "the way to " + pairedNode + " has 20 % of its bandwidth, and that to any other node all of it"},
	{Name: "slow-nic", Span: true, Setting: "slow-nic:1:20", Kind: "NIC", Named: []string{"mlx5_1"},
		Reasons: []string{v1alpha1.ReasonSlowRail}, Description: "the NIC of GPU 1 runs at 20 % of its bandwidth"},
	{Name: "hang-across", Span: true, Setting: "hang-across", Kind: "Node", Named: []string{FaultyNode},
		Reasons:     []string{v1alpha1.ReasonHangAcrossNodes, v1alpha1.ReasonRankHung},
		Description: "collectives over several nodes never complete; alone the node is fine"},
	{Name: "no-rdma", Span: true, Setting: "no-rdma", Kind: "Node", Named: []string{FaultyNode}, Unsearched: true,
		Reasons:     []string{v1alpha1.ReasonTransportFallback},
		Description: "the library finds no RDMA device and silently uses TCP"},
	{Name: "reboot", Change: reboot, Reasons: []string{v1alpha1.StaleNodeRebooted},
		Description: "the node reboots after the group is Ready: its kernel has another boot id"},
	{Name: "link-down", Change: linkDown, Incompatible: true, Problem: v1alpha1.ProblemPCIeInsteadOfXGMI,
		GPUs: []int{3, 6}, Reasons: []string{v1alpha1.ReasonTopologyFault},
		Description: "the xGMI link between GPU 3 and GPU 6 falls back to PCIe after the group is Ready"},
}

// reboot gives the node the random boot id of another boot.
func reboot(n *nodetree.Node) { n.BootID = string(uuid.NewUUID()) }

// linkDown is what KFD shows of a pair without its link; the kernel raises the generation with each change.
func linkDown(n *nodetree.Node) {
	n.Links = append(slices.Clone(n.Links), nodetree.Link{A: 3, B: 6, Kind: nodetree.LinkPCIe})
	n.Generation = max(n.Generation, 2) + 1
}

// FaultNames lists what FAULT= takes, with SPAN=group or without.
func FaultNames(span bool) string {
	var names []string
	for i := range Faults {
		if Faults[i].Span == span {
			names = append(names, Faults[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// FindFaults looks up what FAULT= names: one fault that is there from the start, or one or more, with commas between,
// that come one after the other once the group is Ready. The empty name is none. span: with SPAN=group.
func FindFaults(names string, span bool) (fault *Fault, changes []*Fault, err error) {
	if names == "" {
		return nil, nil, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == name })
		switch {
		case i < 0:
			return nil, nil, fmt.Errorf("FAULT=%s is not known: choose one of %s, or with SPAN=group of %s",
				name, FaultNames(false), FaultNames(true))
		case Faults[i].Span && !span:
			return nil, nil, fmt.Errorf("FAULT=%s shows only over several nodes: add SPAN=group", name)
		case !Faults[i].Span && span:
			return nil, nil,
				fmt.Errorf("FAULT=%s does not go with SPAN=group: choose one of %s", name, FaultNames(true))
		case Faults[i].Change != nil:
			changes = append(changes, &Faults[i])
		case name != names:
			return nil, nil, fmt.Errorf("FAULT=%s: %s is there from the start and goes with no other", names, name)
		default:
			fault = &Faults[i]
		}
	}
	return fault, changes, nil
}

// Outcome is what the demo waits for.
type Outcome struct {
	// Done: the group has come to an end, as expected or not.
	Done bool
	// Reached says whether it is the expected one; Seen says in words what was seen.
	Reached bool
	Seen    string
}

// Judge says whether the group's status is the outcome that the demo expects. pci are the addresses of the faulty
// node's GPUs by ordinal.
func Judge(group *state.Group, fault *Fault, pci []string) Outcome {
	ready := current(group, v1alpha1.ConditionReady)
	finished := group.Status.Settled() && group.Status.Run.Generation == group.Generation
	seen := "no condition Ready of this generation yet"
	if ready != nil {
		seen = fmt.Sprintf("Ready is %s (%s): %s", ready.Status, ready.Reason, ready.Message)
	}
	switch {
	case fault == nil && ready != nil && ready.Status == metav1.ConditionTrue:
		if missing := unmeasured(group); group.Spec.Span == v1alpha1.SpanGroup && missing != "" {
			return Outcome{Done: true, Seen: seen + "; " + missing}
		}
		return Outcome{Done: true, Reached: true, Seen: seen}
	case fault == nil:
		return Outcome{Done: finished && ready != nil && ready.Reason != v1alpha1.ReasonRunInProgress, Seen: seen}
	case fault.Incompatible:
		compatible := current(group, v1alpha1.ConditionCompatible)
		if compatible == nil || compatible.Status != metav1.ConditionFalse {
			return Outcome{Done: finished, Seen: seen}
		}
		seen = fmt.Sprintf("Compatible is False (%s): %s", compatible.Reason, compatible.Message)
		named := oneOf(compatible.Reason, fault.Reasons) && strings.Contains(compatible.Message, FaultyNode)
		return Outcome{Done: named, Reached: named, Seen: seen}
	}
	if fault.Span {
		return judgeSpan(group, fault, finished, seen)
	}
	for _, c := range group.Status.Culprits {
		if c.Node == FaultyNode && oneOf(c.Reason, fault.Reasons) && names(c, fault.GPUs, pci) {
			return Outcome{Done: finished, Reached: finished,
				Seen: fmt.Sprintf("culprit %s (%s)", explain.Culprit(&c), c.Reason)}
		}
	}
	if len(group.Status.Culprits) > 0 {
		c := group.Status.Culprits[0]
		seen += fmt.Sprintf("; the first culprit is %s (%s): %s", explain.Culprit(&c), c.Reason, c.Message)
	}
	return Outcome{Done: finished, Seen: seen}
}

// names says whether a culprit names every one of the GPUs, by PCI address or as a rank of its node.
func names(c v1alpha1.Culprit, gpus []int, pci []string) bool {
	for _, gpu := range gpus {
		address := gpu < len(pci) && strings.Contains(c.Name+" "+c.Message, pci[gpu])
		if !address && c.Name != fmt.Sprintf("rank %d", gpu) {
			return false
		}
	}
	return true
}

func oneOf(s string, all []string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// current finds a condition that speaks of the present generation.
func current(group *state.Group, kind string) *metav1.Condition {
	c := meta.FindStatusCondition(group.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != group.Generation {
		return nil
	}
	return c
}
