package discover

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	// FactsBudgetBytes is the most that the facts take of a CommNode's 12 KiB, as JSON; the rest is the run's.
	FactsBudgetBytes = 4608
	maxProblems      = 12 // NodeFacts.problems
	maxGPUs          = 16 // NodeFacts.gpus; also the widest matrix of links
	maxLinkClasses   = 16 // NodeFacts.linkClasses
	shortMessage     = 160
)

// NodeFacts is the part of the facts that a CommNode carries. It stays within FactsBudgetBytes: first the lesser problems
// go, then messages are cut, then the links go. What was left out is said in a last problem.
func (f *Facts) NodeFacts(valid time.Duration) *v1alpha1.NodeFacts {
	out := &v1alpha1.NodeFacts{
		ObservedTime:    metav1.NewTime(f.ObservedTime),
		ValidForSeconds: int32(valid / time.Second),
		Origin:          f.Origin,
		BootID:          cut(f.BootID, 64),
		KernelRelease:   cut(f.KernelRelease, 128),
		Driver:          v1alpha1.DriverFacts{Kind: f.Driver.Kind, Version: cut(f.Driver.Version, 64), SrcVersion: cut(f.Driver.SrcVersion, 64)},
		ROCm:            v1alpha1.ROCmFacts{State: f.ROCm.State, Version: cut(f.ROCm.Version, 64), Source: cut(f.ROCm.Source, 256)},
		GPUModel:        cut(f.Model, 64),
		GFXTarget:       cut(f.GFXTarget, 64),
		GPUCount:        int32(len(f.GPUs)),
		DeviceCount:     int32(len(f.Devices)),
		Partition:       cut(f.Partition, 32),
		XGMI:            f.xgmiFacts(),
	}
	var rows []string
	if len(f.GPUs) <= maxGPUs {
		out.LinkClasses, rows = f.linkClasses()
	}
	for i := range f.GPUs {
		if i == maxGPUs {
			break
		}
		g := &f.GPUs[i]
		gf := v1alpha1.GPUFacts{PCIAddress: cut(g.PCIAddress, 16), NUMANode: g.NUMANode}
		if g.Model != f.Model {
			gf.Model = cut(g.Model, 64)
		}
		if g.VRAMBytes != nil {
			mib := int64(*g.VRAMBytes >> 20)
			gf.VRAMMiB = &mib
		}
		if rows != nil {
			gf.Links = rows[i]
		}
		out.GPUs = append(out.GPUs, gf)
	}
	fitProblems(out, f.Problems)
	return out
}

// linkClasses names the kinds of link by letters, the most frequent first, and gives each GPU's row of them. A link of a
// kind past the last letter is "?".
func (f *Facts) linkClasses() ([]v1alpha1.LinkClass, []string) {
	type kind struct {
		link                     LinkType
		hops                     uint64
		known                    bool
		weight, minMBps, maxMBps uint64
	}
	kindOf := func(l *Link) kind {
		k := kind{link: l.Type, weight: l.Weight, minMBps: ptr.Deref(l.MinBandwidthMBps, 0), maxMBps: ptr.Deref(l.MaxBandwidthMBps, 0)}
		if l.Hops != nil {
			k.hops, k.known = *l.Hops, true
		}
		return k
	}
	counts := map[kind]int32{}
	var kinds []kind
	for i := range f.Mesh.Pairs {
		for _, l := range f.Mesh.Pairs[i] {
			if l == nil {
				continue
			}
			k := kindOf(l)
			if counts[k]++; counts[k] == 1 {
				kinds = append(kinds, k)
			}
		}
	}
	sort.SliceStable(kinds, func(i, j int) bool { return counts[kinds[i]] > counts[kinds[j]] })
	kinds = kinds[:min(len(kinds), maxLinkClasses)]
	letters := map[kind]byte{}
	var classes []v1alpha1.LinkClass
	for i, k := range kinds {
		letters[k] = byte('a' + i)
		c := v1alpha1.LinkClass{Letter: string(letters[k]), Type: string(k.link), Weight: int32(min(k.weight, math.MaxInt32)), Pairs: counts[k]}
		if k.known {
			c.Hops = ptr.To(int32(min(k.hops, math.MaxInt32)))
		}
		if k.minMBps > 0 {
			c.MinMBps = ptr.To(int64(min(k.minMBps, 1<<40)))
		}
		if k.maxMBps > 0 {
			c.MaxMBps = ptr.To(int64(min(k.maxMBps, 1<<40)))
		}
		classes = append(classes, c)
	}
	rows := make([]string, len(f.GPUs))
	for i := range f.Mesh.Pairs {
		row := make([]byte, len(f.GPUs))
		for j, l := range f.Mesh.Pairs[i] {
			row[j] = '?'
			if i == j {
				row[j] = '-'
			} else if l != nil {
				if letter, ok := letters[kindOf(l)]; ok {
					row[j] = letter
				}
			}
		}
		rows[i] = string(row)
	}
	return classes, rows
}

