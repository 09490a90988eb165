// Package grafana makes the Grafana dashboards from the metrics' contract.
package grafana

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Units of panels. Bandwidth is in powers of ten, as everywhere in the product.
const (
	bandwidth = units.BytesPerSecondSI
	seconds   = units.Seconds
	share     = units.PercentUnit
	count     = "short"
)

// panel is what a user sees of some queries.
type panel struct {
	kind               kind
	title, description string
	unit               string
	width, height      uint32
	queries            []query
	transformations    []sdk.DataTransformerConfig
	values             map[string]word
	steps              []step
	logarithmic        bool
	// none is what stands there without data, where that is good news.
	none string
}

type kind int

const (
	number kind = iota // the present value
	words              // the present value of a label
	lines              // over time
	states             // words over time
	rows               // a table
	bars               // bars by message size
	gauges             // a bar for each series
)

type query struct{ expr, legend string }

// word is how a value is shown.
type word struct{ text, color string }

// step is a colour from a value on; the first one's value does not count.
type step struct {
	from  float64
	color string
}

const (
	green  = "green"
	red    = "red"
	orange = "orange"
	blue   = "blue"
	grey   = "text"
)

var (
	yesNo      = map[string]word{"0": {"no", red}, "1": {"yes", green}}
	noneIsGood = []step{{0, green}, {1, red}}
	moreIsGood = []step{{0, red}, {1, green}}
	faster     = []step{{0, orange}, {1, green}}
)

const datasource = "${datasource}"

// Build makes the panel as Grafana has it.
func (p *panel) Build() (sdk.Panel, error) {
	out, err := p.style().Build()
	if err != nil {
		return out, fmt.Errorf("panel %q: %w", p.title, err)
	}
	out.Title, out.Description = &p.title, &p.description
	out.GridPos = &sdk.GridPos{W: p.width, H: p.height}
	uid, kind := datasource, "prometheus"
	out.Datasource = &common.DataSourceRef{Uid: &uid, Type: &kind}
	for i, q := range p.queries {
		target, err := p.target(i, q).Build()
		if err != nil {
			return out, fmt.Errorf("panel %q: %w", p.title, err)
		}
		out.Targets = append(out.Targets, target)
	}
	out.Transformations = p.transformations
	if out.FieldConfig == nil {
		out.FieldConfig = sdk.NewFieldConfigSource()
	}
	p.fields(&out.FieldConfig.Defaults)
	return out, nil
}

func (p *panel) instant() bool { return p.kind != lines && p.kind != states }

func (p *panel) target(i int, q query) cog.Builder[variants.Dataquery] {
	target := prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.expr)
	if q.legend != "" {
		target = target.LegendFormat(q.legend)
	}
	switch {
	case p.kind == rows || p.kind == bars:
		return target.Instant().Format(prometheus.PromQueryFormatTable)
	case p.instant():
		return target.Instant()
	default:
		return target.Range()
	}
}

func (p *panel) style() cog.Builder[sdk.Panel] {
	last := common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
	switch p.kind {
	case number:
		return stat.NewPanelBuilder().GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).
			Orientation(common.VizOrientationAuto).ReduceOptions(last)
	case words:
		return stat.NewPanelBuilder().GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone).
			TextMode(common.BigValueTextModeName).Orientation(common.VizOrientationAuto).ReduceOptions(last)
	case states:
		return statetimeline.NewPanelBuilder().ShowValue(common.VisibilityModeNever).MergeValues(true)
	case rows:
		return table.NewPanelBuilder().Filterable(true).
			Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"}))
	case bars:
		return barchart.NewPanelBuilder().XField(sizeField).ShowValue(common.VisibilityModeNever).
			XTickLabelRotation(-45).ScaleDistribution(p.scale()).Legend(legend()).
			Orientation(common.VizOrientationAuto).Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone))
	case gauges:
		return bargauge.NewPanelBuilder().Orientation(common.VizOrientationHorizontal).ReduceOptions(last).
			DisplayMode(common.BarGaugeDisplayModeBasic)
	default:
		return timeseries.NewPanelBuilder().LineWidth(1).ScaleDistribution(p.scale()).Legend(legend())
	}
}

func legend() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).
		Placement(common.LegendPlacementBottom)
}

func (p *panel) scale() *common.ScaleDistributionConfigBuilder {
	if p.logarithmic {
		return common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10)
	}
	return common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLinear)
}

func (p *panel) fields(f *sdk.FieldConfig) {
	if p.unit != "" {
		f.Unit = &p.unit
	}
	if p.none != "" {
		f.NoValue = &p.none
	}
	if len(p.values) > 0 {
		mapping := sdk.NewValueMap()
		for value, w := range p.values {
			mapping.Options[value] = sdk.ValueMappingResult{Text: &w.text, Color: &w.color}
		}
		f.Mappings = append(f.Mappings, sdk.ValueMapping{ValueMap: mapping})
	}
	if len(p.steps) > 0 {
		f.Thresholds = &sdk.ThresholdsConfig{Mode: sdk.ThresholdsModeAbsolute}
		for i, s := range p.steps {
			t := sdk.Threshold{Color: s.color}
			if i > 0 {
				t.Value = &s.from
			}
			f.Thresholds.Steps = append(f.Thresholds.Steps, t)
		}
		f.Color = &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds}
	}
}

// sizeField is what Grafana calls the first column of the matrix that bySize makes.
const sizeField = `size_bytes\series`

// bySize makes a row of each message size, in order, with a column of each series, from a table with the labels series
// and size_bytes.
func bySize() []sdk.DataTransformerConfig {
	convert := func(field, kind string) sdk.DataTransformerConfig {
		return sdk.DataTransformerConfig{Id: "convertFieldType",
			Options: map[string]any{"conversions": []map[string]any{{"targetField": field, "destinationType": kind}}}}
	}
	return []sdk.DataTransformerConfig{
		convert("size_bytes", "number"), // labels are text, and 1024 sorts before 64 there
		{Id: "sortBy", Options: map[string]any{"sort": []map[string]any{{"field": "size_bytes"}}}},
		{Id: "groupingToMatrix",
			Options: map[string]any{"columnField": "series", "rowField": "size_bytes", "valueField": "Value"}},
		convert(sizeField, "string"), // each size is a bar's name, not a number on an axis
	}
}

// merged joins the tables of all queries by their labels, leaves columns out and gives the others names. Values of
// query A are "Value #A", or "Value" where there is one query only.
func merged(hide []string, names map[string]string) []sdk.DataTransformerConfig {
	hidden := map[string]bool{"Time": true}
	for _, name := range hide {
		hidden[name] = true
	}
	return []sdk.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": hidden, "renameByName": names}},
	}
}
