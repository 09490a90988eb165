package compatible

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
)

// mixture is one property whose values must not differ between members.
type mixture struct {
	property, reason, what, advice string
	// ignored values say that there is nothing to compare.
	ignored []string
	// halves: values are partition modes, which are compared by halves.
	halves bool
}

var mixtures = []mixture{
	{propROCm, v1alpha1.ReasonMixedROCmVersions, "ROCm version",
		"Bring the odd nodes to the same ROCm, or make a group of their own for them.",
		[]string{nodefacts.Unknown, "not installed"}, false},
	{propDriver, v1alpha1.ReasonMixedDriverVersions, "amdgpu driver version", "Bring the odd nodes to the same driver.",
		[]string{nodefacts.Unknown, "not loaded"}, false},
	{propModel, v1alpha1.ReasonMixedModels, "GPU model", "Narrow members.nodeSelector to one model.",
		[]string{nodefacts.Unknown}, false},
	{propPartition, v1alpha1.ReasonMixedPartitions, "partition mode",
		"Set the same compute and memory partition on every node.", []string{nodefacts.Unknown}, true},
	{propDevices, v1alpha1.ReasonGPUCountMismatch, "number of devices",
		"Check the odd nodes for GPUs that fell off the bus.", nil, false},
	{propContainerROCm, v1alpha1.ReasonMixedROCmVersions, "ROCm version in the run's container",
		"Use one runtime image by digest: the tag was resolved differently.", nil, false},
	{propLibrary, v1alpha1.ReasonMixedLibraryVersions, "library build",
		"Use one runtime image by digest: the tag was resolved differently.", nil, false},
}

// Input is what the condition Compatible rests on.
type Input struct {
	Spec    *v1alpha1.CommGroupSpec
	Members []decision.Member
	Census  Census
	// Reporting are the members whose facts hold, in rank order.
	Reporting []*v1alpha1.CommNode
	Outcomes  []judge.Outcome
}

// fitting collects what keeps members from fitting together, and remarks that do not.
type fitting struct {
	reason          string
	messages, notes []string
	culprits        []v1alpha1.Culprit
	// remark that labels contradict the facts; nil where none does.
	remark *v1alpha1.Remark
}

func (f *fitting) fault(reason, message string) {
	if f.reason == "" {
		f.reason = reason
	}
	f.messages = append(f.messages, message)
}

func (f *fitting) blame(node, reason, message string) {
	if len(f.culprits) < maxCulprits {
		f.culprits = append(f.culprits, judge.NodeCulprit(node, reason, message))
	}
}

// onNodes are nodes of which the same is to be said, in the order of the first.
type onNodes struct {
	texts []string
	nodes map[string][]string
}

func (o *onNodes) add(text, node string) {
	if o.nodes == nil {
		o.nodes = map[string][]string{}
	}
	if o.nodes[text] == nil {
		o.texts = append(o.texts, text)
	}
	o.nodes[text] = append(o.nodes[text], node)
}

// each gives the texts with the nodes before them, at most five texts.
func (o *onNodes) each(say func(names, text string)) {
	for i, text := range o.texts {
		if i == 5 {
			say(fmt.Sprintf("%d more", len(o.texts)-i), "see their CommNodes.")
			return
		}
		say(explain.Names(o.nodes[text], 5), text)
	}
}

// Decide says whether the members fit together, and names the odd ones out.
func Decide(in Input) (decision.Finding, []v1alpha1.Culprit) {
	var f fitting
	f.rules(in)
	for _, m := range mixtures {
		message, odd := m.find(in.Census[m.property])
		if message == "" {
			continue
		}
		f.fault(m.reason, message)
		for _, o := range odd {
			f.blame(o.node, m.reason, o.message)
		}
	}
	f.problems(in.Reporting)
	f.counts(in)
	f.labels(in)
	members := len(in.Members)
	remarks := ""
	if len(f.notes) > 0 {
		remarks = " " + strings.Join(f.notes, " ")
	}
	switch {
	case f.reason != "":
		return decision.Finding{Status: metav1.ConditionFalse, Reason: f.reason,
			Message: clip.Head(strings.Join(f.messages, " ")+remarks, 2048), Remark: f.remark}, f.culprits
	case members == 0:
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonFactsUnknown,
			Message: "There is no member whose facts could be compared."}, nil
	case len(in.Reporting) < members:
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonFactsUnknown,
			Message: clip.Head(fmt.Sprintf("The facts of %d of %d members are not known.",
				members-len(in.Reporting), members)+remarks, 2048), Remark: f.remark}, nil
	}
	return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllCompatible,
		Message: clip.Head(fmt.Sprintf("All %d members share ROCm and driver version, GPU model, partition mode and "+
			"number of devices.", members)+remarks, 2048), Remark: f.remark}, nil
}

