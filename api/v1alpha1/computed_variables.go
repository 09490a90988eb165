package v1alpha1

import "slices"

// ComputedVariables are those that the agent gives each node, process or communicator a value of its own of. One value
// for all would be wrong: ranks of two nodes with one NCCL_HOSTID take themselves for one host's. spec.runtime.env
// refuses them; in an object from before that rule they have no effect.
func ComputedVariables() []string {
	return []string{
		"NCCL_COMM_ID",    // where the ranks of a communicator meet
		"NCCL_DEBUG_FILE", // none: the agent reads what ranks write
		"NCCL_HOSTID",     // the node's name
		"NCCL_RAS_ADDR",   // a port of the communicator's own (docs/decisions/0008)
	}
}

// computedFrom are variables that the agent computes from a field of spec.network where that is set. Where it is not, a
// person's own variable holds.
func computedFrom(n *NetworkSpec) []string {
	var out []string
	if n.Interface != nil {
		out = append(out, "NCCL_SOCKET_IFNAME")
	}
	if n.AddressFamily != "" && n.AddressFamily != AddressFamilyAuto {
		out = append(out, "NCCL_SOCKET_FAMILY")
	}
	if len(n.HCAs) > 0 {
		out = append(out, "NCCL_IB_HCA")
	}
	if n.GIDIndex != nil {
		out = append(out, "NCCL_IB_GID_INDEX")
	}
	return out
}

// Computes says whether the agent computes the variable, whatever runtime.env says of it.
func (s *CommGroupSpec) Computes(name string) bool {
	return slices.Contains(ComputedVariables(), name) || slices.Contains(computedFrom(&s.Network), name)
}

// OwnVariables are those of runtime.env that hold.
func (s *CommGroupSpec) OwnVariables() []EnvVar {
	return slices.DeleteFunc(slices.Clone(s.Runtime.Env), func(e EnvVar) bool { return s.Computes(e.Name) })
}

// WithoutComputed is for agents, which may be of another release than the manager.
func WithoutComputed(env []EnvVar) []EnvVar {
	return slices.DeleteFunc(slices.Clone(env), func(e EnvVar) bool {
		return slices.Contains(ComputedVariables(), e.Name)
	})
}
