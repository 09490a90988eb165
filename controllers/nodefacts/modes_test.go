package nodefacts

import "testing"

func TestModesContradict(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"SPX/NPS1", "SPX/NPS1", false},
		{"SPX/NPS1", "CPX/NPS1", true},
		{"SPX/NPS1", "SPX/NPS4", true},
		{"SPX/NPS1", "SPX/unknown", false},
		{"SPX/NPS1", "unknown/NPS1", false},
		{"SPX/NPS1", "CPX/unknown", true},
		{"SPX/NPS1", "unknown/NPS4", true},
		{"SPX/unknown", "unknown/NPS1", false},
		{"SPX/unknown", "CPX/unknown", true},
		{"SPX/NPS1", "unknown", false},
		{"SPX/NPS1", "", false},
		{"SPX/NPS1", "mixed", true},
		{"SPX/unknown", "mixed", false}, // the memory modes may be what is mixed
		{"unknown", "mixed", false},
		{"mixed", "mixed", false},
		{"SPX/NPS1", "NotApplicable", true},
		{"SPX/unknown", "NotApplicable", true},
		{"unknown/unknown", "SPX/NPS1", false},
	} {
		if ModesContradict(tc.a, tc.b) != tc.want || ModesContradict(tc.b, tc.a) != tc.want {
			t.Errorf("%s and %s: expected %v", tc.a, tc.b, tc.want)
		}
	}
}
