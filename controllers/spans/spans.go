// Package spans lays communicators over the ranks of a group's members: one over all, one for each rail, or those of
// one dimension of a device mesh. It is pure, and takes time in proportion to the number of ranks.
package spans

import (
	"fmt"
	"strconv"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Names and bounds of communicators.
const (
	// NameGroup of the communicator over all ranks.
	NameGroup = "group"
	// namePrefixRail and the device's ordinal name a rail.
	namePrefixRail = "rail"
	// maxNodeRanks is what the API lets a node have in one communicator.
	maxNodeRanks = 64
	// MaxNodeCommunicators is how many a node may be in at once: with more its task, its reports and their unique ids
	// would make its CommTask larger than 14 KiB.
	MaxNodeCommunicators = 16
	// maxNameLength is what the API lets a communicator's name have.
	maxNameLength = 63
)

// Member is a node of the group that takes part. Its devices are the ordinals from 0 up to Ranks.
type Member struct {
	// Index of the node; gaps are members that left.
	Index int
	// Ranks that the node gives.
	Ranks int
}

// Part is one member's share: the communicators that its ranks are in. No rank is in two of them.
type Part struct {
	Index         int
	Communicators []v1alpha1.TaskCommunicator
}

// IsRoot says whether the node whose share this is has rank 0 of the communicator, and so makes its unique id.
func IsRoot(communicator *v1alpha1.TaskCommunicator) bool {
	return len(communicator.Ranks) > 0 && communicator.Ranks[0] == 0
}

// HasRoot says whether the member has rank 0 of at least one of its communicators.
func (p *Part) HasRoot() bool {
	for at := range p.Communicators {
		if IsRoot(&p.Communicators[at]) {
			return true
		}
	}
	return false
}

// Group gives one communicator over all ranks of the members, which are in rank order: ranks follow the members' order,
// and within a node its devices'. It refuses fewer than two members, and members that are out of order or without
// ranks.
func Group(members []Member) ([]Part, error) {
	world, err := check(members)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	if len(members) < 2 {
		return nil,
			fmt.Errorf("group: %d member, want at least 2: one node alone is what span Node measures", len(members))
	}
	parts := make([]Part, 0, len(members))
	first := int32(0)
	for _, member := range members {
		communicator := v1alpha1.TaskCommunicator{Name: NameGroup, WorldSize: int32(world), Nodes: int32(len(members))}
		for device := range int32(member.Ranks) {
			communicator.Devices = append(communicator.Devices, device)
			communicator.Ranks = append(communicator.Ranks, first+device)
		}
		first += int32(member.Ranks)
		parts = append(parts, Part{Index: member.Index, Communicators: []v1alpha1.TaskCommunicator{communicator}})
	}
	return parts, nil
}

// Rails gives one communicator for each device ordinal, over the members that have that device; a rail that only one
// member has is left out. Ranks follow the members' order. It refuses fewer than two members, and what Group refuses of
// them.
func Rails(members []Member) ([]Part, error) {
	if _, err := check(members); err != nil {
		return nil, fmt.Errorf("rails: %w", err)
	}
	if len(members) < 2 {
		return nil,
			fmt.Errorf("rails: %d member, want at least 2: a rail joins the same device of several nodes", len(members))
	}
	parts := make([]Part, len(members))
	for at, member := range members {
		parts[at].Index = member.Index
	}
	for device := range maxNodeRanks {
		nodes := int32(0)
		for _, member := range members {
			if device < member.Ranks {
				nodes++
			}
		}
		if nodes < 2 {
			break
		}
		rank := int32(0)
		for at, member := range members {
			if device >= member.Ranks {
				continue
			}
			parts[at].Communicators = append(parts[at].Communicators, v1alpha1.TaskCommunicator{
				Name: namePrefixRail + "/" + strconv.Itoa(device), WorldSize: nodes, Nodes: nodes,
				Devices: []int32{int32(device)}, Ranks: []int32{rank},
			})
			rank++
		}
	}
	return parts, nil
}

// check the members and count their ranks.
func check(members []Member) (int, error) {
	const maxWorld = 1 << 20 // MeshDimension.size's bound, so that int32 holds every rank
	world := 0
	for at, member := range members {
		if at > 0 && member.Index <= members[at-1].Index {
			return 0, fmt.Errorf("member %d comes after member %d: want each once, in rank order",
				member.Index, members[at-1].Index)
		}
		if member.Ranks < 1 || member.Ranks > maxNodeRanks {
			return 0, fmt.Errorf("member %d has %d ranks, want 1 to %d", member.Index, member.Ranks, maxNodeRanks)
		}
		world += member.Ranks
	}
	if world > maxWorld {
		return 0, fmt.Errorf("%d ranks, want at most %d", world, maxWorld)
	}
	return world, nil
}
