package accept

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
)

// Spec says whether the spec can be carried out on these members.
func Spec(spec *v1alpha1.CommGroupSpec, members []decision.Member, membersErr error, defaultImage string,
	now time.Time) decision.Finding {
	no := func(reason, format string, args ...any) decision.Finding {
		return decision.Finding{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	if membersErr != nil {
		return no(v1alpha1.ReasonNoNodesMatched, "No node was selected: %v. Correct the selector.", membersErr)
	}
	schedule, err := schedule.Parse(spec.Run.Schedule)
	if err != nil {
		return no(v1alpha1.ReasonInvalidSchedule, "run.schedule %q is not a cron line: %v. Write five fields (minute "+
			"hour day month weekday), for example '0 3 * * *'.", spec.Run.Schedule, err)
	}
	if schedule != nil && schedule.Next(now.UTC()).IsZero() {
		return no(v1alpha1.ReasonInvalidSchedule, "run.schedule %q never comes within five years: no such day of the "+
			"month is in those months. Correct its day or month, for example '0 3 28 2 *'.", spec.Run.Schedule)
	}
	if len(members) == 0 {
		return no(v1alpha1.ReasonNoNodesMatched, "No node matches members: selector %s, %d names, %d excluded. "+
			"Compare with `kubectl get nodes --show-labels`.", metav1.FormatLabelSelector(spec.Members.NodeSelector),
			len(spec.Members.NodeNames), len(spec.Members.Exclude))
	}
	if len(members) < int(spec.Members.MinMembers) {
		return no(v1alpha1.ReasonTooFewMembers,
			"%s and members.minMembers is %d: add or label nodes, or lower minMembers.",
			nodesMatch(len(members)), spec.Members.MinMembers)
	}
	if spec.Span == v1alpha1.SpanGroup && len(members) < stage.LeastMembers {
		return no(v1alpha1.ReasonTooFewMembers, "%s and span Group needs %d: a communicator over the group takes "+
			"several nodes. Add or label nodes, or set span to Node.", nodesMatch(len(members)), stage.LeastMembers)
	}
	if spec.Runtime.Image == "" && defaultImage == "" {
		return no(v1alpha1.ReasonRuntimeImageMissing, "No runtime image: set spec.runtime.image to an image with "+
			"ROCm and the library under test, or start the manager with --default-runtime-image.")
	}
	missing := membership.WithoutGPUs(members, spec.RanksPerNode)
	if len(missing) == len(members) {
		if most := membership.MostGPUs(members); most > 0 {
			return no(v1alpha1.ReasonNoGPUResource, "None of the %d members has %d allocatable %s; "+
				"the most is %d: lower ranksPerNode, or choose other nodes.",
				len(members), spec.RanksPerNode, objects.GPUResource(spec), most)
		}
		return no(v1alpha1.ReasonNoGPUResource, "None of the %d members has %d allocatable %s: "+
			"check that the device plugin runs on them (`kubectl describe node %s`).%s", len(members),
			spec.RanksPerNode, objects.GPUResource(spec), members[0].Name, membership.TaintRemark(members...))
	}
	message := fmt.Sprintf("%d nodes are members, %s each.",
		len(members), units.Counted(int(spec.RanksPerNode), "rank"))
	if len(members) == 1 {
		message = fmt.Sprintf("1 node is a member, with %s.", units.Counted(int(spec.RanksPerNode), "rank"))
	}
	if len(missing) > 0 {
		message += fmt.Sprintf(" Of these, %d with fewer than %d allocatable %s cannot run: %s.",
			len(missing), spec.RanksPerNode, objects.GPUResource(spec), explain.Names(missing, 5))
	}
	// Nodes come and go, so that what follows refuses nothing; but nobody shall learn it only after hours of runs.
	if able, need := len(members)-len(missing),
		stage.MembersNeeded(spec); spec.Span == v1alpha1.SpanGroup && able < need {
		cure := "lower ranksPerNode, or choose other nodes"
		if need > stage.LeastMembers {
			cure = "lower ranksPerNode or members.minMembers, or choose other nodes"
		}
		message += fmt.Sprintf(" As it is no communicator over the group will be formed: it takes %d nodes that can "+
			"run, and %d can: %s.", need, able, cure)
	}
	if spec.Span == v1alpha1.SpanGroup && len(spec.Mesh) > 0 {
		if err := spans.CheckMesh(spec.Mesh, (len(members)-len(missing))*int(spec.RanksPerNode)); err != nil {
			message += " As it is the mesh does not fit, and will not be measured: " + err.Error() + "."
		}
		for _, at := range spans.Measurable(spec.Mesh) {
			if n := spans.NodeCommunicators(spec.Mesh, at, int(spec.RanksPerNode)); n > spans.MaxNodeCommunicators {
				message += fmt.Sprintf(" Dimension %s of the mesh will not be measured: %v.",
					spec.Mesh[at].Name, spans.TooMany(n))
			}
		}
	}
	return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: message}
}

func nodesMatch(n int) string {
	if n == 1 {
		return "1 node matches"
	}
	return fmt.Sprintf("%d nodes match", n)
}
