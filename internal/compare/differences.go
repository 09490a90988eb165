package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// unknown stands for what a record does not tell.
const unknown = "unknown"

// kindProperties of the inventory make the figures those of another thing; all others may explain a change.
var kindProperties = []string{"GPUModel", "GFXTarget", "Partition"}

// list collects what differs.
type list []Difference

func (l *list) add(what, a, b string) {
	if a != b {
		*l = append(*l, Difference{What: what, A: a, B: b})
	}
}

// kinds are the differences that make a comparison of figures one of apples and pears. What a record does not tell is
// no difference.
func kinds(a, b *v1alpha1.CommRun) []Difference {
	var out list
	out.add("origin of the figures", cmp.Or(string(a.Status.Origin), unknown), cmp.Or(string(b.Status.Origin), unknown))
	for _, p := range kindProperties {
		x, y := values(a, p, false), values(b, p, false)
		if x != unknown && y != unknown {
			out.add(p, x, y)
		}
	}
	if a.Status.Template != nil && b.Status.Template != nil {
		out.add("ranks a node", fmt.Sprint(a.Status.Template.RanksPerNode), fmt.Sprint(b.Status.Template.RanksPerNode))
		out.add("mesh", mesh(a.Status.Template.Mesh), mesh(b.Status.Template.Mesh))
	}
	return out
}

// changes are the differences that may explain a gain or loss.
func changes(a, b *v1alpha1.CommRun) []Difference {
	var out list
	out.add("verdict", verdict(a), verdict(b))
	out.add("members measured", fmt.Sprint(measured(a)), fmt.Sprint(measured(b)))
	var properties []string
	for _, item := range slices.Concat(a.Status.Inventory, b.Status.Inventory) {
		if !slices.Contains(properties, item.Property) && !slices.Contains(kindProperties, item.Property) {
			properties = append(properties, item.Property)
		}
	}
	for _, p := range properties {
		out.add(p, values(a, p, true), values(b, p, true))
	}
	out.add("library build", builds(a), builds(b))
	if x, y := transport(a), transport(b); x != "" || y != "" {
		out.add("transport between nodes", cmp.Or(x, unknown), cmp.Or(y, unknown))
	}
	requestedChanges(&out, a.Status.Template, b.Status.Template)
	settingChanges(&out, a.Status.Settings, b.Status.Settings)
	return out
}

func requestedChanges(out *list, a, b *v1alpha1.RunTemplate) {
	if a == nil || b == nil {
		if a != b {
			out.add("spec of the run", told(a), told(b))
		}
		return
	}
	out.add("span", string(a.Span), string(b.Span))
	out.add("image", cmp.Or(a.Runtime.Image, "the manager's default"), cmp.Or(b.Runtime.Image, "the manager's default"))
	out.add("libraryPath", cmp.Or(a.Runtime.LibraryPath, "the loader's own"),
		cmp.Or(b.Runtime.LibraryPath, "the loader's own"))
	out.add("dda", dda(&a.DDA), dda(&b.DDA))
	out.add("lowPrecision", lowPrecision(&a.LowPrecision), lowPrecision(&b.LowPrecision))
	out.add("iterations", iterations(&a.Benchmark), iterations(&b.Benchmark))
	x, y := variables(a.Runtime.Env), variables(b.Runtime.Env)
	var names []string
	for _, e := range slices.Concat(a.Runtime.Env, b.Runtime.Env) {
		if !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out.add("env "+name, x(name), y(name))
	}
}

func transport(r *v1alpha1.CommRun) string {
	if r.Status.Span == nil {
		return ""
	}
	return r.Status.Span.Transport
}

func told(r *v1alpha1.RunTemplate) string {
	if r == nil {
		return "not kept, it had changed"
	}
	return "kept"
}

func iterations(b *v1alpha1.BenchmarkSpec) string {
	return fmt.Sprintf("%d after %d for warm-up", b.Iterations, ptr.Deref(b.WarmupIterations, 0))
}

