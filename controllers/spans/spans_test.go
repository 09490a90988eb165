package spans

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// text of the shares, one line a member: name[devices]=ranks/world over nodes.
func text(parts []Part) string {
	var lines []string
	for _, part := range parts {
		line := fmt.Sprintf("%d:", part.Index)
		for _, c := range part.Communicators {
			line += fmt.Sprintf(" %s%v=%v/%d over %d", c.Name, c.Devices, c.Ranks, c.WorldSize, c.Nodes)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func mesh(sizes ...any) []v1alpha1.MeshDimension {
	var dimensions []v1alpha1.MeshDimension
	for at := 0; at < len(sizes); at += 2 {
		dimensions = append(dimensions,
			v1alpha1.MeshDimension{Name: sizes[at].(string), Size: int32(sizes[at+1].(int))})
	}
	return dimensions
}

func nodes(ranks int, indexes ...int) []Member {
	var members []Member
	for _, index := range indexes {
		members = append(members, Member{Index: index, Ranks: ranks})
	}
	return members
}

func TestLayouts(t *testing.T) {
	for name, c := range map[string]struct {
		parts func() ([]Part, error)
		want  string
	}{
		"group": {
			func() ([]Part, error) { return Group(nodes(2, 0, 1)) },
			"0: group[0 1]=[0 1]/4 over 2\n1: group[0 1]=[2 3]/4 over 2",
		},
		"group with a gap and nodes of other sizes": {
			func() ([]Part, error) { return Group([]Member{{1, 1}, {4, 3}, {9, 2}}) },
			"1: group[0]=[0]/6 over 3\n4: group[0 1 2]=[1 2 3]/6 over 3\n9: group[0 1]=[4 5]/6 over 3",
		},
		"rails of two": {
			func() ([]Part, error) { return Rails(nodes(2, 3, 7)) },
			"3: rail/0[0]=[0]/2 over 2 rail/1[1]=[0]/2 over 2\n7: rail/0[0]=[1]/2 over 2 rail/1[1]=[1]/2 over 2",
		},
		"a rail that two of three have": {
			func() ([]Part, error) { return Rails([]Member{{0, 2}, {1, 1}, {2, 3}}) },
			"0: rail/0[0]=[0]/3 over 3 rail/1[1]=[0]/2 over 2\n1: rail/0[0]=[1]/3 over 3\n" +
				"2: rail/0[0]=[2]/3 over 3 rail/1[1]=[1]/2 over 2",
		},
		"dp of dp 2, tp 4": {
			func() ([]Part, error) { return Mesh(nodes(4, 0, 1), mesh("dp", 2, "tp", 4), 0) },
			"0: dp/0[0]=[0]/2 over 2 dp/1[1]=[0]/2 over 2 dp/2[2]=[0]/2 over 2 dp/3[3]=[0]/2 over 2\n" +
				"1: dp/0[0]=[1]/2 over 2 dp/1[1]=[1]/2 over 2 dp/2[2]=[1]/2 over 2 dp/3[3]=[1]/2 over 2",
		},
		"tp inside nodes": {
			func() ([]Part, error) { return Mesh(nodes(4, 0, 1), mesh("dp", 2, "tp", 4), 1) },
			"0: tp/0[0 1 2 3]=[0 1 2 3]/4 over 1\n1: tp/1[0 1 2 3]=[0 1 2 3]/4 over 1",
		},
		"tp of half a node": {
			func() ([]Part, error) { return Mesh(nodes(4, 0, 1), mesh("dp", 4, "tp", 2), 1) },
			"0: tp/0[0 1]=[0 1]/2 over 1 tp/1[2 3]=[0 1]/2 over 1\n" +
				"1: tp/2[0 1]=[0 1]/2 over 1 tp/3[2 3]=[0 1]/2 over 1",
		},
		"dp with two of its ranks on a node": {
			func() ([]Part, error) { return Mesh(nodes(4, 0, 1), mesh("dp", 4, "tp", 2), 0) },
			"0: dp/0[0 2]=[0 1]/4 over 2 dp/1[1 3]=[0 1]/4 over 2\n" +
				"1: dp/0[0 2]=[2 3]/4 over 2 dp/1[1 3]=[2 3]/4 over 2",
		},
		"tp over two nodes": {
			func() ([]Part, error) { return Mesh(nodes(2, 0, 1, 5, 6), mesh("dp", 2, "tp", 4), 1) },
			"0: tp/0[0 1]=[0 1]/4 over 2\n1: tp/0[0 1]=[2 3]/4 over 2\n5: tp/1[0 1]=[0 1]/4 over 2\n" +
				"6: tp/1[0 1]=[2 3]/4 over 2",
		},
		"tp that straddles nodes": {
			func() ([]Part, error) { return Mesh(nodes(3, 0, 1), mesh("dp", 3, "tp", 2), 1) },
			"0: tp/0[0 1]=[0 1]/2 over 1 tp/1[2]=[0]/2 over 2\n1: tp/1[0]=[1]/2 over 2 tp/2[1 2]=[0 1]/2 over 1",
		},
		"the middle one of three": {
			func() ([]Part, error) { return Mesh(nodes(4, 0, 1), mesh("dp", 2, "pp", 2, "tp", 2), 1) },
			"0: pp/0[0 2]=[0 1]/2 over 1 pp/1[1 3]=[0 1]/2 over 1\n" +
				"1: pp/2[0 2]=[0 1]/2 over 1 pp/3[1 3]=[0 1]/2 over 1",
		},
	} {
		parts, err := c.parts()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := text(parts); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	fourNodes := nodes(8, 0, 1, 2, 3)
	for name, c := range map[string]struct {
		parts func() ([]Part, error)
		words []string
	}{
		"group of one":  {func() ([]Part, error) { return Group(nodes(8, 0)) }, []string{"1 member", "at least 2"}},
		"group of none": {func() ([]Part, error) { return Group(nil) }, []string{"at least 2"}},
		"out of order": {func() ([]Part, error) { return Group(nodes(8, 1, 0)) },
			[]string{"member 0 comes after member 1"}},
		"twice": {func() ([]Part, error) { return Rails(nodes(8, 1, 1)) },
			[]string{"member 1 comes after member 1"}},
		"no ranks":       {func() ([]Part, error) { return Group(nodes(0, 0, 1)) }, []string{"0 ranks", "1 to 64"}},
		"too many ranks": {func() ([]Part, error) { return Rails(nodes(65, 0, 1)) }, []string{"65 ranks", "1 to 64"}},
		"rails of one":   {func() ([]Part, error) { return Rails(nodes(8, 0)) }, []string{"at least 2"}},
		"product too large": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 16, "tp", 8), 0) },
			[]string{"dp: 16, tp: 8 is 128 ranks", "have 32", "dp: 4"}},
		"product too small": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 2, "tp", 8), 0) },
			[]string{"16 ranks", "have 32", "dp: 4", "tp: 16"}},
		"nothing fits": {func() ([]Part, error) { return Mesh(nodes(8, 0), mesh("dp", 3, "tp", 5), 0) },
			[]string{"no single size", "product is 8"}},
		"no such dimension": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 4, "tp", 8), 2) },
			[]string{"position 2"}},
		"one rank": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 1, "tp", 32), 0) },
			[]string{"dp has one rank"}},
		"no dimension": {func() ([]Part, error) { return Mesh(fourNodes, nil, 0) },
			[]string{"no dimension", "dp: 32"}},
		"name twice": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 4, "dp", 8), 0) },
			[]string{"dp comes twice"}},
		"name of the group": {func() ([]Part, error) { return Mesh(fourNodes, mesh("group", 4, "tp", 8), 1) },
			[]string{"is called group", "another name"}},
		"size zero": {func() ([]Part, error) { return Mesh(fourNodes, mesh("dp", 0, "tp", 8), 0) },
			[]string{"size 0"}},
		"no name": {func() ([]Part, error) { return Mesh(fourNodes, mesh("", 4, "tp", 8), 0) },
			[]string{"want a name"}},
		"overflow": {func() ([]Part, error) {
			return Mesh(fourNodes, mesh("a", 1<<20, "b", 1<<20, "c", 1<<20, "d", 16), 0)
		}, []string{"more than"}},
	} {
		parts, err := c.parts()
		if err == nil {
			t.Errorf("%s: got\n%s\nwant an error", name, text(parts))
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", name, err, word)
			}
		}
	}
}

