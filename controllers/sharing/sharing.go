package sharing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// BusyPoll is how often a node that others use is checked again: the end of their pods is no event of this group's.
	BusyPoll = 15 * time.Second
	// MaxLooks is the most nodes whose pods are listed in one reconcile; one that was busy is not listed again within
	// BusyPoll.
	MaxLooks = 64
)

// Elsewhere is what other CommGroups do on the nodes, by node name.
type Elsewhere struct {
	// Pods of other groups' runs that are not over, and claims of groups whose stage over several nodes has begun.
	Pods, Claims map[string]string
	// Ahead are the claims of groups whose stage began before this group's; of two that began in one second the lesser
	// UID is ahead.
	Ahead map[string]string
}

// OnNode names the other group that has the node; empty where none does.
func (e *Elsewhere) OnNode(node string) string { return cmp.Or(e.Pods[node], e.Claims[node]) }

// Before names the other group that this group's stage has to let go first.
func (e *Elsewhere) Before(node string) string { return cmp.Or(e.Pods[node], e.Ahead[node]) }

// Of sums up what other groups run and claim, as the group may know it.
func Of(group *state.Group, runPods []corev1.Pod, claims []Claim, now time.Time) Elsewhere {
	e := Elsewhere{Pods: map[string]string{}, Claims: map[string]string{}, Ahead: map[string]string{}}
	for i := range runPods {
		pod := &runPods[i]
		// A gated pod holds nothing yet, and the scheduler keeps it from a node with another run's pod.
		if node := PlannedNode(pod); node != "" && podstate.Alive(pod) && !podstate.Stuck(pod, now) &&
			len(pod.Spec.SchedulingGates) == 0 {
			keepLeast(e.Pods, node, otherPod(group, pod))
		}
	}
	own := ClaimOf(group)
	for i := range claims {
		c := &claims[i]
		text := fmt.Sprintf("%s, which forms its communicator over several nodes", otherGroup(group, c.Group))
		ahead := own == nil || c.earlier(own)
		for _, node := range c.Nodes {
			keepLeast(e.Claims, node, text)
			if ahead {
				keepLeast(e.Ahead, node, text)
			}
		}
	}
	return e
}

// ofOtherNamespace is all that is said of them: who reads a CommGroup's status may not know what other namespaces run.
const ofOtherNamespace = " of another namespace"

func otherPod(group *state.Group, pod *corev1.Pod) string {
	if pod.Namespace != group.Namespace {
		return "a run pod" + ofOtherNamespace
	}
	return fmt.Sprintf("run pod %s/%s of CommGroup %s",
		pod.Namespace, pod.Name, cmp.Or(pod.Annotations[v1alpha1.AnnotationGroup], "unknown"))
}

// otherGroup names the group of that namespace/name.
func otherGroup(group *state.Group, other string) string {
	if namespace, _, _ := strings.Cut(other, "/"); namespace != group.Namespace {
		return "a CommGroup" + ofOtherNamespace
	}
	return "CommGroup " + other
}

// keepLeast keeps one text a node, the same whatever the order.
func keepLeast(m map[string]string, node, text string) {
	if old, there := m[node]; !there || text < old {
		m[node] = text
	}
}

// PlannedNode is the node that a run pod is on, or is made for.
func PlannedNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == "metadata.name" && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return ""
}

// Claim is the wish of another group's stage for its nodes.
type Claim struct {
	// Group as namespace/name, its UID, and when its stage began to wait for its members.
	Group, UID string
	Since      time.Time
	// Nodes that its sessions are open on.
	Nodes []string
}

func (c *Claim) earlier(than *Claim) bool {
	if !c.Since.Equal(than.Since) {
		return c.Since.Before(than.Since)
	}
	return c.UID < than.UID
}

// ClaimOf is the group's own claim without its nodes; nil while its stage over several nodes has not begun, or is over.
// Later steps of the stage began after it took its nodes: then nobody's claim can be before it.
func ClaimOf(group *state.Group) *Claim {
	run, span := group.Status.Run, group.Status.Span
	if run == nil || span == nil || span.RunID != run.ID || run.Phase != v1alpha1.RunPhaseRunning ||
		span.StageStartTime == nil {
		return nil
	}
	c := &Claim{Group: group.Namespace + "/" + group.Name, UID: string(group.UID)}
	switch span.Stage {
	case v1alpha1.StageNodes, v1alpha1.StageEnded:
		return nil
	case v1alpha1.StageWaitingForMembers:
		c.Since = span.StageStartTime.Time
	default: // it has its nodes: it goes first
	}
	return c
}

// NeedsLook says whether only a look at the node's pods tells that a pod of the group's stage has no others beside it.
// Where it takes all of the node's GPUs, the scheduler finds a place only once they are free. A node's own run is
// looked for all the same: a pod that waits for its place holds one of run.maxParallelNodes.
func NeedsLook(m *decision.Member, spec *v1alpha1.CommGroupSpec) bool {
	return spec.Run.Nodes == v1alpha1.NodeUseIdle && m != nil && m.AllocatableGPUs > int64(spec.RanksPerNode)
}

// InTurn are at most so many of the names; each poll takes the ones that follow those of the poll before.
func InTurn(names []string, limit int, now time.Time) []string {
	limit = min(limit, len(names))
	if limit <= 0 {
		return nil
	}
	out := make([]string, 0, limit)
	first := int(now.Unix()/int64(BusyPoll/time.Second)) * limit % len(names)
	for i := range limit {
		out = append(out, names[(first+i)%len(names)])
	}
	return out
}
