package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// SimulatedNotice is printed above everything that came from the simulator.
const SimulatedNotice = "SIMULATED: no GPU was used. Facts and numbers come from the simulator, not from hardware."

// Notice prints the simulation notice where the group's origin calls for it.
func Notice(w io.Writer, group *v1alpha1.CommGroup) error {
	if group.Status.Origin != v1alpha1.OriginSimulated {
		return nil
	}
	_, err := fmt.Fprintln(w, SimulatedNotice)
	return err
}

// conditionOrder puts the summary first and then follows the way that a group goes.
var conditionOrder = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAccepted, v1alpha1.ConditionAgentsReporting, v1alpha1.ConditionCompatible,
	v1alpha1.ConditionRunning, v1alpha1.ConditionValidated, v1alpha1.ConditionSettingsInEffect,
	v1alpha1.ConditionSettingsPublished, v1alpha1.ConditionSimulated,
}

// Conditions prints a group's conditions, the summary first.
func Conditions(w io.Writer, group *v1alpha1.CommGroup) error {
	rank := func(c metav1.Condition) int {
		if i := slices.Index(conditionOrder, c.Type); i >= 0 {
			return i
		}
		return len(conditionOrder)
	}
	conditions := slices.Clone(group.Status.Conditions)
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(rank(a), rank(b)) })
	rows := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range conditions {
		status := string(c.Status)
		if c.ObservedGeneration != 0 && c.ObservedGeneration < group.Generation {
			status += " (of generation " + fmt.Sprint(c.ObservedGeneration) + ")"
		}
		rows = append(rows, []string{c.Type, status, c.Reason, c.Message})
	}
	return table(w, rows)
}

// Inventory prints what the members are and run, one line for each value of each property.
func Inventory(w io.Writer, group *v1alpha1.CommGroup) error {
	rows := [][]string{{"PROPERTY", "VALUE", "NODES", "FOR EXAMPLE"}}
	for _, i := range group.Status.Inventory {
		rows = append(rows, []string{i.Property, i.Value, fmt.Sprint(i.Nodes), i.Example})
	}
	return table(w, rows)
}

// Settings prints each setting requested, effective and verified.
func Settings(w io.Writer, settings []v1alpha1.SettingStatus) error {
	if len(settings) == 0 {
		_, err := fmt.Fprintln(w, "no settings reported yet")
		return err
	}
	rows := [][]string{{"SETTING", "REQUESTED", "EFFECTIVE", "REASON", "SIZES", "VERIFIED"}}
	for _, s := range settings {
		rows = append(rows, []string{s.Name, s.Requested, string(s.Effective), s.Reason, sizeRange(s), string(s.Verified)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, s := range settings {
		if s.Message == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, wrap(s.Name+": "+s.Message, "  ", 120)); err != nil {
			return err
		}
	}
	return nil
}

func sizeRange(s v1alpha1.SettingStatus) string {
	switch {
	case s.MinBytes == nil && s.MaxBytes == nil:
		return unknown
	case s.MaxBytes == nil:
		return Bytes(*s.MinBytes) + " and up"
	case s.MinBytes == nil:
		return upTo(*s.MaxBytes)
	default:
		return Bytes(*s.MinBytes) + " and up, " + upTo(*s.MaxBytes)
	}
}

// upTo prints an upper bound; one byte less than a round size is "below" it.
func upTo(maxBytes int64) string {
	if below := maxBytes + 1; below%(1<<10) == 0 {
		return "below " + Bytes(below)
	}
	return "up to " + Bytes(maxBytes)
}

// Culprits prints whom the verdict blames, or that there is nobody.
func Culprits(w io.Writer, culprits []v1alpha1.Culprit) error {
	for _, c := range culprits {
		if _, err := fmt.Fprintf(w, "%s %s on node %s: %s\n%s\n", c.Kind, c.Name, c.Node, c.Reason, wrap(c.Message, "  ", 120)); err != nil {
			return err
		}
	}
	return nil
}

// series is the part of a result series that group and node results share.
type series struct {
	variant             v1alpha1.Variant
	collective          v1alpha1.Collective
	datatype            v1alpha1.Datatype
	sizeBytes           []int64
	latencyNanoseconds  []int64
	busBandwidthMBps    []int64
	wrongElements       int64
	maxRelativeErrorPPM *int64
}

// GroupAB prints the group's A/B tables: one for each collective and datatype, one row for each message size.
func GroupAB(w io.Writer, group *v1alpha1.CommGroup) error {
	all := make([]series, 0, len(group.Status.Results))
	for _, r := range group.Status.Results {
		all = append(all, series{r.Variant, r.Collective, r.Datatype, r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps, r.WrongElements, r.MaxRelativeErrorPPM})
	}
	return abTables(w, all)
}

// NodeAB prints one node's A/B tables.
func NodeAB(w io.Writer, node *v1alpha1.CommNode) error {
	if node.Status.Run == nil {
		_, err := fmt.Fprintln(w, "no results yet")
		return err
	}
	all := make([]series, 0, len(node.Status.Run.Results))
	for _, r := range node.Status.Run.Results {
		all = append(all, series{r.Variant, r.Collective, r.Datatype, r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps, r.WrongElements, r.MaxRelativeErrorPPM})
	}
	return abTables(w, all)
}

type tableKey struct {
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
}

func abTables(w io.Writer, all []series) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no results yet")
		return err
	}
	var keys []tableKey
	byKey := map[tableKey][]series{}
	for _, s := range all {
		k := tableKey{s.collective, s.datatype}
		if _, seen := byKey[k]; !seen {
			keys = append(keys, k)
		}
		byKey[k] = append(byKey[k], s)
	}
	for i, k := range keys {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := abTable(w, k, byKey[k]); err != nil {
			return err
		}
	}
	return nil
}