// Every rank is in exactly one communicator; each communicator has ranks 0 to n-1 once, on ascending ranks of the
// group, reaches over as many nodes as it says, and follows the mesh: its ranks differ in one coordinate only.
func TestMeshHoldsForAnySizes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		dimensions := mesh("a", 1+random.IntN(6), "b", 1+random.IntN(6), "c", 1+random.IntN(6))[:1+random.IntN(3)]
		world := 1
		for _, dimension := range dimensions {
			world *= int(dimension.Size)
		}
		var members []Member
		for index, left := 0, world; left > 0; index += 1 + random.IntN(3) {
			ranks := min(left, 1+random.IntN(8))
			members = append(members, Member{Index: index, Ranks: ranks})
			left -= ranks
		}
		for _, at := range Measurable(dimensions) {
			parts, err := Mesh(members, dimensions, at)
			if err != nil {
				t.Fatalf("%v over %v: %v", dimensions, members, err)
			}
			checkMesh(t, members, dimensions, at, parts)
		}
	}
}

func checkMesh(t *testing.T, members []Member, dimensions []v1alpha1.MeshDimension, at int, parts []Part) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Fatalf("dimension %d of %v over %v: %s\n%s",
			at, dimensions, members, fmt.Sprintf(format, args...), text(parts))
	}
	if len(parts) != len(members) {
		fail("%d shares", len(parts))
	}
	worldRanks, reach, sizes := map[string][]int{}, map[string]int32{}, map[string]v1alpha1.TaskCommunicator{}
	first, total := 0, 0
	for number, member := range members {
		seen := make([]bool, member.Ranks)
		if parts[number].Index != member.Index || len(parts[number].Communicators) > maxNodeRanks {
			fail("share %d", number)
		}
		for _, c := range parts[number].Communicators {
			if len(c.Devices) != len(c.Ranks) || len(c.Devices) == 0 || !slices.IsSorted(c.Devices) {
				fail("%s on member %d", c.Name, member.Index)
			}
			reach[c.Name]++
			sizes[c.Name] = c
			for place, device := range c.Devices {
				if seen[device] {
					fail("device %d of member %d is in two", device, member.Index)
				}
				seen[device] = true
				if int(c.Ranks[place]) != len(worldRanks[c.Name]) {
					fail("%s has rank %d next", c.Name, c.Ranks[place])
				}
				worldRanks[c.Name] = append(worldRanks[c.Name], first+int(device))
				total++
			}
		}
		first += member.Ranks
	}
	if total != first {
		fail("%d of %d ranks", total, first)
	}
	for name, ranks := range worldRanks {
		if len(ranks) != int(dimensions[at].Size) || int32(len(ranks)) != sizes[name].WorldSize ||
			reach[name] != sizes[name].Nodes {
			fail("%s has %d ranks over %d nodes", name, len(ranks), reach[name])
		}
		for number, rank := range ranks {
			here, lowest := coordinates(rank, dimensions), coordinates(ranks[0], dimensions)
			if here[at] != number {
				fail("%s has rank %d at coordinate %d", name, number, here[at])
			}
			here[at], lowest[at] = 0, 0
			if !slices.Equal(here, lowest) {
				fail("%s mixes coordinates", name)
			}
		}
	}
}