func (f *Facts) xgmiFacts() v1alpha1.XGMIFacts {
	x := v1alpha1.XGMIFacts{Mesh: f.Mesh.State, Hives: int32(f.Mesh.Hives), Links: int32(f.Mesh.Links)}
	if f.Mesh.ExpectedLinks != nil {
		n := int32(*f.Mesh.ExpectedLinks)
		x.ExpectedLinks = &n
	}
	if f.Mesh.LinkBandwidthMBps != nil && *f.Mesh.LinkBandwidthMBps < 1<<40 {
		n := int64(*f.Mesh.LinkBandwidthMBps)
		x.LinkBandwidthMBps = &n
	}
	x.UncorrectableErrors = f.sumOfAll(func(g *GPU) *uint64 { return g.XGMIUncorrectableErrors })
	x.CorrectableErrors = f.sumOfAll(func(g *GPU) *uint64 { return g.XGMICorrectableErrors })
	return x
}

// sumOfAll adds a counter over all GPUs; nil where any of them does not have it, since a part is not the sum.
func (f *Facts) sumOfAll(of func(*GPU) *uint64) *int64 {
	if len(f.GPUs) == 0 {
		return nil
	}
	var sum int64
	for i := range f.GPUs {
		n := of(&f.GPUs[i])
		if n == nil || *n > 1<<60 || sum > 1<<60 {
			return nil
		}
		sum += int64(*n)
	}
	return &sum
}

// fitProblems puts as many problems into the facts as fit, the worst first.
func fitProblems(out *v1alpha1.NodeFacts, problems []v1alpha1.Problem) {
	for _, messageLimit := range []int{400, shortMessage} {
		for keep := min(len(problems), maxProblems); keep >= min(len(problems), 3); keep-- {
			out.Problems = trimmed(problems, keep, messageLimit)
			if jsonSize(out) <= FactsBudgetBytes {
				return
			}
		}
	}
	for i := range out.GPUs {
		out.GPUs[i].Links = ""
	}
}

func trimmed(problems []v1alpha1.Problem, keep, messageLimit int) []v1alpha1.Problem {
	if len(problems) == 0 {
		return nil
	}
	if keep < len(problems) && keep == maxProblems {
		keep-- // the last place is for the note
	}
	list := make([]v1alpha1.Problem, 0, keep+1)
	for _, p := range problems[:keep] {
		p.Code, p.Subject, p.Message = cut(p.Code, 64), cut(p.Subject, 128), cut(p.Message, messageLimit)
		list = append(list, p)
	}
	if left := len(problems) - keep; left > 0 {
		severity := problems[keep].Severity
		list = append(list, v1alpha1.Problem{Severity: severity, Code: v1alpha1.ProblemMoreProblems,
			Message: fmt.Sprintf("%d more problems do not fit here: run \"agent discover\" on the node.", left)})
	}
	return list
}

func jsonSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 1 << 30 // never fits; plain structs always marshal
	}
	return len(data)
}

// cut shortens text to so many characters, with dots in the place of what is missing.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return string(runes[:limit-3]) + "..."
}
