package engine

import (
	"math"

	"rcclx.io/commgroup-operator/rcclx"
)

// tile is one period of a reference, or as much of it as is needed.
type tile struct {
	element element
	// bytes of the exact result; nil where a right result may differ from the reference by rounding.
	bytes []byte
	want  []float64
	// tolerance is the largest deviation at each index that rounding explains; nil means none.
	tolerance []float64
	// judged says whether the tolerance is narrow enough to tell a right result from a wrong one by its elements.
	judged bool
	// errors and squares hold, before each index, the sums of the errors that rounding at every addition makes and of
	// their squares; nil where nothing is rounded.
	errors, squares []float64
	// clip is, where FP8 transport may overflow, how much further a value may be off that was clipped; zero elsewhere,
	// and nil where nothing can overflow.
	clip []float64
	// sums holds the sum of magnitudes before each index, and maxValue the largest.
	sums     []float64
	maxValue float64
}

// tiles keeps the tiles that were made last, since a run asks for the same ones at every size.
type tiles map[tileKey]*tile

type tileKey struct {
	datatype  rcclx.Datatype
	data      rcclx.Data
	transport float64
	rank      int // sumOfAll for the sum
}

const (
	sumOfAll = -1
	// mostTiles are about 100 KB each.
	mostTiles = 64
)

func (p *pattern) cached(rank int, make func() *tile) *tile {
	key := tileKey{p.element.datatype, p.data, p.transport, rank}
	t, ok := p.tiles[key]
	if ok {
		return t
	}
	t = make()
	if len(p.tiles) >= mostTiles {
		clear(p.tiles)
	}
	if p.tiles != nil {
		p.tiles[key] = t
	}
	return t
}

// inputTile is what one rank sends.
func (p *pattern) inputTile(rank int) *tile {
	return p.cached(rank, func() *tile { return p.tileOf([]int{rank}, 0) })
}

// sumTile is the sum over all ranks.
func (p *pattern) sumTile() *tile {
	return p.cached(sumOfAll, func() *tile {
		ranks := make([]int, p.ranks)
		for i := range ranks {
			ranks[i] = i
		}
		return p.tileOf(ranks, p.ranks-1)
	})
}

// tileOf is the sum over the given ranks, with the tolerance for so many additions (tolerance.go). Exact and Rounding
// data are not rounded at all where they travel as they are.
func (p *pattern) tileOf(ranks []int, additions int) *tile {
	e := p.element
	t := &tile{element: e, want: make([]float64, periodElements), sums: make([]float64, periodElements+1)}
	random := p.data == rcclx.DataGradients || p.data == rcclx.DataActivations
	if rounds := additions > 0 && random; !rounds {
		t.bytes = make([]byte, 0, periodElements*e.bytes)
	}
	if t.bytes == nil || p.transport > 0 {
		t.tolerance = make([]float64, periodElements)
	}
	if t.bytes == nil {
		t.errors = make([]float64, periodElements+1)
		t.squares = make([]float64, periodElements+1)
	}
	terms := make([]float64, len(ranks))
	for i := range t.want {
		sum := 0.0
		for at, rank := range ranks {
			terms[at] = p.value(rank, int64(i))
			sum += terms[at]
		}
		if t.bytes != nil {
			t.bytes = e.encode(t.bytes, sum)
		}
		t.want[i] = sum
		t.sums[i+1] = t.sums[i] + math.Abs(sum)
		t.maxValue = max(t.maxValue, math.Abs(sum))
		if t.tolerance != nil {
			p.tolerate(t, i, terms, additions)
		}
	}
	t.judged = t.tolerance == nil || p.shows(t, ranks)
	return t
}

// segment is a stretch of a result: count elements that follow a tile from an index on. The tile is made when it is
// reached, since one for every rank at a time would take much memory.
type segment struct {
	tile  func() *tile
	index int64
	count int64
}

// reference is what a rank must receive from a call of count elements, in order, where every rank's data begin at the
// index start. Of Reduce, the ranks but rank 0 receive nothing: their buffer must be as it was.
func (p *pattern) reference(c rcclx.Collective, placement rcclx.Placement, rank int, count, start int64) []segment {
	input := func(rank int) func() *tile { return func() *tile { return p.inputTile(rank) } }
	switch c {
	case rcclx.AllReduce:
		return []segment{{p.sumTile, start, count}}
	case rcclx.ReduceScatter:
		return []segment{{p.sumTile, start + int64(rank)*count, count}}
	case rcclx.Broadcast:
		return []segment{{input(root), start, count}}
	case rcclx.SendRecv:
		return []segment{{input(ringFrom(rank, p.ranks)), start, count}}
	case rcclx.Reduce:
		switch {
		case rank == root:
			return []segment{{p.sumTile, start, count}}
		case placement == rcclx.InPlace:
			return []segment{{input(rank), start, count}}
		}
		return []segment{{func() *tile { return poisonTile(p.element) }, 0, count}}
	}
	segments := make([]segment, 0, p.ranks)
	for peer := range p.ranks {
		switch c {
		case rcclx.AllGather:
			segments = append(segments, segment{input(peer), start, count})
		case rcclx.AllToAll:
			segments = append(segments, segment{input(peer), start + int64(rank)*count, count})
		case rcclx.AllToAllv:
			// Of the peer's message the part for this rank, which lies behind those for the ranks before it.
			counts, at := rcclx.PeerCounts(peer, p.ranks, count), int64(0)
			for before := range rank {
				at += counts[before]
			}
			if counts[rank] > 0 {
				segments = append(segments, segment{input(peer), start + at, counts[rank]})
			}
		}
	}
	return segments
}

// poisonTile is a buffer that nothing was written to.
func poisonTile(e element) *tile {
	t := &tile{element: e, bytes: make([]byte, periodElements*e.bytes), want: make([]float64, periodElements),
		sums: make([]float64, periodElements+1), judged: true}
	for i := range t.bytes {
		t.bytes[i] = e.poison
	}
	e.decode(t.want, t.bytes)
	return t
}