func coordinates(rank int, dimensions []v1alpha1.MeshDimension) []int {
	at := make([]int, len(dimensions))
	for dimension := len(dimensions) - 1; dimension >= 0; dimension-- {
		at[dimension] = rank % int(dimensions[dimension].Size)
		rank /= int(dimensions[dimension].Size)
	}
	return at
}

func TestRoots(t *testing.T) {
	parts, err := Mesh(nodes(3, 0, 1), mesh("dp", 3, "tp", 2), 1)
	if err != nil {
		t.Fatal(err)
	}
	// Member 0 has rank 0 of both of its communicators; member 1 waits for tp/1's id, and makes that of tp/2.
	if !parts[0].HasRoot() || IsRoot(&parts[1].Communicators[0]) || !parts[1].HasRoot() {
		t.Errorf("got %s", text(parts))
	}
	if parts, err = Group(nodes(8, 0, 1)); err != nil || !parts[0].HasRoot() || parts[1].HasRoot() {
		t.Errorf("got %s, %v", text(parts), err)
	}
}

// TestCommunicatorsOfANode: counted for the first node as Mesh lays them out, and refused where a CommTask does not
// hold them.
func TestCommunicatorsOfANode(t *testing.T) {
	for _, c := range []struct {
		dimensions []v1alpha1.MeshDimension
		at, ranks  int
		want       int
		fits       bool
	}{
		{mesh("dp", 4, "tp", 8), 0, 8, 8, true},
		{mesh("dp", 4, "tp", 8), 1, 8, 1, true},
		{mesh("dp", 4, "tp", 16), 0, 16, 16, true},
		{mesh("dp", 4, "tp", 64), 0, 64, 64, false},
		{mesh("dp", 4, "tp", 64), 1, 64, 1, true},
		{mesh("dp", 64, "tp", 4), 1, 64, 16, true},
		{mesh("dp", 128, "tp", 2), 1, 64, 32, false},
		{mesh("dp", 2, "pp", 8, "tp", 16), 1, 64, 16, true},
	} {
		world := 1
		for _, d := range c.dimensions {
			world *= int(d.Size)
		}
		var indexes []int
		for index := range world / c.ranks {
			indexes = append(indexes, index)
		}
		parts, err := Mesh(nodes(c.ranks, indexes...), c.dimensions, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := NodeCommunicators(c.dimensions, c.at, c.ranks); got != c.want ||
			len(parts[0].Communicators) != c.want {
			t.Errorf("%v at %d: %d counted, %d laid out, want %d",
				c.dimensions, c.at, got, len(parts[0].Communicators), c.want)
		}
		if err := CheckParts(parts); (err == nil) != c.fits ||
			err != nil && !strings.Contains(err.Error(), fmt.Sprintf("in %d of its communicators", c.want)) {
			t.Errorf("%v at %d: %v", c.dimensions, c.at, err)
		}
	}
}

func TestMeasurable(t *testing.T) {
	if got := Measurable(mesh("dp", 4, "pp", 1, "tp", 2)); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestGroupOfManyIsWithinBounds(t *testing.T) {
	var members []Member
	for index := range 12500 {
		members = append(members, Member{Index: index, Ranks: 8})
	}
	parts, err := Group(members)
	if err != nil || len(parts) != 12500 {
		t.Fatal(len(parts), err)
	}
	last := parts[12499].Communicators[0]
	if last.WorldSize != 100_000 || last.Ranks[7] != 99_999 {
		t.Errorf("got %v", last)
	}
	parts, err = Mesh(members, mesh("dp", 12500, "tp", 8), 0)
	if err != nil || parts[12499].Communicators[7].Ranks[0] != 12_499 {
		t.Error(err)
	}
	for index := range 16384 {
		members = append(members, Member{Index: 12500 + index, Ranks: maxNodeRanks})
	}
	if _, err = Group(members); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("got %v", err)
	}
}
