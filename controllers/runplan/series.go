package runplan

import (
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// Key names a series; an empty placement is out of place.
type Key struct {
	Variant    v1alpha1.Variant
	Collective v1alpha1.Collective
	Datatype   v1alpha1.Datatype
	Placement  v1alpha1.Placement
}

// KeyOf names the series of a result.
func KeyOf(r *v1alpha1.ResultSeries) Key {
	k := Key{r.Variant, r.Collective, r.Datatype, r.Placement}
	if k.Placement == v1alpha1.OutOfPlace {
		k.Placement = ""
	}
	return k
}

// ShownPlacement is a placement as the API shows it: nothing for the usual one.
func ShownPlacement(p rcclx.Placement) v1alpha1.Placement {
	if p == rcclx.InPlace {
		return v1alpha1.InPlace
	}
	return ""
}

// Measurement is the key without its variant.
func (k Key) Measurement() string {
	if k.Placement == v1alpha1.InPlace {
		return fmt.Sprintf("%s %s in place", k.Collective, k.Datatype)
	}
	return fmt.Sprintf("%s %s", k.Collective, k.Datatype)
}

func (k Key) String() string { return fmt.Sprintf("%s %s", k.Variant, k.Measurement()) }

// Planned is one series that a plan measures, with its sizes.
type Planned struct {
	Key   Key
	Sizes []int64
}

// SeriesOf are the Baseline series that a plan measures on so many ranks.
func SeriesOf(plan *v1alpha1.RunPlan, ranks int32) []Planned {
	var out []Planned
	for _, c := range plan.Collectives {
		for _, d := range plan.Datatypes {
			placements, sizes := Measurements(plan, c, d, ranks)
			if len(sizes) == 0 {
				continue
			}
			for _, p := range placements {
				out = append(out, Planned{Key{Variant: v1alpha1.VariantBaseline, Collective: c, Datatype: d,
					Placement: ShownPlacement(p)}, sizes})
			}
		}
	}
	return out
}
