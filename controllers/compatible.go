package controllers

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// mixture is one property whose values must not differ between members.
type mixture struct {
	property, reason, what, advice string
	// ignored values say that there is nothing to compare.
	ignored []string
}

var mixtures = []mixture{
	{propROCm, v1alpha1.ReasonMixedROCmVersions, "ROCm version", "Bring the odd nodes to the same ROCm, or make a group of their own for them.", []string{unknownValue, "not installed"}},
	{propDriver, v1alpha1.ReasonMixedDriverVersions, "amdgpu driver version", "Bring the odd nodes to the same driver.", []string{unknownValue, "not loaded"}},
	{propModel, v1alpha1.ReasonMixedModels, "GPU model", "Narrow members.nodeSelector to one model.", []string{unknownValue}},
	{propPartition, v1alpha1.ReasonMixedPartitions, "partition mode", "Set the same compute and memory partition on every node.", []string{unknownValue}},
	{propDevices, v1alpha1.ReasonGPUCountMismatch, "number of devices", "Check the odd nodes for GPUs that fell off the bus.", nil},
	{propLibrary, v1alpha1.ReasonMixedLibraryVersions, "library build", "Use one runtime image by digest: the tag was resolved differently.", nil},
}

// compatibility says whether the members fit together, and names the odd ones out.
func compatibility(c census, reporting []*v1alpha1.CommNode, members int, ranksPerNode int32) (finding, []v1alpha1.Culprit) {
	var reason string
	var messages []string
	var culprits []v1alpha1.Culprit
	note := func(r, message string) {
		if reason == "" {
			reason = r
		}
		messages = append(messages, message)
	}
	for _, m := range mixtures {
		message, odd := m.find(c[m.property])
		if message == "" {
			continue
		}
		note(m.reason, message)
		for _, o := range odd {
			culprits = append(culprits, nodeCulprit(o.node, m.reason, o.message))
		}
	}
	byCode := map[string][]string{}
	first := map[string]v1alpha1.Problem{}
	for _, cn := range reporting {
		seen := map[string]bool{}
		for _, p := range errorProblems(cn.Status.Facts) {
			if seen[p.Code] {
				continue
			}
			seen[p.Code] = true
			if _, there := first[p.Code]; !there {
				first[p.Code] = p
			}
			byCode[p.Code] = append(byCode[p.Code], cn.Spec.NodeName)
			culprits = append(culprits, nodeCulprit(cn.Spec.NodeName, p.Code, p.Message))
		}
		if f := cn.Status.Facts; f.DeviceCount < ranksPerNode && len(errorProblems(f)) == 0 {
			message := fmt.Sprintf("Node %s shows %d devices and ranksPerNode is %d: lower ranksPerNode, or exclude the node.", cn.Spec.NodeName, f.DeviceCount, ranksPerNode)
			note(v1alpha1.ReasonGPUCountMismatch, message)
			culprits = append(culprits, nodeCulprit(cn.Spec.NodeName, v1alpha1.ReasonGPUCountMismatch, message))
		}
	}
	for _, code := range sortedKeys(byCode) {
		note(v1alpha1.ReasonOfProblem(code), fmt.Sprintf("%s on %s: %s", code, someNames(byCode[code], 5), sentence(first[code].Message)))
	}
	if len(culprits) > maxCompatibleCulprits {
		culprits = culprits[:maxCompatibleCulprits]
	}
	switch {
	case reason != "":
		return finding{metav1.ConditionFalse, reason, shorten(strings.Join(messages, " "), 2048)}, culprits
	case members == 0:
		return finding{metav1.ConditionUnknown, v1alpha1.ReasonFactsUnknown, "There is no member whose facts could be compared."}, nil
	case len(reporting) < members:
		return finding{metav1.ConditionUnknown, v1alpha1.ReasonFactsUnknown,
			fmt.Sprintf("The facts of %d of %d members are not known.", members-len(reporting), members)}, nil
	}
	return finding{metav1.ConditionTrue, v1alpha1.ReasonAllCompatible,
		fmt.Sprintf("All %d members share ROCm and driver version, GPU model, partition mode and number of devices.", members)}, nil
}

const maxCompatibleCulprits = 16

type oddNode struct{ node, message string }

// find returns what differs and the nodes outside the majority. With no clear majority every node of every value but
// the first is odd, and the message says that it is a tie.
func (m mixture) find(values map[string][]string) (string, []oddNode) {
	compared := make(map[string][]string, len(values))
	for value, nodes := range values {
		compared[value] = nodes
	}
	for _, value := range m.ignored {
		delete(compared, value)
	}
	if len(compared) < 2 {
		return "", nil
	}
	order := valuesByCount(compared)
	majority := order[0]
	var parts []string
	var odd []oddNode
	for _, value := range order[1:] {
		parts = append(parts, fmt.Sprintf("%s on %s", value, someNames(compared[value], 5)))
		for _, node := range compared[value] {
			if len(odd) < maxCompatibleCulprits {
				odd = append(odd, oddNode{node, fmt.Sprintf("%s %s on node %s; %d members have %s. %s", m.what, value, node, len(compared[majority]), majority, m.advice)})
			}
		}
	}
	tie := ""
	if len(compared[order[1]]) == len(compared[majority]) {
		tie = " (a tie: no value has a majority)"
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("%d more values", len(order)-9))
	}
	return fmt.Sprintf("Mixed %s: %s on %s, but %s%s. %s", m.what, majority, counted(len(compared[majority]), "node"), strings.Join(parts, ", "), tie, m.advice), odd
}
