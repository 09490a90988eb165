package spans

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Measurable gives the positions of the dimensions that are worth a task, slowest first: those of more than one rank.
func Measurable(mesh []v1alpha1.MeshDimension) []int {
	var positions []int
	for at := range mesh {
		if mesh[at].Size > 1 {
			positions = append(positions, at)
		}
	}
	return positions
}

// CheckMesh says whether the mesh covers exactly so many ranks. The error says what does not fit, and what would.
func CheckMesh(mesh []v1alpha1.MeshDimension, world int) error {
	if len(mesh) == 0 {
		return fmt.Errorf("mesh: no dimension, want at least one, for example dp: %d", world)
	}
	product := int64(1)
	for at := range mesh {
		dimension := &mesh[at]
		if dimension.Name == "" || dimension.Size < 1 {
			return fmt.Errorf("mesh: dimension %d is %q of size %d, want a name and a size of at least 1",
				at+1, dimension.Name, dimension.Size)
		}
		if dimension.Name == NameGroup {
			return fmt.Errorf("mesh: dimension %d is called %s, as the communicator over all members is: "+
				"give it another name", at+1, NameGroup)
		}
		if slices.ContainsFunc(mesh[:at], func(other v1alpha1.MeshDimension) bool {
			return other.Name == dimension.Name
		}) {
			return fmt.Errorf("mesh: dimension %s comes twice, want names that differ", dimension.Name)
		}
		if product *= int64(dimension.Size); product > 1<<40 {
			return fmt.Errorf("mesh: %s has more than %d ranks, and the members have %d",
				describe(mesh), int64(1)<<40, world)
		}
	}
	if product == int64(world) {
		return nil
	}
	return fmt.Errorf("mesh: %s is %d ranks, and the members that are present have %d; %s",
		describe(mesh), product, world, fitting(mesh, product, world))
}

// fitting says which single size, changed, makes the mesh fit.
func fitting(mesh []v1alpha1.MeshDimension, product int64, world int) string {
	var fits []string
	for at := range mesh {
		rest := product / int64(mesh[at].Size)
		if world > 0 && int64(world)%rest == 0 {
			fits = append(fits, fmt.Sprintf("%s: %d", mesh[at].Name, int64(world)/rest))
		}
	}
	if len(fits) == 0 {
		return fmt.Sprintf("no single size makes it fit: choose sizes whose product is %d", world)
	}
	return "it would fit with " + strings.Join(fits, ", or with ")
}

func describe(mesh []v1alpha1.MeshDimension) string {
	texts := make([]string, 0, len(mesh))
	for at := range mesh {
		texts = append(texts, mesh[at].Name+": "+strconv.Itoa(int(mesh[at].Size)))
	}
	return strings.Join(texts, ", ")
}

// Mesh gives the communicators along one dimension of the mesh: those ranks that differ in that dimension's coordinate
// only. Dimensions are slowest first, so the last one's neighbours are neighbours in rank order, as torch's
// init_device_mesh has it. A communicator's name is dimension/K, counted by its lowest rank; a rank's number in it is
// its coordinate. Every member gets a share, also where the communicators stay inside nodes. It refuses a mesh that
// does not cover the members' ranks exactly, and a dimension of one rank, in which there is nothing to measure.
func Mesh(members []Member, mesh []v1alpha1.MeshDimension, dimension int) ([]Part, error) {
	world, err := check(members)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	if err := CheckMesh(mesh, world); err != nil {
		return nil, err
	}
	if dimension < 0 || dimension >= len(mesh) {
		return nil, fmt.Errorf("mesh: no dimension at position %d of %s", dimension, describe(mesh))
	}
	size := int(mesh[dimension].Size)
	if size == 1 {
		return nil, fmt.Errorf("mesh: dimension %s has one rank, and nothing to measure", mesh[dimension].Name)
	}
	name := mesh[dimension].Name
	if length := len(name) + 1 + len(strconv.Itoa(world)); length > maxNameLength {
		return nil, fmt.Errorf("mesh: dimension %.80s has too long a name", name)
	}
	stride := strideOf(mesh, dimension)
	nodes := make([]int32, world/size)        // of each communicator
	numbers := make([][]int, 0, len(members)) // of each member's communicators, in their order
	parts := make([]Part, 0, len(members))
	rank := 0
	for _, member := range members {
		part := Part{Index: member.Index}
		var own []int
		for device := range int32(member.Ranks) {
			number, coordinate := placeOf(rank, stride, size)
			place := slices.Index(own, number)
			if place < 0 {
				place = len(own)
				own = append(own, number)
				nodes[number]++
				part.Communicators = append(part.Communicators,
					v1alpha1.TaskCommunicator{Name: name + "/" + strconv.Itoa(number), WorldSize: int32(size)})
			}
			communicator := &part.Communicators[place]
			communicator.Devices = append(communicator.Devices, device)
			communicator.Ranks = append(communicator.Ranks, int32(coordinate))
			rank++
		}
		parts, numbers = append(parts, part), append(numbers, own)
	}
	for at, own := range numbers {
		for place, number := range own {
			parts[at].Communicators[place].Nodes = nodes[number]
		}
	}
	return parts, nil
}

// strideOf a dimension is how far apart in rank order the ranks of one of its communicators are.
func strideOf(mesh []v1alpha1.MeshDimension, dimension int) int {
	stride := 1
	for at := dimension + 1; at < len(mesh); at++ {
		stride *= int(mesh[at].Size)
	}
	return stride
}

// placeOf a rank is the number of its communicator, and its own number in it.
func placeOf(rank, stride, size int) (number, coordinate int) {
	return rank/(stride*size)*stride + rank%stride, rank / stride % size
}

// NodeCommunicators is how many communicators of a dimension the ranks of the first node are in, and so those of each
// node whose ranks begin at a multiple of the dimension's.
func NodeCommunicators(mesh []v1alpha1.MeshDimension, dimension, ranks int) int {
	var own []int
	for rank := range ranks {
		if number, _ := placeOf(rank, strideOf(mesh, dimension),
			int(mesh[dimension].Size)); !slices.Contains(own, number) {
			own = append(own, number)
		}
	}
	return len(own)
}

// CheckParts says whether each member's share fits its CommTask.
func CheckParts(parts []Part) error {
	for at := range parts {
		if n := len(parts[at].Communicators); n > MaxNodeCommunicators {
			return TooMany(n)
		}
	}
	return nil
}

// TooMany says that a node would be in so many communicators at once, and what to do.
func TooMany(communicators int) error {
	return fmt.Errorf("a node's ranks are in %d of its communicators, and at most %d fit a CommTask; "+
		"take the dimension out of mesh, or lower ranksPerNode", communicators, MaxNodeCommunicators)
}
