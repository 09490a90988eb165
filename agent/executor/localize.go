package executor

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
)

// Probe is one communicator that the search for a culprit ran over some of the node's GPUs, and what became of it.
type Probe struct {
	Round int
	// GPUs by ordinal, ascending.
	GPUs []int
	Bad  bool
	// Saw says what was seen where Bad, for messages.
	Saw string
}

// MaxRounds bounds the search: one round of pairs, one for the GPU that an odd number leaves over, one for each bit of a
// GPU's ordinal to find a link that the first pairs did not touch, and one to confirm it. Five for eight GPUs; a single
// GPU at fault takes two.
func MaxRounds(gpus int) int { return 2 + gpus&1 + bits.Len(uint(max(gpus-1, 1))) }

// NextRound plans the next round of the search for what hangs or corrupts: disjoint groups of GPUs, which run at the
// same time, each in a communicator of its own. It returns nothing where more rounds cannot tell more.
//
// First all GPUs in pairs. A pair that fails holds a faulty GPU or link: each of its GPUs meets one that is known to be
// good. Where no pair fails, no single GPU is at fault, and links remain: groups that the bits of the GPUs' ordinals
// split halve the candidates, until these are disjoint and can be run as pairs.
func NextRound(gpus int, probes []Probe) [][]int {
	if gpus < 2 {
		return nil
	}
	if len(probes) == 0 {
		var round [][]int
		for g := 0; g+1 < gpus; g += 2 {
			round = append(round, []int{g, g + 1})
		}
		return round
	}
	if gpus == 3 {
		return nextOfThree(probes)
	}
	good := goodGPUs(gpus, probes)
	if round := retest(gpus, probes, good); len(round) > 0 {
		return round
	}
	if anyBad(probes) && !onlyGroupsBad(probes) {
		return nil // GPUs or links are already told apart, or nothing good is left to compare with
	}
	return halve(linkCandidates(gpus, probes))
}

// nextOfThree runs each of the three pairs in turn: there are no two that are disjoint.
func nextOfThree(probes []Probe) [][]int {
	for _, p := range []Pair{{0, 2}, {1, 2}} {
		if !tested(p, probes) {
			return [][]int{{p.A, p.B}}
		}
	}
	return nil
}

// goodGPUs are those of at least one communicator that worked.
func goodGPUs(gpus int, probes []Probe) []bool {
	good := make([]bool, gpus)
	for _, p := range probes {
		if !p.Bad {
			for _, g := range p.GPUs {
				good[g] = true
			}
		}
	}
	return good
}

// retest pairs each GPU of which nothing is decided with one that is known to be good. Decided are the good ones and
// those that failed with two partners, one of them good: with one partner it can still be the link.
func retest(gpus int, probes []Probe, good []bool) [][]int {
	var partners []int
	for g := range gpus {
		if good[g] {
			partners = append(partners, g)
		}
	}
	used := map[int]bool{}
	var round [][]int
	for g := range gpus {
		if good[g] || failedBesideGood(g, probes, good) {
			continue
		}
		for _, partner := range partners {
			if !used[partner] && !tested(pairOf(g, partner), probes) {
				used[partner] = true
				pair := pairOf(g, partner)
				round = append(round, []int{pair.A, pair.B})
				break
			}
		}
	}
	return round
}

func failedBesideGood(g int, probes []Probe, good []bool) bool {
	partners, goodPartner := map[int]bool{}, false
	for _, p := range probes {
		if !p.Bad || len(p.GPUs) != 2 || !slices.Contains(p.GPUs, g) {
			continue
		}
		other := p.GPUs[0] + p.GPUs[1] - g
		partners[other] = true
		goodPartner = goodPartner || good[other]
	}
	return goodPartner && len(partners) >= 2
}

func tested(pair Pair, probes []Probe) bool {
	return slices.ContainsFunc(probes, func(p Probe) bool {
		return len(p.GPUs) == 2 && p.GPUs[0] == pair.A && p.GPUs[1] == pair.B
	})
}

