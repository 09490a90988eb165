package membership

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/internal/explain"
)

// Select returns the group's nodes in rank order: by region and zone, then by name, so that neighbours in the
// network are neighbours in rank.
func Select(spec *v1alpha1.CommGroupSpec, nodes []corev1.Node) ([]decision.Member, error) {
	selector := labels.Nothing()
	if spec.Members.NodeSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(spec.Members.NodeSelector)
		if err != nil {
			return nil, fmt.Errorf("members.nodeSelector: %w", err)
		}
		selector = s
	}
	named := make(map[string]bool, len(spec.Members.NodeNames))
	for _, name := range spec.Members.NodeNames {
		named[name] = true
	}
	excluded := make(map[string]bool, len(spec.Members.Exclude))
	for _, name := range spec.Members.Exclude {
		excluded[name] = true
	}
	var chosen []*corev1.Node
	for i := range nodes {
		node := &nodes[i]
		if excluded[node.Name] || !node.DeletionTimestamp.IsZero() {
			continue
		}
		if named[node.Name] || selector.Matches(labels.Set(node.Labels)) {
			chosen = append(chosen, node)
		}
	}
	slices.SortFunc(chosen, func(a, b *corev1.Node) int {
		return cmp.Or(
			strings.Compare(a.Labels[corev1.LabelTopologyRegion], b.Labels[corev1.LabelTopologyRegion]),
			strings.Compare(a.Labels[corev1.LabelTopologyZone], b.Labels[corev1.LabelTopologyZone]),
			strings.Compare(a.Name, b.Name),
		)
	})
	if limit := spec.Members.MaxMembers; limit != nil && len(chosen) > int(*limit) {
		chosen = chosen[:*limit]
	}
	resource := corev1.ResourceName(objects.GPUResource(spec))
	members := make([]decision.Member, len(chosen))
	world := int32(len(chosen)) * spec.RanksPerNode
	for i, node := range chosen {
		gpus := node.Status.Allocatable[resource]
		members[i] = decision.Member{
			Name:            node.Name,
			UID:             string(node.UID),
			AllocatableGPUs: gpus.Value(),
			Ranks:           rankRange(int32(i), spec.RanksPerNode, world),
			Node:            node,
		}
	}
	return members, nil
}

func rankRange(index, count, world int32) v1alpha1.RankRange {
	first := index * count
	return v1alpha1.RankRange{
		Summary:   fmt.Sprintf("%d-%d/%d", first, first+count-1, world),
		First:     first,
		Count:     count,
		WorldSize: world,
	}
}

// Hash identifies a set of nodes in rank order. A node that was deleted and made again is another node.
func Hash(members []decision.Member) string {
	h := sha256.New()
	for _, m := range members {
		h.Write([]byte(m.Name))
		h.Write([]byte{0})
		h.Write([]byte(m.UID))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// WithoutGPUs names the members that cannot hold a run pod: too few allocatable GPUs.
func WithoutGPUs(members []decision.Member, ranksPerNode int32) []string {
	var names []string
	for _, m := range members {
		if m.AllocatableGPUs < int64(ranksPerNode) {
			names = append(names, m.Name)
		}
	}
	return names
}

// MostGPUs is how many allocatable GPUs the member with the most has.
func MostGPUs(members []decision.Member) int64 {
	var most int64
	for i := range members {
		most = max(most, members[i].AllocatableGPUs)
	}
	return most
}

// UnknownNames says which of members.nodeNames are no nodes, as a sentence to add; empty where all are. A name may
// stand there before its node joins, so that it is no error; but a mistyped one must not go unseen.
func UnknownNames(spec *v1alpha1.CommGroupSpec, nodes []corev1.Node) string {
	if len(spec.Members.NodeNames) == 0 {
		return ""
	}
	known := make(map[string]bool, len(nodes))
	for i := range nodes {
		known[nodes[i].Name] = true
	}
	var unknown []string
	for _, name := range spec.Members.NodeNames {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return " No node has the name " + explain.Names(unknown, 5) + " (members.nodeNames)."
}

// TaintRemark is a likely cause where a member has no GPU: a taint of gating, or of the sample's NodeReadinessRule,
// also keeps a device plugin away that does not tolerate it, and then no run can ever lift it.
func TaintRemark(members ...decision.Member) string {
	for i := range members {
		m := &members[i]
		if m.AllocatableGPUs > 0 || m.Node == nil {
			continue
		}
		for _, taint := range m.Node.Spec.Taints {
			if taint.Key == v1alpha1.TaintCommFailed || taint.Key == v1alpha1.TaintReadiness {
				return fmt.Sprintf(" Node %s has the taint %s: a device plugin that does "+
					"not tolerate it never starts there (docs/gating.md has what must).",
					m.Name, taint.Key)
			}
		}
	}
	return ""
}