func abTable(w io.Writer, key tableKey, variants []series) error {
	if _, err := fmt.Fprintf(w, "%s %s, out of place (latency in us, bus bandwidth in GB/s = 10^9 bytes/s, gain against Baseline)\n", key.collective, key.datatype); err != nil {
		return err
	}
	head := []string{"SIZE"}
	var baseline *series
	for i, v := range variants {
		if v.variant == v1alpha1.VariantBaseline {
			baseline = &variants[i]
		}
		name := strings.ToUpper(string(v.variant))
		head = append(head, name+" us", "GB/s")
		if v.variant != v1alpha1.VariantBaseline {
			head = append(head, "GAIN")
		}
	}
	rows := [][]string{head}
	for _, size := range allSizes(variants) {
		row := []string{Bytes(size)}
		for _, v := range variants {
			row = append(row, at(v, size, v.latencyNanoseconds, Microseconds), at(v, size, v.busBandwidthMBps, GBps))
			if v.variant != v1alpha1.VariantBaseline {
				row = append(row, gain(baseline, v, size))
			}
		}
		rows = append(rows, row)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, v := range variants {
		note := ""
		if v.wrongElements > 0 {
			note = fmt.Sprintf("%d elements wrong", v.wrongElements)
		}
		if v.maxRelativeErrorPPM != nil && *v.maxRelativeErrorPPM > 0 {
			note = strings.TrimPrefix(note+", largest relative error "+Percent(*v.maxRelativeErrorPPM), ", ")
		}
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s: %s\n", v.variant, note); err != nil {
			return err
		}
	}
	return nil
}

func allSizes(variants []series) []int64 {
	var sizes []int64
	for _, v := range variants {
		sizes = append(sizes, v.sizeBytes...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func at(s series, size int64, values []int64, format func(int64) string) string {
	i := slices.Index(s.sizeBytes, size)
	if i < 0 || i >= len(values) {
		return unknown
	}
	return format(values[i])
}

func gain(baseline *series, s series, size int64) string {
	if baseline == nil {
		return unknown
	}
	i, j := slices.Index(baseline.sizeBytes, size), slices.Index(s.sizeBytes, size)
	if i < 0 || j < 0 || i >= len(baseline.latencyNanoseconds) || j >= len(s.latencyNanoseconds) || s.latencyNanoseconds[j] <= 0 {
		return unknown
	}
	return fmt.Sprintf("%.2fx", float64(baseline.latencyNanoseconds[i])/float64(s.latencyNanoseconds[j]))
}
