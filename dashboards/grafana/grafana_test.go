package grafana

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

type classic = sdk.Dashboard //nolint:staticcheck // see Dashboard.JSON

// decoded reads a dashboard back strictly: a field that Grafana's types do not have is an error.
func decoded(t *testing.T, d Dashboard) classic {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	text, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	out := classic{}
	// The SDK hands a nil list of errors back as an error that is not nil.
	for what, err := range map[string]error{"reading": out.UnmarshalJSONStrict(text), "validating": out.Validate()} {
		if err != nil && err.Error() != "" {
			t.Fatalf("%s: %s: %v", d.UID, what, err)
		}
	}
	return out
}

func TestDashboardsFitGrafanasTypes(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Dashboards() {
		out := decoded(t, d)
		if seen[d.UID] || out.Uid == nil || *out.Uid != d.UID {
			t.Errorf("uid %q is not unique, or not the file's", d.UID)
		}
		seen[d.UID] = true
		ids := map[uint32]bool{}
		for _, p := range out.Panels {
			if p.Panel == nil {
				continue
			}
			if ids[*p.Panel.Id] || len(p.Panel.Targets) == 0 || *p.Panel.Title == "" {
				t.Errorf("%s: panel %d %q: id used twice, no title or no query", d.UID, *p.Panel.Id, *p.Panel.Title)
			}
			ids[*p.Panel.Id] = true
			if p.Panel.GridPos.X+p.Panel.GridPos.W > 24 {
				t.Errorf("%s: panel %q does not fit the width of 24: %+v", d.UID, *p.Panel.Title, *p.Panel.GridPos)
			}
		}
	}
}

// No two panels lie over each other.
func TestPanelsDoNotOverlap(t *testing.T) {
	for _, d := range Dashboards() {
		taken := map[[2]uint32]string{}
		out := decoded(t, d)
		for _, p := range out.Panels {
			if p.Panel == nil {
				continue
			}
			g := p.Panel.GridPos
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]uint32{x, y}]; other != "" {
						t.Fatalf("%s: panel %q lies over %q", d.UID, *p.Panel.Title, other)
					}
					taken[[2]uint32{x, y}] = *p.Panel.Title
				}
			}
		}
	}
}

// A query names only variables that the dashboard has, and each variable is used.
func TestVariables(t *testing.T) {
	word := regexp.MustCompile(`\$\{?([a-z_]+)\}?`)
	for _, d := range Dashboards() {
		known := map[string]bool{"datasource": true, "__rate_interval": true}
		for _, v := range d.variables {
			known[v.name] = true
		}
		used := map[string]bool{}
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					for _, m := range word.FindAllStringSubmatch(q.expr, -1) {
						used[m[1]] = true
						if !known[m[1]] {
							t.Errorf("%s: panel %q uses the variable %s, which the dashboard does not have",
								d.UID, p.title, m[1])
						}
					}
				}
			}
		}
		for _, v := range d.variables {
			if !used[v.name] {
				t.Errorf("%s: no query uses the variable %s", d.UID, v.name)
			}
		}
	}
}

// Each metric of the contract is shown somewhere, but for those named here with the reason.
func TestMetricsThatNoDashboardShows(t *testing.T) {
	hidden := map[string]string{
		metrics.ConditionTransition.Name: "the state timelines show changes",
		metrics.RunStart.Name:            "for alerts", metrics.RunFinish.Name: "for alerts",
		metrics.ReportValid.Name: "for alerts",
		metrics.AgentReport.Name: "the API server's own time of reports is shown",
		metrics.AgentValid.Name:  "for alerts",
	}
	var text strings.Builder
	for _, d := range Dashboards() {
		b, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	for _, m := range metrics.All() {
		shown := regexp.MustCompile(m.Name + `[^a-z_]`).MatchString(text.String())
		if _, ok := hidden[m.Name]; ok == shown {
			t.Errorf("%s: shown %v, among those that are not shown %v", m.Name, shown, ok)
		}
	}
}

// A monitor's metric is that of a node, whatever groups it is in: a panel restricts it to the members of the chosen
// group.
func TestMonitorsMetricsAreOfMembers(t *testing.T) {
	count := 0
	for _, d := range Dashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					of := strings.Count(q.expr, "commgroup_agent_")
					count += of
					if members := strings.Count(q.expr, promql.OfMembers("", chosen()...)); members != of {
						t.Errorf("%s: panel %q restricts %d of %d metrics of monitors to members: %s",
							d.UID, p.title, members, of, q.expr)
					}
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d metrics of monitors were found", count)
	}
}

// What a transformation names is there: a label of the query's result, or a value of one of the panel's queries.
func TestTablesHideAndNameOnlyWhatIsThere(t *testing.T) {
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	for _, d := range Dashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				fields := map[string]bool{"Time": true, "Value": len(p.queries) == 1}
				for i, q := range p.queries {
					fields["Value #"+string(rune('A'+i))] = len(p.queries) > 1
					for _, m := range by.FindAllStringSubmatch(q.expr, -1) {
						for _, label := range strings.Split(m[1], ", ") {
							fields[label] = true
						}
					}
				}
				for _, tr := range p.transformations {
					if tr.Id != "organize" {
						continue
					}
					text, _ := json.Marshal(tr.Options)
					options := struct{ ExcludeByName, RenameByName map[string]any }{}
					if err := json.Unmarshal(text, &options); err != nil {
						t.Fatal(err)
					}
					for name := range options.ExcludeByName {
						if !fields[name] {
							t.Errorf("%s: panel %q hides %q, which it does not have", d.UID, p.title, name)
						}
					}
					for name := range options.RenameByName {
						if !fields[name] {
							t.Errorf("%s: panel %q names %q, which it does not have", d.UID, p.title, name)
						}
					}
				}
			}
		}
	}
}

func TestStepsAreAscending(t *testing.T) {
	for _, d := range Dashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				if len(p.steps) > 1 &&
					!slices.IsSortedFunc(p.steps[1:], func(a, b step) int { return int((a.from - b.from) * 1000) }) {
					t.Errorf("%s: panel %q has steps that are not ascending: %v", d.UID, p.title, p.steps)
				}
			}
		}
	}
}

func TestGainComparesWithBaseline(t *testing.T) {
	text := promql.Gain()
	for _, part := range []string{`variant="Baseline"`, `variant!="Baseline"`, "group_right"} {
		if !strings.Contains(text, part) {
			t.Errorf("the gain %s lacks %s", text, fmt.Sprint(part))
		}
	}
}
