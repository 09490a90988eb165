package report

import (
	"fmt"
	"io"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// Advice prints which settings are worth it: where each wins and loses against Baseline, what it costs, and what to
// set. Gains are the members' median change of latency: 20 % less is a fifth less time.
func Advice(w io.Writer, advice []v1alpha1.SettingAdvice) error {
	rows := [][]string{{"SETTING", "WORTH IT", "WINS (LESS TIME)", "LOSES (MORE TIME)", "ERROR",
		"MEMORY/RANK", "RECOMMENDED"}}
	for i := range advice {
		a := &advice[i]
		e, memory := unknown, unknown
		if a.ErrorPPM != nil {
			e = units.Percent(*a.ErrorPPM)
		}
		if a.MemoryBytes != nil {
			memory = units.Bytes(*a.MemoryBytes)
		}
		rows = append(rows, []string{a.Name, string(a.State), Bands(a, "Wins", 1), Bands(a, "Loses", -1), e, memory,
			orUnknown(a.Recommend)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for i := range advice {
		if advice[i].Message == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, wrap(w, advice[i].Name+": "+advice[i].Message)); err != nil {
			return err
		}
	}
	return nil
}

// Bands are the ranges of sizes with one outcome; sign makes a loss a positive number.
func Bands(a *v1alpha1.SettingAdvice, outcome string, sign int32) string {
	var parts []string
	for _, b := range a.Bands {
		if b.Outcome != outcome {
			continue
		}
		span := units.Bytes(b.MinBytes)
		if b.MaxBytes != b.MinBytes {
			span += "-" + units.Bytes(b.MaxBytes)
		}
		parts = append(parts, fmt.Sprintf("%s %d %%", span, sign*b.MedianGainPercent))
	}
	if len(parts) == 0 {
		return unknown
	}
	return strings.Join(parts, ", ")
}
