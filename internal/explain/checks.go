package explain

import (
	"fmt"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// maxSentences of checks in a message; the rest is counted.
const maxSentences = 3

// Checks tells of checks that were not met or not measured: measured, expected, percent, source and the first causes.
func Checks(all []api.PerformanceCheck) string {
	var parts []string
	for i := range all[:min(len(all), maxSentences)] {
		parts = append(parts, check(&all[i], i == 0))
	}
	if n := len(all) - maxSentences; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more, see the checks", n))
	}
	return strings.Join(parts, "; ")
}

// check is one of them; the causes stand with the first alone.
func check(c *api.PerformanceCheck, first bool) string {
	causes := c.Causes
	if !first {
		causes = nil
	}
	if c.State == api.CheckNotMeasured || c.MeasuredMBps == nil || c.ExpectedMBps == nil {
		text := fmt.Sprintf("%s (%s) could not be judged", c.Measurement, c.Source)
		if len(c.Causes) > 0 {
			text += ": " + c.Causes[0]
		}
		return text
	}
	text := fmt.Sprintf("%s: measured %s, expected at least %s (%s)", c.Measurement, units.Bandwidth(*c.MeasuredMBps),
		units.Bandwidth(*c.ExpectedMBps), c.Source)
	if c.Percent != nil {
		text += fmt.Sprintf(": %d %%", *c.Percent)
	}
	if n := min(len(causes), 2); n > 0 {
		text += "; look at: " + strings.Join(causes[:n], "; ")
	}
	return text
}
