package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/state"
)

// runKey is the key that a run measured under. One that is over keeps it: what is not known of a node any more, or what
// it has become since, changes nothing in what the run showed.
func runKey(in Input) (key, why string) {
	if in.Run.Phase == v1alpha1.RunPhaseFinished && in.Run.BaselineKey != "" {
		return in.Run.BaselineKey, ""
	}
	return keyOf(in.Outcomes)
}

// beginsAnew says whether a user has the baseline begin with this run: by an annotation with the id of a run, from
// which on the first one that passes is the first of the new baseline. An id that this group has not had lately is of a
// group of that name that was deleted, whose manifest kept the annotation.
func beginsAnew(group *state.Group, run *v1alpha1.GroupRunStatus) bool {
	id := group.Annotations[v1alpha1.AnnotationBaselineFrom]
	from := runs.NumberOf(id)
	if from == 0 || run.Number < from || run.ID != id &&
		!slices.ContainsFunc(group.Status.History, func(r v1alpha1.RunSummary) bool { return r.ID == id }) {
		return false
	}
	b := group.Status.Baseline
	return b != nil && runs.NumberOf(b.FirstRunID) < from
}

// keySeparator stands between the parts of a key.
const keySeparator = ", "

// keysAlike says whether two keys name the same in each part that both know.
func keysAlike(a, b string) bool {
	x, y := strings.Split(a, keySeparator), strings.Split(b, keySeparator)
	return len(x) == len(y) && slices.EqualFunc(x, y, partsAlike)
}

func partsAlike(a, b string) bool { return a == b || openPart(a, b) || openPart(b, a) }

// openPart says whether a part has something unknown in it, and fits another one but for that.
func openPart(part, other string) bool {
	first, last := strings.Index(part, nodefacts.Unknown), strings.LastIndex(part, nodefacts.Unknown)
	return first >= 0 && strings.HasPrefix(other, part[:first]) &&
		strings.HasSuffix(other, part[last+len(nodefacts.Unknown):])
}

// fullerKey is of two that are alike the one that knows more, part by part.
func fullerKey(a, b string) string {
	x, y := strings.Split(a, keySeparator), strings.Split(b, keySeparator)
	for i := range x {
		if i < len(y) && strings.Count(y[i], nodefacts.Unknown) < strings.Count(x[i], nodefacts.Unknown) {
			x[i] = y[i]
		}
	}
	return strings.Join(x, keySeparator)
}

// unknownParts names what of a key is not known.
func unknownParts(key string) string {
	var out []string
	for part := range strings.SplitSeq(key, keySeparator) {
		if part == nodefacts.Unknown {
			out = append(out, "library")
		} else if strings.Contains(part, nodefacts.Unknown) {
			out = append(out, strings.TrimSuffix(part, " "+nodefacts.Unknown))
		}
	}
	return strings.Join(out, keySeparator)
}

// keyOf names what bandwidth depends on, where all members that have results share it: ROCm of the run's container,
// library, model, partition and ranks. Where they do not, why says so. What is not known of one member is no
// difference.
func keyOf(outcomes []judge.Outcome) (key, why string) {
	var first []string
	firstNode := ""
	seen := map[place]bool{} // of many members nearly all are alike: texts are made once for each kind
	for i := range outcomes {
		o := &outcomes[i]
		// one that failed before it measured has no part in the figures
		if o.Report == nil || len(o.Report.Results) == 0 {
			continue
		}
		place := placeOf(o)
		if seen[place] {
			continue
		}
		seen[place] = true
		parts := place.parts()
		if first == nil {
			first, firstNode = parts, o.Node
			continue
		}
		for k := range parts {
			if !partsAlike(parts[k], first[k]) {
				return "", fmt.Sprintf("members differ, so there is no one baseline: %s on %s, %s on %s",
					first[k], firstNode, parts[k], o.Node)
			}
			first[k] = fullerKey(first[k], parts[k])
		}
	}
	if first == nil {
		return "", "no member has results"
	}
	return clip.Head(strings.Join(first, keySeparator), MaxKey), ""
}

// place is what one member's key is made of.
type place struct {
	rocm, flavor, imitates, version, build, runtime string
	model, partition                                string
	ranks                                           int32
	library                                         bool
}

func placeOf(o *judge.Outcome) place {
	p := place{rocm: nodefacts.ContainerROCm(o.Report), model: o.Kind.GPUModel, partition: o.Kind.Partition,
		ranks: o.Kind.Ranks}
	if l := o.Report.Library; l != nil {
		p.library, p.flavor, p.imitates, p.version, p.build, p.runtime = true, l.Flavor, l.Imitates, l.Version,
			l.BuildHash, l.RuntimeVersion
	}
	return p
}

// parts of the key, each with its name so that a difference reads by itself.
func (p place) parts() []string {
	rocm, library := p.rocm, nodefacts.Unknown
	if p.library {
		library = fmt.Sprintf("%s %s build %s",
			strings.Join(nonEmpty(p.flavor, p.imitates), " as "), p.version, cmp.Or(p.build, nodefacts.Unknown))
		if rocm == "" && p.runtime != "" {
			rocm = "with runtime " + p.runtime
		}
	}
	return []string{"ROCm " + cmp.Or(rocm, nodefacts.Unknown), library, "model " + cmp.Or(p.model, nodefacts.Unknown),
		"partition " + cmp.Or(p.partition, nodefacts.Unknown), fmt.Sprintf("%d ranks a node", p.ranks)}
}

func nonEmpty(words ...string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}
