package testkit

import (
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// Mesh gives a group dimensions, in pairs of name and size.
func Mesh(pairs ...any) func(*state.Group) {
	return func(g *state.Group) {
		for i := 0; i+1 < len(pairs); i += 2 {
			name, okName := pairs[i].(string)
			size, okSize := pairs[i+1].(int)
			if !okName || !okSize {
				panic(fmt.Sprint("mesh takes names and sizes, not ", pairs))
			}
			g.Spec.Mesh = append(g.Spec.Mesh, v1alpha1.MeshDimension{Name: name, Size: int32(size)})
		}
	}
}

// SpanGroup is a group of so many nodes with span Group.
func SpanGroup(nodes int, change func(*state.Group)) *state.Group {
	group := Group()
	group.Spec.Span = v1alpha1.SpanGroup
	group.Spec.Run.MaxParallelNodes = int32(max(16, nodes))
	group.Spec.Run.MembersDeadlineSeconds = 600
	group.Spec.Localization = v1alpha1.LocalizationSpec{Mode: v1alpha1.LocalizationAuto, DeadlineSeconds: 1800}
	group.Spec.Network = v1alpha1.NetworkSpec{Mode: v1alpha1.NetworkPod, AddressFamily: v1alpha1.AddressFamilyAuto,
		RequireTransport: v1alpha1.TransportAny}
	group.Spec.Benchmark.References = v1alpha1.JudgingEnforce
	if change != nil {
		change(group)
	}
	return group
}
