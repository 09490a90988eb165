package promproof

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// dashboard is what the proof needs of a dashboard's JSON.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct{ List []variable }
}

type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

type variable struct {
	Type, Name, Definition string
	Multi                  bool
}

var labelValues = regexp.MustCompile(`^label_values\((.*), ([a-z_]+)\)$`)

// rateInterval stands for what Grafana makes of a scrape interval of a second.
const rateInterval = "1m"

// ofTheBroken are the panels that name what is wrong, each with the alert that is raised for the same: they have data
// where that alert is to be raised, and must have none elsewhere.
var ofTheBroken = map[string]string{
	"CommGroup - fleet/Who is the culprit":                        "CommGroupCulpritFound",
	"CommGroup - group/Who is the culprit":                        "CommGroupCulpritFound",
	"CommGroup - nodes and links/Problems that the monitors find": "CommGroupAgentProblem",
}

// Dashboards evaluates the queries of all dashboards in the folder. Each must give data, but for the panels that may be
// empty, named as dashboard/panel with the reason. What a panel of ofTheBroken must show follows from the alerts that
// are to be raised here. Variables take the first of the values that their own definition offers.
func (s *Server) Dashboards(folder string, mayBeEmpty map[string]string, alerts ...string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no dashboards in %s: %v", folder, err)
	}
	queries := 0
	left := maps.Clone(ofTheBroken)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		d := dashboard{}
		if err := json.Unmarshal(text, &d); err != nil {
			s.t.Fatalf("%s: %v", file, err)
		}
		values := s.variables(&d)
		for i := range d.Panels {
			p := &d.Panels[i]
			for _, target := range p.Targets {
				queries++
				name, expression := d.Title+"/"+p.Title, substitute(target.Expr, values)
				if alert, ok := ofTheBroken[name]; ok && !slices.Contains(alerts, alert) {
					s.empty(name, expression, alert)
				} else {
					s.panel(name, expression, mayBeEmpty)
				}
				delete(left, name)
			}
		}
	}
	if len(left) > 0 {
		s.t.Errorf("no dashboard has the panels %v", slices.Sorted(maps.Keys(left)))
	}
	s.t.Logf("%d queries of %d dashboards were evaluated", queries, len(files))
}

// variables chooses a value for each variable, as Grafana does when the dashboard is opened.
func (s *Server) variables(d *dashboard) map[string]string {
	s.t.Helper()
	values := map[string]string{"__rate_interval": rateInterval}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		parts := labelValues.FindStringSubmatch(v.Definition)
		if parts == nil {
			s.t.Errorf("%s: the variable %s is not label_values(selector, label): %s", d.Title, v.Name, v.Definition)
			continue
		}
		offered := []string{}
		s.Eventually(fmt.Sprintf("values of the variable %s of %q", v.Name, d.Title),
			readyDeadline, func(ctx context.Context) error {
				var err error
				offered, err = s.values(ctx, substitute(parts[1], values), parts[2])
				if err == nil && len(offered) == 0 {
					err = fmt.Errorf("%s offers nothing", v.Definition)
				}
				return err
			})
		values[v.Name] = offered[0]
		if v.Multi {
			values[v.Name] = ".*"
		}
	}
	return values
}

var reference = regexp.MustCompile(`\$\{?([a-z_]+)\}?`)

// substitute puts the values in the place of variables; one that has none stays.
func substitute(expression string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(expression, func(found string) string {
		if value, known := values[reference.FindStringSubmatch(found)[1]]; known {
			return value
		}
		return found
	})
}

// dataDeadline is for rates, which need two scrapes, and for a manager's or monitor's next look.
const dataDeadline = 30 * time.Second

// empty fails where a panel names something wrong though nothing is. A warning, of which no alert is raised, is nothing
// wrong.
func (s *Server) empty(name, expression, alert string) {
	s.t.Helper()
	found, err := s.Query(s.t.Context(), expression)
	found = slices.DeleteFunc(found, func(v Sample) bool { return v.Labels["severity"] == "Warning" })
	if err != nil || len(found) > 0 {
		s.t.Errorf("panel %s: %v (error %v), want no data where %s is not to be raised: %s",
			name, found, err, alert, expression)
	}
}

func (s *Server) panel(name, expression string, mayBeEmpty map[string]string) {
	s.t.Helper()
	if strings.Contains(expression, "$") {
		s.t.Errorf("panel %s: a variable was not replaced: %s", name, expression)
		return
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), dataDeadline)
	defer cancel()
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for {
		found, err := s.Query(ctx, expression)
		if _, may := mayBeEmpty[name]; err == nil && (len(found) > 0 || may) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Errorf("panel %s has no data (error %v): %s", name, err, expression)
			return
		case <-again.C:
		}
	}
}

// Rule is a rule as Prometheus sees it.
type Rule struct {
	Name, Type, Health, LastError, State string
	Alerts                               []struct {
		State       string
		Labels      map[string]string
		Annotations map[string]string
	}
}

// Rules waits until each rule was evaluated, fails where one could not be, and gives them by name.
func (s *Server) Rules() map[string]Rule {
	s.t.Helper()
	out := map[string]Rule{}
	s.Eventually("all rules to be evaluated", readyDeadline, func(ctx context.Context) error {
		body, err := s.get(ctx, "/api/v1/rules", url.Values{})
		if err != nil {
			return err
		}
		answer := struct {
			Data struct{ Groups []struct{ Rules []Rule } }
		}{}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		clear(out)
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return fmt.Errorf("rule %s: health %s: %s", r.Name, r.Health, r.LastError)
				}
				out[r.Name] = r
			}
		}
		if len(out) == 0 {
			return fmt.Errorf("no rules were loaded")
		}
		return nil
	})
	return out
}

// Raised waits until each of the named alerts is pending or firing.
func (s *Server) Raised(within time.Duration, names ...string) map[string]Rule {
	s.t.Helper()
	var rules map[string]Rule
	s.Eventually(fmt.Sprintf("the alerts %v", names), within, func(context.Context) error {
		rules = s.Rules()
		for _, name := range names {
			if len(rules[name].Alerts) == 0 {
				return fmt.Errorf("%s is %q", name, rules[name].State)
			}
		}
		return nil
	})
	return rules
}

// Quiet waits until no alert is pending or firing. One may be as Prometheus starts, before each target was scraped
// once.
func (s *Server) Quiet(within time.Duration) {
	s.t.Helper()
	s.Eventually("no alert to be raised", within, func(context.Context) error {
		for name, r := range s.Rules() {
			if len(r.Alerts) > 0 {
				return fmt.Errorf("%s is raised: %+v", name, r.Alerts)
			}
		}
		return nil
	})
}
