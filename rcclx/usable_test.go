package rcclx

import (
	"slices"
	"strings"
	"testing"
)

// TestUsability: that a setting takes effect makes no result usable. Missing data is no pass, and hides no loss.
func TestUsability(t *testing.T) {
	checked := func(change func(*DataSeen)) DataSeen {
		d := DataSeen{CheckedElements: 1 << 20, MeanErrorPPM: 23_000}
		if change != nil {
			change(&d)
		}
		return d
	}
	both := []Loss{LossOverflow, LossUnderflow}
	for name, tc := range map[string]struct {
		seen     DataSeen
		accepted []Loss
		state    string
		losses   []Loss
		left     string // state after the acceptance
	}{
		"rounding only": {checked(nil), nil, Usable, nil, Usable},
		"at the limit": {checked(func(d *DataSeen) { d.MeanErrorPPM = MaxMeanErrorPPM }), nil,
			Usable, nil, Usable},
		"over the limit": {checked(func(d *DataSeen) { d.MeanErrorPPM = MaxMeanErrorPPM + 1 }), nil, NotUsable,
			[]Loss{LossUnderflow}, NotUsable},
		"one lost value": {checked(func(d *DataSeen) { d.LostElements = 1 }), nil, NotUsable,
			[]Loss{LossOverflow}, NotUsable},
		"the demo's AllToAll": {checked(func(d *DataSeen) { d.LostElements, d.MeanErrorPPM = 885_384, 351_400 }), nil,
			NotUsable, both, NotUsable},
		"one of two accepted": {checked(func(d *DataSeen) { d.LostElements, d.MeanErrorPPM = 1, 351_400 }), both[:1],
			NotUsable, both, NotUsable},
		"both accepted": {checked(func(d *DataSeen) { d.LostElements, d.MeanErrorPPM = 1, 351_400 }), both,
			NotUsable, both, Usable},
		"accepted and not seen": {checked(nil), both, Usable, nil, Usable},
		"the tail, accepted": {checked(func(d *DataSeen) { d.TailElements = 1 }), []Loss{LossTail}, NotUsable,
			[]Loss{LossTail}, Usable},
		"wrong, never accepted": {checked(func(d *DataSeen) { d.WrongElements = 1 }), Losses(), NotUsable,
			[]Loss{LossWrongData}, NotUsable},
		"nothing checked": {DataSeen{}, both, UsabilityUnknown, nil, UsabilityUnknown},
		"one kind missing": {checked(func(d *DataSeen) { d.Missing = []Data{DataActivations} }), both,
			UsabilityUnknown, nil, UsabilityUnknown},
		"a loss, another unseen": {checked(func(d *DataSeen) { d.LostElements, d.Missing = 1, []Data{DataGradients} }),
			nil, NotUsable, []Loss{LossOverflow}, NotUsable},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.seen.Usability()
			if got.State != tc.state || !slices.Equal(got.Losses, tc.losses) {
				t.Errorf("%+v, expected %s %v", got, tc.state, tc.losses)
			}
			left := got.Accepting(tc.accepted)
			if left.State != tc.left {
				t.Errorf("%+v after the acceptance, expected %s", left, tc.left)
			}
			if why := left.Objection(AllToAll); (why == "") != (tc.left == Usable) {
				t.Errorf("%s: objection %q", left.State, why)
			}
			for _, l := range left.Losses {
				if !strings.Contains(left.Objection(AllToAll), "("+string(l)+")") {
					t.Errorf("objection %q does not name %s", left.Objection(AllToAll), l)
				}
			}
		})
	}
	if u := (Usability{}).Accepting(Losses()); u.Objection(AllToAll) == "" {
		t.Error("what nobody judged counts as usable")
	}
	if u := (Usability{State: NotUsable}).Accepting(Losses()); u.State != NotUsable {
		t.Error("a loss without a name was accepted")
	}
}