func anyBad(probes []Probe) bool {
	return slices.ContainsFunc(probes, func(p Probe) bool { return p.Bad })
}

// onlyGroupsBad says whether communicators of more than two GPUs failed, but no pair.
func onlyGroupsBad(probes []Probe) bool {
	return anyBad(probes) && !slices.ContainsFunc(probes, func(p Probe) bool { return p.Bad && len(p.GPUs) == 2 })
}

// linkCandidates are the links that can be at fault where a single one is: in no communicator that worked, and in each
// one that failed.
func linkCandidates(gpus int, probes []Probe) []Pair {
	var out []Pair
	for a := range gpus {
		for b := a + 1; b < gpus; b++ {
			fits := !slices.ContainsFunc(probes, func(p Probe) bool {
				inside := slices.Contains(p.GPUs, a) && slices.Contains(p.GPUs, b)
				return inside != p.Bad
			})
			if fits {
				out = append(out, Pair{a, b})
			}
		}
	}
	return out
}

// halve plans the groups that leave the fewest candidates in the worst case.
func halve(candidates []Pair) [][]int {
	if len(candidates) == 0 {
		return nil
	}
	seen := map[int]bool{}
	disjoint := true
	for _, c := range candidates {
		disjoint = disjoint && !seen[c.A] && !seen[c.B]
		seen[c.A], seen[c.B] = true, true
	}
	if disjoint {
		round := make([][]int, 0, len(candidates))
		for _, c := range candidates {
			round = append(round, []int{c.A, c.B})
		}
		return round
	}
	members := make([]int, 0, len(seen))
	for g := range seen {
		members = append(members, g)
	}
	slices.Sort(members)
	var best [][]int
	bestWorst := len(candidates)
	for bit := 0; 1<<bit <= members[len(members)-1]; bit++ {
		var halves [2][]int
		for _, g := range members {
			halves[g>>bit&1] = append(halves[g>>bit&1], g)
		}
		var inside [2]int
		for _, c := range candidates {
			if c.A>>bit&1 == c.B>>bit&1 {
				inside[c.A>>bit&1]++
			}
		}
		worst := max(inside[0], inside[1], len(candidates)-inside[0]-inside[1])
		if worst >= bestWorst {
			continue
		}
		best, bestWorst = nil, worst
		for side, half := range halves {
			if inside[side] > 0 {
				best = append(best, half)
			}
		}
	}
	return best
}

// Finding is what the search for a culprit found.
type Finding struct {
	// GPUs and Links at fault; both empty where the search was inconclusive.
	GPUs  []int
	Links []Pair
	// Suspects are the links or GPUs that remain where nothing is certain.
	Suspects string
	// Why says in one sentence how the conclusion was reached.
	Why string
	// Evidence by GPU or link: what the probes saw.
	Evidence map[string]string
}

// manyGPUs at fault that are also half of the node's or more are none of them the cause.
const manyGPUs = 3

