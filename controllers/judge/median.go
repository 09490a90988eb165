package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
)

// minNodesForMedian is the least number of nodes of a kind whose median says what is usual.
const minNodesForMedian = 3

// Kind of a node: a healthy one of another kind is as much slower as its links are. Fields that are not known are
// empty.
type Kind struct {
	GPUModel, Partition string
	Ranks               int32
}

func (k Kind) String() string {
	return fmt.Sprintf("%s with %s", strings.TrimSpace(cmp.Or(k.GPUModel, "an unknown GPU model")+" "+k.Partition),
		units.Counted(int(k.Ranks), "rank"))
}

// point is a node's bandwidth at its largest size.
type point struct {
	index                int
	sizeBytes, busBWMBps int64
}

// AgainstMedian fails the nodes that passed by themselves but whose bus bandwidth at the largest size stays below the
// given share of the median of the members of their kind. It marks those that passed and were held against none. Only
// Baseline is compared: a setting that is in effect on some nodes is no slow node, and each node holds its variants
// against its own Baseline.
func AgainstMedian(out []Outcome, minPercent int32) {
	if minPercent <= 0 {
		return
	}
	type series struct {
		key  runplan.Key
		kind Kind
	}
	all := map[series][]point{}
	for i := range out {
		out[i].Uncompared = out[i].Verdict == v1alpha1.VerdictPass
		for _, r := range out[i].Figures {
			if r.Variant != v1alpha1.VariantBaseline {
				continue
			}
			if last := min(len(r.SizeBytes), len(r.BusBandwidthMBps)) - 1; last >= 0 {
				s := series{runplan.KeyOf(&r), out[i].Kind}
				all[s] = append(all[s], point{i, r.SizeBytes[last], r.BusBandwidthMBps[last]})
			}
		}
	}
	worst := make(map[int]int64, 4) // by index of the node: its lowest share
	for s, points := range all {
		largest := slices.MaxFunc(points, func(a, b point) int {
			return cmp.Compare(a.sizeBytes, b.sizeBytes)
		}).sizeBytes
		points = slices.DeleteFunc(points, func(p point) bool { return p.sizeBytes != largest })
		median := medianOf(points)
		if len(points) < minNodesForMedian || median <= 0 {
			continue
		}
		for _, p := range points {
			o := &out[p.index]
			o.Uncompared = false
			if p.busBWMBps*100 >= median*int64(minPercent) {
				continue
			}
			percent := p.busBWMBps * 100 / median
			before, seen := worst[p.index]
			message := fmt.Sprintf("%s at %s: node %s reaches %s, %d %% of the members' median of %s; "+
				"at least %d %% is expected. Compare its clocks, power cap and links with a good node's.", s.key,
				units.Size(largest), o.Node, units.Bandwidth(p.busBWMBps), percent, units.Bandwidth(median), minPercent)
			switch {
			case seen && (percent > before || (percent == before && message >= o.Message)):
			case seen || o.Verdict == v1alpha1.VerdictPass:
				worst[p.index] = percent
				o.Verdict, o.Reason, o.Message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode, message
				o.Culprits = []v1alpha1.Culprit{NodeCulprit(o.Node, o.Reason, o.Message)}
			}
		}
	}
}

func medianOf(points []point) int64 {
	values := make([]int64, len(points))
	for i, p := range points {
		values[i] = p.busBWMBps
	}
	return Median(values)
}

// uncomparedWords tell of nodes that passed which of them were held against no other; with a blank before.
func uncomparedWords(outcomes []Outcome) string {
	count := map[Kind]int{}
	for i := range outcomes {
		if outcomes[i].Uncompared {
			count[outcomes[i].Kind]++
		}
	}
	var kinds []string
	for _, kind := range slices.SortedFunc(maps.Keys(count), func(a, b Kind) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		kinds = append(kinds, fmt.Sprintf("%d of %s", count[kind], kind))
	}
	if len(kinds) == 0 {
		return ""
	}
	return fmt.Sprintf(" Nodes were not compared with each other where fewer than %d are alike: %s.",
		minNodesForMedian, explain.Names(kinds, 3))
}
