package compatible

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/controllers/nodefacts"
)

func mixtureOf(t *testing.T, property string) mixture {
	t.Helper()
	at := slices.IndexFunc(mixtures, func(m mixture) bool { return m.property == property })
	if at < 0 {
		t.Fatalf("no mixture of %s", property)
	}
	return mixtures[at]
}

// nodesInModes names nodes MODE@NUMBER.
func nodesInModes(modes map[string]int) map[string][]string {
	out := map[string][]string{}
	for mode, n := range modes {
		for i := range n {
			out[mode] = append(out[mode], fmt.Sprintf("%s@%d", mode, i))
		}
	}
	return out
}

// TestMixedModesAreFound: of all groups of up to four modes, one is mixed exactly where two of its modes contradict,
// and no odd mode is one that the majority does not contradict.
func TestMixedModesAreFound(t *testing.T) {
	all := []string{"SPX/NPS1", "SPX/NPS4", "CPX/NPS1", "CPX/NPS4", "SPX/unknown", "CPX/unknown", "unknown/NPS1",
		"unknown/NPS4", "mixed", "unknown", "NotApplicable"}
	m := mixtureOf(t, propPartition)
	for a := range all {
		for b := range all {
			for c := range all {
				for d := range all {
					modes := map[string]int{all[a]: 1, all[b]: 2, all[c]: 3, all[d]: 4}
					want := false
					for x := range modes {
						for y := range modes {
							want = want || nodefacts.ModesContradict(x, y)
						}
					}
					message, odd := m.find(nodesInModes(modes))
					if (message != "") != want || (len(odd) > 0) != want {
						t.Fatalf("%v: %q, odd %v", modes, message, odd)
					}
				}
			}
		}
	}
}

// TestMixedModes: a mode of which a half could not be read is no mixture, and hides none.
func TestMixedModes(t *testing.T) {
	for name, tc := range map[string]struct {
		modes map[string]int // nodes
		words string
		odd   []string // modes
	}{
		"alike": {map[string]int{"SPX/NPS1": 8}, "", nil},
		"two": {map[string]int{"SPX/NPS1": 7, "CPX/NPS4": 1}, "SPX/NPS1 on 7 nodes, but CPX/NPS4 on ",
			[]string{"CPX/NPS4"}},
		"half unknown":         {map[string]int{"SPX/NPS1": 7, "SPX/unknown": 1}, "", nil},
		"most half unknown":    {map[string]int{"SPX/NPS1": 1, "SPX/unknown": 7}, "", nil},
		"each half of another": {map[string]int{"unknown/NPS1": 1, "SPX/unknown": 1}, "", nil},
		"known half differs": {map[string]int{"SPX/NPS1": 7, "CPX/unknown": 1},
			"SPX/NPS1 on 7 nodes, but CPX/unknown on ", []string{"CPX/unknown"}},
		"half known everywhere": {map[string]int{"SPX/unknown": 3, "CPX/NPS1": 1},
			"SPX/unknown on 3 nodes, but CPX/NPS1 on ", []string{"CPX/NPS1"}},
		"half unknown, and a mixture": {map[string]int{"SPX/NPS1": 5, "SPX/unknown": 2, "CPX/NPS4": 1},
			"SPX/NPS1 on 7 nodes, but CPX/NPS4 on ", []string{"CPX/NPS4"}},
		"agree with half, not with each other": {map[string]int{"unknown/NPS1": 5, "SPX/NPS1": 2, "CPX/NPS1": 1},
			"SPX/NPS1 on 7 nodes, but CPX/NPS1 on ", []string{"CPX/NPS1"}},
		"both halves mixed": {map[string]int{"SPX/unknown": 3, "SPX/NPS1": 2, "SPX/NPS4": 1,
			"CPX/NPS1": 1}, "SPX/NPS1 on 5 nodes, but ", []string{"CPX/NPS1", "SPX/NPS4"}},
		"tie": {map[string]int{"SPX/NPS1": 2, "CPX/NPS1": 2}, "(a tie: no value has a majority)", []string{"SPX/NPS1"}},
		"tie with half unknown": {map[string]int{"SPX/NPS1": 1, "CPX/NPS1": 1, "unknown/NPS1": 5},
			"(a tie: no value has a majority)", []string{"SPX/NPS1"}},
		"mixed in a node": {map[string]int{"SPX/NPS1": 3, "mixed": 1},
			"SPX/NPS1 on 3 nodes, but mixed on ", []string{"mixed"}},
		"mixed beside half unknown": {map[string]int{"SPX/unknown": 3, "mixed": 1}, "", nil},
		"nothing known":             {map[string]int{"unknown": 3}, "", nil},
		"one unknown":               {map[string]int{"unknown": 1, "SPX/NPS1": 3}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			message, odd := mixtureOf(t, propPartition).find(nodesInModes(tc.modes))
			var modes []string
			for _, o := range odd {
				mode, _, _ := strings.Cut(o.node, "@")
				modes = append(modes, mode)
			}
			slices.Sort(modes)
			if modes = slices.Compact(modes); (message == "") != (tc.words == "") ||
				!strings.Contains(message, tc.words) || !slices.Equal(modes, tc.odd) {
				t.Errorf("%q, odd %v; expected %q, %v", message, modes, tc.words, tc.odd)
			}
		})
	}
}
