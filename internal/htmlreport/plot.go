package htmlreport

import (
	"fmt"
	"math"
	"strconv"
)

// The size of a plot and its margins, in SVG units.
const (
	plotWidth, plotHeight                      = 460, 280
	marginLeft, marginRight, marginTop, bottom = 60, 16, 16, 48
)

// plot is a chart with its geometry worked out; the template only writes it down.
type plot struct {
	ID, Title, Desc  string
	About            string
	Width, Height    int
	Left, Right      int
	Top, Bottom      int
	XLabel, YLabel   string
	XTicks, YTicks   []tick
	Lines            []line
	Guides           []guide
	XLabelAt, YMidAt int
}

// tick is one mark of an axis with its label.
type tick struct {
	At    string
	Label string
}

// line is one series: its stretches of neighbouring measured points, and a mark for each point.
type line struct {
	Name     string
	Class    string // s0 to s5: colour, dashes and shape of the marks together, so that colour alone tells nothing
	Segments []string
	Marks    []mark
}

// mark is one point; Path draws its shape.
type mark struct {
	Path  string
	Title string
}

// guide is a line over the whole width, for example a threshold.
type guide struct {
	At    string
	Label string
}

// point is one measured value; one that was not measured is not there.
type point struct {
	X, Y  float64
	Title string
}

// series is what a plot is made of. A gap between points that were not measured is left open: Breaks holds the X from
// which a new stretch begins.
type series struct {
	Name   string
	Class  string
	Points []point
	Breaks []float64
}

// axis maps values to places.
type axis struct {
	log      bool
	low, top float64
	from, to float64
}

func (a axis) at(v float64) float64 {
	low, top := a.low, a.top
	if a.log {
		v, low, top = math.Log2(v), math.Log2(low), math.Log2(top)
	}
	if top == low {
		return (a.from + a.to) / 2
	}
	return a.from + (v-low)/(top-low)*(a.to-a.from)
}

// logTicks are round values from low to top: powers of ten, with 2 and 5 between them where there are few.
func logTicks(low, top float64) []float64 {
	for _, steps := range [][]float64{{1}, {1, 3}, {1, 2, 5}} {
		var out []float64
		for p := math.Floor(math.Log10(low)); p <= math.Ceil(math.Log10(top)); p++ {
			for _, s := range steps {
				if v := s * math.Pow(10, p); v >= low*0.999 && v <= top*1.001 {
					out = append(out, v)
				}
			}
		}
		if len(out) >= 4 || len(steps) == 3 {
			return thin(out, 8)
		}
	}
	return nil
}

