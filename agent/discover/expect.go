package discover

import (
	"fmt"
	"strings"
)

// expectation is how many GPUs a node should have, and how sure that is.
type expectation struct {
	gpus int
	// evident: a user, the driver's own list of the hive or the GPUs that are here say so, not only what servers of
	// this model usually have.
	evident bool
	// counted: it follows from the GPUs that are here alone.
	counted bool
	source  string
}

func expectGPUs(f *Facts, asked int) expectation {
	if asked > 0 {
		return expectation{gpus: asked, evident: true, source: "asked for"}
	}
	here := len(f.GPUs)
	e := usualGPUs(f)
	if n, why := wholeGPUs(f); n > here {
		e = expectation{gpus: n, evident: true, counted: true, source: why}
	}
	if n := hiveMembers(f); n >= e.gpus && n > here {
		source := "that the driver lists in its hives"
		if absent := f.hiveOrder.absentMembers(f.GPUs); len(absent) > 0 {
			source += fmt.Sprintf(" (it has %s, too)", strings.Join(absent[:min(len(absent), 4)], ", "))
		}
		e = expectation{gpus: n, evident: true, source: source}
	}
	return e
}

// usualGPUs is what servers of the model have. Cards, packages of two dies and what a hypervisor gives to a guest come
// as one, two, four or eight; above that nothing is usual.
func usualGPUs(f *Facts) expectation {
	var e expectation
	for i := range f.GPUs {
		if n := f.GPUs[i].model.PlatformGPUs; n > e.gpus {
			e = expectation{gpus: n, source: "that a server of this model has"}
		}
	}
	if e.gpus > 0 || len(f.GPUs) == 0 || f.Model == Mixed || !f.GPUs[0].model.known {
		return e
	}
	dies, what := 1, ""
	if f.GPUs[0].model.TwoDies {
		dies, what = 2, " packages"
	}
	for _, usual := range []int{1, 2, 4, 8} {
		if n := usual * dies; n >= len(f.GPUs) {
			return expectation{gpus: n,
				source: fmt.Sprintf("that a node with so many of this model usually has (1, 2, 4 or 8%s)", what)}
		}
	}
	return e
}

// wholeGPUs is how many GPUs there must be by those that are here: the dies of a package come in twos, and a bridge
// joins two or four cards (MI100 and MI210 data sheets), so that a hive of three lacks one. The fourth card may also be
// one that its bridge does not reach. A hypervisor may give any of them to a guest.
func wholeGPUs(f *Facts) (gpus int, why string) {
	here, dies, apart, threes := len(f.GPUs), 0, 0, 0
	for i := range f.GPUs {
		g := &f.GPUs[i]
		switch {
		case g.model.VF:
			return 0, ""
		case g.model.TwoDies:
			dies++
		case g.HiveID == nil || *g.HiveID == 0:
			apart++
		}
	}
	if dies%2 == 1 {
		return here + 1, "that make whole packages of two"
	}
	for _, members := range hives(f.GPUs) {
		switch {
		case len(members) == 1:
			apart++
		case len(members) == 3 && f.GPUs[members[0]].model.Fabric == fabricBridge:
			threes++
		}
	}
	if here == 4 || here == 8 {
		return here, "" // no card is missing; the bridges are as they are
	}
	return here + max(0, threes-apart), "that make whole hives of two or four cards"
}

// hiveMembers counts the GPUs that there should be by the driver's own lists of the hives. A model with one hive has as
// many as its longest list; of the others, each hive has its own.
func hiveMembers(f *Facts) int {
	total, longest, unknown := len(f.GPUs), 0, 0
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if g.HiveID == nil {
			unknown++ // it may be one that a list has and its hive lacks
		}
		if g.HiveNodes != nil && (g.model.Fabric == fabricMesh || g.model.Fabric == fabricHops) {
			longest = max(longest, *g.HiveNodes)
		}
	}
	if longest > 0 {
		return longest
	}
	lacking := 0
	for _, members := range hives(f.GPUs) {
		listed := 0
		for _, i := range members {
			if n := f.GPUs[i].HiveNodes; n != nil {
				listed = max(listed, *n)
			}
		}
		lacking += max(0, listed-len(members))
	}
	return total + max(0, lacking-unknown)
}
