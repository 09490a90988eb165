package compare

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Counts says how many measurements had each outcome.
func (c *Comparison) Counts() map[Outcome]int {
	out := map[Outcome]int{}
	for i := range c.Series {
		for j := range c.Series[i].Rows {
			out[c.Series[i].Rows[j].Outcome]++
		}
	}
	return out
}

// Verdict says in one sentence how run B did against run A.
func (c *Comparison) Verdict() string {
	counts := c.Counts()
	both := counts[Even] + counts[Faster] + counts[Slower] + counts[Noisy]
	if both == 0 {
		return "The runs have no measurement in common."
	}
	text := fmt.Sprintf("Of %d measurements that both runs have, %d are slower, %d faster, %d even within the noise",
		both, counts[Slower], counts[Faster], counts[Even])
	if counts[Noisy] > 0 {
		text += fmt.Sprintf(", %d too noisy to tell", counts[Noisy])
	}
	if counts[OnlyA] > 0 {
		text += fmt.Sprintf("; %d were measured in run A only", counts[OnlyA])
	}
	if counts[OnlyB] > 0 {
		text += fmt.Sprintf("; %d in run B only", counts[OnlyB])
	}
	return text + "."
}

// maxNamed is how many regressions are named one by one.
const maxNamed = 5

// Regressions are what keeps run B from being as good as run A when a measurement may lose at most percent: those that
// lost more, those that were not measured again or are too noisy to tell, elements that are wrong only now, and a
// verdict that was Pass. Missing figures are never a pass.
func (c *Comparison) Regressions(percent float64) []string {
	var out []string
	both := 0
	for i := range c.Series {
		s := &c.Series[i]
		if s.WrongB > s.WrongA {
			out = append(out, fmt.Sprintf("%s: %d elements wrong, %d before", s.Name, s.WrongB, s.WrongA))
		}
		for j := range s.Rows {
			r := &s.Rows[j]
			lost := r.ChangePercent != nil && *r.ChangePercent < -percent
			if r.ChangePercent != nil {
				both++
			}
			switch {
			case r.Outcome == OnlyA:
				out = append(out, fmt.Sprintf("%s %d B: not measured in run B", s.Name, r.SizeBytes))
			case r.Outcome == Slower && lost:
				out = append(out, fmt.Sprintf("%s %d B: %.1f %%", s.Name, r.SizeBytes, *r.ChangePercent))
			case r.Outcome == Noisy && lost:
				out = append(out, fmt.Sprintf("%s %d B: %.1f %% with %d %% of noise, too much to tell",
					s.Name, r.SizeBytes, *r.ChangePercent, r.NoisePercent))
			}
		}
	}
	if both == 0 {
		out = append(out, "no measurement that both runs have")
	}
	if c.A.Status.Verdict == v1alpha1.VerdictPass && c.B.Status.Verdict != v1alpha1.VerdictPass {
		out = append(out, "verdict "+verdict(c.B)+", Pass before")
	}
	return out
}

// Some names the first of many, and how many more there are.
func Some(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// Differences in words: "origin of the figures (Hardware, Simulated)".
func Differences(all []Difference) string {
	var parts []string
	for _, d := range all {
		parts = append(parts, fmt.Sprintf("%s (%s, %s)", d.What, d.A, d.B))
	}
	return Some(parts)
}