// linearTicks are about five round values from low to top.
func linearTicks(low, top float64) []float64 {
	if top <= low {
		return []float64{low}
	}
	step := math.Pow(10, math.Floor(math.Log10((top-low)/4)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if (top-low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	var out []float64
	for v := math.Ceil(low/step) * step; v <= top+step/1e6 && len(out) < 12; v += step {
		out = append(out, v)
	}
	return out
}

// thin leaves at most n of the values, evenly, the first among them.
func thin(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	every := (len(values) + n - 1) / n
	var out []float64
	for i := 0; i < len(values); i += every {
		out = append(out, values[i])
	}
	return out
}

// plotOptions say how a plot shall look.
type plotOptions struct {
	id, title, desc string
	about           string // what the plot is of, where the page says it elsewhere
	xLabel, yLabel  string
	logX, logY      bool
	xTicks          []float64
	xText, yText    func(float64) string
	guides          map[float64]string // values on the y axis with their labels
}

// newPlot works out the geometry. It gives nil where no series has a point: an empty frame would look like a measured
// zero.
func newPlot(o plotOptions, all []series) *plot {
	xLow, xTop, yLow, yTop := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	usable := make([]series, 0, len(all))
	for _, s := range all {
		var kept []point
		for _, p := range s.Points {
			if bad(p.X, o.logX) || bad(p.Y, o.logY) {
				continue
			}
			kept = append(kept, p)
			xLow, xTop, yLow, yTop = min(xLow, p.X), max(xTop, p.X), min(yLow, p.Y), max(yTop, p.Y)
		}
		if len(kept) > 0 {
			s.Points = kept
			usable = append(usable, s)
		}
	}
	if len(usable) == 0 {
		return nil
	}
	for v := range o.guides {
		if !bad(v, o.logY) {
			yLow, yTop = min(yLow, v), max(yTop, v)
		}
	}
	yLow, yTop = padded(yLow, yTop, o.logY)
	x := axis{o.logX, xLow, xTop, marginLeft + 8, plotWidth - marginRight - 8}
	y := axis{o.logY, yLow, yTop, plotHeight - bottom, marginTop}
	p := &plot{ID: o.id, Title: o.title, Desc: o.desc, About: o.about, Width: plotWidth,
		Height: plotHeight, Left: marginLeft, Right: plotWidth - marginRight,
		Top: marginTop, Bottom: plotHeight - bottom, XLabel: o.xLabel, YLabel: o.yLabel,
		XLabelAt: (marginLeft + plotWidth - marginRight) / 2, YMidAt: (plotHeight - bottom + marginTop) / 2}
	for _, v := range thin(o.xTicks, 9) {
		p.XTicks = append(p.XTicks, tick{coordinate(x.at(v)), o.xText(v)})
	}
	ticks := linearTicks(yLow, yTop)
	if o.logY {
		ticks = logTicks(yLow, yTop)
	}
	for _, v := range ticks {
		p.YTicks = append(p.YTicks, tick{coordinate(y.at(v)), o.yText(v)})
	}
	for v, label := range o.guides {
		if !bad(v, o.logY) {
			p.Guides = append(p.Guides, guide{coordinate(y.at(v)), label})
		}
	}
	for _, s := range usable {
		p.Lines = append(p.Lines, draw(s, x, y))
	}
	return p
}

// bad says that a value cannot stand on an axis.
func bad(v float64, log bool) bool {
	return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0
}

// padded leaves room above and below. A linear axis of bandwidths or gains begins at zero, so that heights compare.
func padded(low, top float64, log bool) (float64, float64) {
	if log {
		return low / 1.3, top * 1.3
	}
	if top <= 0 {
		top = 1
	}
	return min(0, low), top * 1.12
}

func draw(s series, x, y axis) line {
	l := line{Name: s.Name, Class: s.Class}
	segment := ""
	next := 0
	for _, p := range s.Points {
		px, py := x.at(p.X), y.at(p.Y)
		if next < len(s.Breaks) && p.X >= s.Breaks[next] {
			for next < len(s.Breaks) && p.X >= s.Breaks[next] {
				next++
			}
			if segment != "" {
				l.Segments = append(l.Segments, segment)
			}
			segment = ""
		}
		if segment != "" {
			segment += " "
		}
		segment += coordinate(px) + "," + coordinate(py)
		l.Marks = append(l.Marks, mark{shape(s.Class, px, py), s.Name + ": " + p.Title})
	}
	if segment != "" {
		l.Segments = append(l.Segments, segment)
	}
	return l
}

// shape is a circle, square, triangle or diamond around a point, by the class of the series.
func shape(class string, x, y float64) string {
	const r = 3.6
	c := coordinate
	switch class {
	case "s1":
		return fmt.Sprintf("M%s %sh%sv%sh-%sz", c(x-r), c(y-r), c(2*r), c(2*r), c(2*r))
	case "s2":
		return fmt.Sprintf("M%s %sL%s %sL%s %sz", c(x), c(y-r-1), c(x+r+1), c(y+r), c(x-r-1), c(y+r))
	case "s3":
		return fmt.Sprintf("M%s %sL%s %sL%s %sL%s %sz", c(x), c(y-r-1), c(x+r+1), c(y), c(x), c(y+r+1), c(x-r-1), c(y))
	default:
		return fmt.Sprintf("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 -%s 0z",
			c(x-r), c(y), c(r), c(r), c(2*r), c(r), c(r), c(2*r))
	}
}

// coordinate is a number for SVG: one decimal, no exponent.
func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// short is a number of an axis in few digits.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 1:
		return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}