// Conclude reads the probes: a GPU is at fault that fails beside a good one, a link whose ends are good each with others
// but fail together.
func Conclude(gpus int, probes []Probe) Finding {
	good := goodGPUs(gpus, probes)
	f := Finding{Evidence: map[string]string{}}
	gpuBad := map[int]bool{}
	for g := range gpus {
		if !good[g] && failedBesideGood(g, probes, good) {
			gpuBad[g] = true
			f.GPUs = append(f.GPUs, g)
			f.Evidence[fmt.Sprint(g)] = evidence(probes, func(p Probe) bool { return slices.Contains(p.GPUs, g) })
		}
	}
	// Not so many GPUs break at once: what they share is at fault, and to take all of them away would mend nothing.
	shared := f.GPUs
	if len(shared) < manyGPUs || 2*len(shared) < gpus {
		shared = nil
	} else {
		f.GPUs, f.Evidence = nil, map[string]string{}
	}
	undecided := []string{}
	for _, p := range probes {
		if !p.Bad || len(p.GPUs) != 2 || gpuBad[p.GPUs[0]] || gpuBad[p.GPUs[1]] {
			continue
		}
		pair := Pair{p.GPUs[0], p.GPUs[1]}
		if good[pair.A] && good[pair.B] {
			if !slices.Contains(f.Links, pair) {
				f.Links = append(f.Links, pair)
				f.Evidence[fmt.Sprint(pair)] = evidence(probes, func(q Probe) bool {
					return slices.Contains(q.GPUs, pair.A) || slices.Contains(q.GPUs, pair.B)
				})
			}
			continue
		}
		undecided = append(undecided, fmt.Sprintf("GPUs %d and %d failed together", pair.A, pair.B))
	}
	switch {
	case len(shared) > 0 && len(f.Links) == 0:
		f.Suspects = fmt.Sprintf("GPU ordinals %s fail with every partner", join(shared))
		f.Why = fmt.Sprintf("%d of %d GPUs fail, which points at what they share (library, driver, settings, a busy node) rather than at each of them", len(shared), gpus)
	case len(f.GPUs)+len(f.Links) > 0:
		f.Why = fmt.Sprintf("found by %d communicators in %d rounds", len(probes), rounds(probes))
	case len(probes) == 0:
		f.Why = "no communicator could be run to search for it"
	case len(undecided) > 0:
		f.Suspects = strings.Join(undecided, ", ")
		f.Why = "no GPU was left that is known to be good, so a GPU cannot be told from a link"
		if len(undecided) > 1 {
			f.Why = "every pair of GPUs fails, which points at the library, driver or settings rather than one GPU"
		}
	case anyBad(probes):
		var names []string
		for _, c := range linkCandidates(gpus, probes) {
			names = append(names, fmt.Sprintf("%d<->%d", c.A, c.B))
		}
		f.Suspects = "one of the links between GPU ordinals " + strings.Join(names, ", ")
		f.Why = "the rounds or the time ended before one link was left"
		if len(names) == 0 {
			f.Suspects = ""
			f.Why = "the communicators contradict each other, so the fault comes and goes or lies in more than one place"
		}
	default:
		f.Why = fmt.Sprintf("none of %d smaller communicators in %d rounds reproduces it", len(probes), rounds(probes))
	}
	return f
}

func rounds(probes []Probe) int {
	n := 0
	for _, p := range probes {
		n = max(n, p.Round)
	}
	return n
}

func evidence(probes []Probe, about func(Probe) bool) string {
	var parts []string
	for _, p := range probes {
		if !about(p) {
			continue
		}
		result := "passed"
		if p.Bad {
			result = p.Saw
		}
		parts = append(parts, fmt.Sprintf("GPUs %s %s", join(p.GPUs), result))
	}
	return strings.Join(parts, "; ")
}

func join(gpus []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(gpus)), ","), "[]")
}

// Culprits names the finding as the API has it, at most eight.
func (f Finding) Culprits(node, reason, what string, pci []string) []api.Culprit {
	const most, next = 8, "drain the node, then look at dmesg and the RAS error counters of"
	var out []api.Culprit
	for _, g := range f.GPUs {
		name := gpuName(g, pci)
		out = append(out, api.Culprit{Node: node, Kind: "GPU", Name: name, Reason: reason, Message: clip.Head(fmt.Sprintf(
			"%s with every partner (ordinals: %s), expected none; %s GPU %s", what, f.Evidence[fmt.Sprint(g)], next, name), 512)})
	}
	for _, l := range f.Links {
		name := linkName(l, pci)
		out = append(out, api.Culprit{Node: node, Kind: "Link", Name: name, Reason: reason, Message: clip.Head(fmt.Sprintf(
			"%s only between these two GPUs, each works with others (ordinals: %s); %s both GPUs", what, f.Evidence[fmt.Sprint(l)], next), 512)})
	}
	return out[:min(len(out), most)]
}