// problems are those that the nodes' own agents found.
func (f *fitting) problems(reporting []*v1alpha1.CommNode) {
	byCode := map[string][]string{}
	first := map[string]v1alpha1.Problem{}
	for _, cn := range reporting {
		seen := map[string]bool{}
		for _, p := range nodefacts.ErrorProblems(cn.Status.Facts) {
			if seen[p.Code] {
				continue
			}
			seen[p.Code] = true
			if _, there := first[p.Code]; !there {
				first[p.Code] = p
			}
			byCode[p.Code] = append(byCode[p.Code], cn.Name)
			if len(f.culprits) < maxCulprits {
				f.culprits = append(f.culprits, problemCulprit(cn.Name, p))
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(byCode)) {
		f.fault(v1alpha1.ReasonOfProblem(code), fmt.Sprintf("%s on %s: %s",
			code, explain.Names(byCode[code], 5), explain.Sentence(aboutSubject(first[code]))))
	}
}

// problemCulprit blames the GPU or link that the problem is about, else the node.
func problemCulprit(node string, p v1alpha1.Problem) v1alpha1.Culprit {
	switch {
	case p.PeerGPU != "":
		return v1alpha1.Culprit{Node: node, Kind: "Link", Name: p.Subject(), Reason: p.Code,
			Message: clip.Head(p.Message, 512)}
	case p.GPU != "":
		return v1alpha1.Culprit{Node: node, Kind: "GPU", Name: p.GPU, Reason: p.Code,
			Message: clip.Head(p.Message, 512)}
	}
	return judge.NodeCulprit(node, p.Code, aboutSubject(p))
}

// aboutSubject is the problem's message after what it is about.
func aboutSubject(p v1alpha1.Problem) string {
	if about := p.Subject(); about != "" {
		return about + ": " + p.Message
	}
	return p.Message
}

// counts holds what counts a node's GPUs against each other.
func (f *fitting) counts(in Input) {
	nodes := make(map[string]*decision.Member, len(in.Members))
	for i := range in.Members {
		nodes[in.Members[i].Name] = &in.Members[i]
	}
	var few, differ onNodes
	for _, cn := range in.Reporting {
		facts, name := cn.Status.Facts, cn.Name
		problems := nodefacts.ErrorProblems(facts)
		if facts.DeviceCount < in.Spec.RanksPerNode && len(problems) == 0 {
			few.add(fmt.Sprintf("%d devices and ranksPerNode is %d: lower ranksPerNode, or exclude the node.",
				facts.DeviceCount, in.Spec.RanksPerNode), name)
			f.blame(name, v1alpha1.ReasonGPUCountMismatch,
				fmt.Sprintf("Node %s shows %d devices and ranksPerNode is %d: lower ranksPerNode, or exclude the node.",
					name, facts.DeviceCount, in.Spec.RanksPerNode))
			continue
		}
		// The agent has named the GPU that is missing: its consequences need no second word.
		if slices.ContainsFunc(problems, func(p v1alpha1.Problem) bool {
			return v1alpha1.ReasonOfProblem(p.Code) == v1alpha1.ReasonGPUCountMismatch
		}) {
			continue
		}
		if text := nodefacts.CountMismatch(facts, nodes[name].Node, objects.GPUResource(in.Spec)); text != "" {
			differ.add(text, name)
			f.blame(name, v1alpha1.ReasonGPUCountMismatch, text)
		}
	}
	few.each(func(names, text string) { f.fault(v1alpha1.ReasonGPUCountMismatch, "Node "+names+" shows "+text) })
	differ.each(func(names, text string) { f.fault(v1alpha1.ReasonGPUCountMismatch, "Node "+names+": "+text) })
}

// labels holds the labels of AMD's node labeller against the facts.
func (f *fitting) labels(in Input) {
	facts := make(map[string]*v1alpha1.NodeFacts, len(in.Reporting))
	for _, cn := range in.Reporting {
		facts[cn.Name] = cn.Status.Facts
	}
	var odd onNodes
	for i := range in.Members {
		m := &in.Members[i]
		if facts[m.Name] == nil || m.Node == nil {
			continue
		}
		if text := nodefacts.LabelMismatch(facts[m.Name], m.Node.Labels); text != "" {
			odd.add(text, m.Name)
		}
	}
	var mismatches []string
	odd.each(func(names, text string) {
		mismatches = append(mismatches, fmt.Sprintf("on %s: %s.", names, strings.TrimSuffix(text, ".")))
	})
	if len(mismatches) == 0 {
		return
	}
	mismatches = append(mismatches, "Restart the node labeller on it; selectors by these labels choose wrongly.")
	f.remark = &v1alpha1.Remark{Reason: v1alpha1.ReasonInventoryMismatch, Message: strings.Join(mismatches, " ")}
}

const maxCulprits = 16

type oddNode struct{ node, message string }

func membersHave(n int) string {
	if n == 1 {
		return "1 member has"
	}
	return fmt.Sprintf("%d members have", n)
}

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
	majority, agree, others := order[0], len(compared[order[0]]), order[1:]
	inMode := func(value string) int { return len(compared[value]) }
	if m.halves {
		majority, agree, others = nodefacts.MajorityMode(compared, order)
		inMode = func(value string) int { return nodefacts.NodesInMode(compared, value) }
	}
	if len(others) == 0 {
		return "", nil
	}
	var parts []string
	var odd []oddNode
	tie := ""
	for _, value := range others {
		parts = append(parts, fmt.Sprintf("%s on %s", value, explain.Names(compared[value], 5)))
		tied := ""
		if inMode(value) >= agree && value != nodefacts.Mixed {
			tie = " (a tie: no value has a majority)"
			tied = ", as many, so that either may be the odd one"
		}
		for _, node := range compared[value] {
			if len(odd) < maxCulprits {
				odd = append(odd, oddNode{node, fmt.Sprintf("%s %s on node %s; %s %s%s. %s",
					m.what, value, node, membersHave(agree), majority, tied, m.advice)})
			}
		}
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("%d more values", len(others)-8))
	}
	return fmt.Sprintf("Mixed %s: %s on %s, but %s%s. %s",
		m.what, majority, units.Counted(agree, "node"), strings.Join(parts, ", "), tie, m.advice), odd
}
