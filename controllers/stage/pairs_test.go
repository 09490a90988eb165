package stage

import "testing"

// TestPairRounds: no member twice in a round, the ring is covered, and few members meet all others.
func TestPairRounds(t *testing.T) {
	for n := 2; n <= 41; n++ {
		met := map[[2]int]int{}
		for _, round := range pairRounds(n) {
			busy := map[int]bool{}
			for _, p := range round {
				if p[0] >= p[1] || p[1] >= n || busy[p[0]] || busy[p[1]] {
					t.Fatalf("%d members: pair %v in %v", n, p, round)
				}
				busy[p[0]], busy[p[1]] = true, true
				met[p]++
			}
		}
		for i := range n {
			if p := [2]int{min(i, (i+1)%n), max(i, (i+1)%n)}; met[p] != 1 {
				t.Errorf("%d members: neighbours %v meet %d times", n, p, met[p])
			}
		}
		if n <= allPairsMembers && len(met) != n*(n-1)/2 {
			t.Errorf("%d members: %d pairs", n, len(met))
		}
	}
}
