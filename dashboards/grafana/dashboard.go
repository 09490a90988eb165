package grafana

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

// tag is on all dashboards, so that each links to the others.
const tag = "commgroup"

// Dashboard is one dashboard; its file is UID.json.
type Dashboard struct {
	UID, Title, Description string
	variables               []variable
	rows                    []row
}

type row struct {
	title  string
	panels []panel
}

// variable is a choice of a label's values.
type variable struct {
	name, label string
	// of is the selector whose values are offered.
	of string
	// many lets a user choose several and all.
	many bool
}

// Dashboards are all dashboards.
func Dashboards() []Dashboard { return []Dashboard{fleet(), group(), nodes(), ab()} }

// chosen restricts a metric to the groups that were chosen.
func chosen(more ...promql.Match) []promql.Match {
	return append([]promql.Match{promql.Like(metrics.LabelGroupNamespace, "$group_namespace"),
		promql.Like(metrics.LabelGroup, "$group")}, more...)
}

// of is a metric of the chosen groups.
func of(m metrics.Metric, more ...promql.Match) string { return promql.Of(m, chosen(more...)...) }

func namespaceVariable(many bool) variable {
	return variable{metrics.LabelGroupNamespace, "Namespace", promql.Of(metrics.Info), many}
}

func groupVariable(many bool) variable {
	return variable{metrics.LabelGroup, "CommGroup",
		promql.Of(metrics.Info, promql.Like(metrics.LabelGroupNamespace, "$group_namespace")), many}
}

// JSON is the dashboard as Grafana imports it.
func (d *Dashboard) JSON() ([]byte, error) {
	//nolint:staticcheck // the newer schema is read by Grafana 12 and later only, and not by its sidecar's provisioning
	b := sdk.NewDashboardBuilder(d.Title).Uid(d.UID).Description(d.Description).Tags([]string{tag, "rocm"}).Readonly().
		Time("now-24h", "now").Refresh("1m").Timezone("browser").
		Link(sdk.NewDashboardLinkBuilder("CommGroup dashboards").Type(sdk.DashboardLinkTypeDashboards).
			Tags([]string{tag}).AsDropdown(true).KeepTime(true).IncludeVars(true)).
		WithVariable(sdk.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, v := range d.variables {
		b = b.WithVariable(v.build())
	}
	for _, r := range d.rows {
		b = b.WithRow(sdk.NewRowBuilder(r.title))
		for i := range r.panels {
			b = b.WithPanel(&checked{&r.panels[i]})
		}
	}
	out, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
	}
	for i, p := range out.Panels {
		id := uint32(i + 1)
		if p.Panel != nil {
			p.Panel.Id = &id
		} else {
			p.RowPanel.Id = id
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// checked hands errors on in the form that the SDK's builder expects.
type checked struct{ *panel }

func (c *checked) Build() (sdk.Panel, error) {
	p, err := c.panel.Build()
	if err != nil {
		return p, cog.MakeBuildErrors("panel", err)
	}
	return p, nil
}

func (v *variable) build() cog.Builder[sdk.VariableModel] {
	// refId and query are the form in which Grafana keeps a query of the Prometheus data source.
	q := fmt.Sprintf("label_values(%s, %s)", v.of, v.name)
	b := sdk.NewQueryVariableBuilder(v.name).Label(v.label).
		Query(sdk.StringOrMap{Map: map[string]any{"query": q, "refId": v.name}}).Definition(q).
		Datasource(dataSourceRef()).Refresh(sdk.VariableRefreshOnTimeRangeChanged).Sort(sdk.VariableSortAlphabeticalAsc)
	if v.many {
		b = b.Multi(true).IncludeAll(true).AllValue(".*").
			Current(sdk.VariableOption{Text: sdk.StringOrArrayOfString{ArrayOfString: []string{"All"}},
				Value: sdk.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}})
	}
	return b
}
