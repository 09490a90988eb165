package localize

import (
	"testing"
)

func TestFigures(t *testing.T) {
	for _, n := range []int{16, 232, 4096} {
		t.Logf("N=%d k=1 %s", n, explore(t, Problem{Members: Range(0, n)}, combinations(n, 1), exactly))
		t.Logf("N=%d k=2 %s", n, explore(t, Problem{Members: Range(0, n)}, somewhere(n, 2, 2000, 1), exactly))
		t.Logf("N=%d k=3 %s", n, explore(t, Problem{Members: Range(0, n)}, somewhere(n, 3, 2000, 1), exactly))
	}
}

func TestPairFigures(t *testing.T) {
	for _, n := range []int{16, 232} {
		t.Logf("N=%d pair %s", n, explore(t, Problem{Members: Range(0, n)}, allPairs(n), exactly))
	}
}
func TestSmall(t *testing.T) {
	for n := 3; n <= 64; n++ {
		explore(t, Problem{Members: Range(0, n)}, combinations(n, 1), exactly)
		explore(t, Problem{Members: Range(0, n)}, allPairs(n), exactly)
		if n >= 4 {
			explore(t, Problem{Members: Range(0, n)}, combinations(n, 2), exactly)
		}
		if n >= 5 && n <= 24 {
			explore(t, Problem{Members: Range(0, n)}, combinations(n, 3), exactly)
		}
	}
}