func variables(env []v1alpha1.EnvVar) func(string) string {
	return func(name string) string {
		i := slices.IndexFunc(env, func(e v1alpha1.EnvVar) bool { return e.Name == name })
		if i < 0 {
			return "not set"
		}
		return fmt.Sprintf("%q", env[i].Value)
	}
}

func settingChanges(out *list, a, b []v1alpha1.SettingStatus) {
	of := func(all []v1alpha1.SettingStatus, name string) string {
		for i := range all {
			if s := &all[i]; s.Name == name {
				text := fmt.Sprintf("%s (%s), %s", s.Effective, s.Reason, verified(s.Verified))
				if s.Usable == v1alpha1.ResultsNotUsable {
					text += ", results not usable"
				}
				return text
			}
		}
		return "not told"
	}
	var names []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		out.add("setting "+name, of(a, name), of(b, name))
	}
}

func verified(s v1alpha1.VerifiedState) string {
	switch s {
	case v1alpha1.VerifiedConfirmed:
		return "confirmed"
	case v1alpha1.VerifiedNotConfirmed:
		return "not confirmed"
	case v1alpha1.VerifiedUnknown:
	}
	return "not verified"
}

func verdict(r *v1alpha1.CommRun) string {
	text := cmp.Or(string(r.Status.Verdict), unknown)
	if r.Status.Summary != nil && r.Status.Summary.Reason != "" {
		text += " (" + r.Status.Summary.Reason + ")"
	}
	return text
}

// measured is the largest number of nodes that a series is made of.
func measured(r *v1alpha1.CommRun) int32 {
	var n int32
	for i := range r.Status.Results {
		n = max(n, r.Status.Results[i].Nodes)
	}
	return n
}

// values of a property, the most frequent first; with the number of nodes of each where there are several.
func values(r *v1alpha1.CommRun, property string, counted bool) string {
	var found []v1alpha1.InventoryItem
	for _, item := range r.Status.Inventory {
		if item.Property == property {
			found = append(found, item)
		}
	}
	slices.SortStableFunc(found, func(a, b v1alpha1.InventoryItem) int {
		if c := cmp.Compare(b.Nodes, a.Nodes); c != 0 && counted {
			return c
		}
		return cmp.Compare(a.Value, b.Value)
	})
	var parts []string
	for _, item := range found {
		if counted && len(found) > 1 {
			parts = append(parts, fmt.Sprintf("%s (%d)", item.Value, item.Nodes))
			continue
		}
		parts = append(parts, item.Value)
	}
	return cmp.Or(strings.Join(parts, ", "), unknown)
}

func builds(r *v1alpha1.CommRun) string {
	var parts []string
	for i := range r.Status.Libraries {
		l := &r.Status.Libraries[i]
		text := strings.TrimSpace(strings.Join([]string{l.Flavor, l.Version, l.BuildHash}, " "))
		if len(r.Status.Libraries) > 1 {
			text += fmt.Sprintf(" (%d)", l.Nodes)
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, ", "), unknown)
}

func mesh(dims []v1alpha1.MeshDimension) string {
	var parts []string
	for _, d := range dims {
		parts = append(parts, fmt.Sprintf("%s %d", d.Name, d.Size))
	}
	return cmp.Or(strings.Join(parts, " x "), "none")
}

func dda(d *v1alpha1.DDASpec) string {
	text := cmp.Or(string(d.Mode), unknown)
	if d.AllReduceFlatMaxBytes != nil {
		text += fmt.Sprintf(", flat up to %d B", *d.AllReduceFlatMaxBytes)
	}
	if d.AllReduceTreeMaxBytes != nil {
		text += fmt.Sprintf(", tree up to %d B", *d.AllReduceTreeMaxBytes)
	}
	return text
}

func lowPrecision(l *v1alpha1.LowPrecisionSpec) string {
	text := cmp.Or(string(l.Mode), unknown)
	if len(l.Collectives) > 0 {
		text += " for " + strings.Join(l.Collectives, ", ")
	}
	return text
}
