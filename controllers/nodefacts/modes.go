package nodefacts

import (
	"maps"
	"slices"
	"strings"
)

// modeHalves are the compute and the memory mode of a partition mode such as SPX/NPS1; "" is not known. One that all
// GPUs do not share ("mixed"), or that the model does not have, stands for both halves.
func modeHalves(mode string) [2]string {
	compute, memory, two := strings.Cut(mode, "/")
	if !two {
		memory = compute
	}
	halves := [2]string{compute, memory}
	for i := range halves {
		if halves[i] == Unknown {
			halves[i] = ""
		}
	}
	return halves
}

// ModesContradict compares two partition modes by their halves, each where both are known: a file that could not be
// read is no other mode.
func ModesContradict(a, b string) bool {
	if a == b {
		return false
	}
	left, right := modeHalves(a), modeHalves(b)
	for i := range left {
		if left[i] == "" || right[i] == "" {
			// "mixed" may be so by the half that is not known here.
			if slices.Contains(left[:], Mixed) || slices.Contains(right[:], Mixed) {
				return false
			}
		}
	}
	for i := range left {
		if left[i] != "" && right[i] != "" && left[i] != right[i] {
			return true
		}
	}
	return false
}

// MajorityMode is the mode that most nodes do not contradict, with the number of these nodes, and the modes that do, in
// the order given. Where no node shows both of its halves, the other stays unknown. "mixed" is nobody's goal: only
// where there is nothing else.
func MajorityMode(values map[string][]string, order []string) (majority string, agree int, odd []string) {
	for _, candidate := range order {
		if n := NodesInMode(values, candidate); majority == "" || majority == Mixed || candidate != Mixed && n > agree {
			majority, agree = candidate, n
		}
	}
	// What agrees with half a mode need not agree with each other: the most frequent other half completes it.
	halves := modeHalves(majority)
	for i := range halves {
		most := 0
		if halves[i] != "" {
			continue
		}
		count := map[string]int{}
		for _, value := range order {
			if half := modeHalves(value)[i]; half != "" && strings.Contains(value, "/") &&
				!ModesContradict(joinHalves(halves), value) {
				if count[half] += len(values[value]); count[half] > most {
					most = count[half]
				}
			}
		}
		for _, half := range slices.Sorted(maps.Keys(count)) {
			if count[half] == most {
				halves[i] = half
				break
			}
		}
	}
	if strings.Contains(majority, "/") {
		majority = joinHalves(halves)
	}
	agree = 0
	for _, value := range order {
		// A mixed node contradicts a mode that two nodes tell half of each only where it contradicts one of them.
		if ModesContradict(majority, value) && NodesInMode(values, value) < NodesInMode(values, Unknown) {
			odd = append(odd, value)
		} else {
			agree += len(values[value])
		}
	}
	return majority, agree, odd
}

// NodesInMode counts the nodes whose mode does not contradict one.
func NodesInMode(values map[string][]string, mode string) (n int) {
	for value, nodes := range values {
		if !ModesContradict(mode, value) {
			n += len(nodes)
		}
	}
	return n
}

func joinHalves(halves [2]string) string {
	for i := range halves {
		if halves[i] == "" {
			halves[i] = Unknown
		}
	}
	return halves[0] + "/" + halves[1]
}
