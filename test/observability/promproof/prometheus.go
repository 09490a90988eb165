// Package promproof runs a real Prometheus over metrics, and evaluates every query of the dashboards and every rule
// with it.
package promproof

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/test/observability/process"
)

// Target is something to scrape.
type Target struct {
	Job, Scheme string
	Addresses   []string
	// TokenFile of the bearer token; empty for none.
	TokenFile string
}

// Server is a running Prometheus.
type Server struct {
	URL string
	t   testing.TB
}

const readyDeadline = time.Minute

// Program is the real Prometheus. Where it is not installed the test is skipped, and says how to install it.
func Program(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: prometheus is not installed: hack/setup.sh installs it as root (Debian package prometheus)")
	}
	return program
}

// Start runs a Prometheus that scrapes the targets each second, with the rules of the file, until the test ends.
func Start(t testing.TB, rules string, targets ...Target) *Server {
	t.Helper()
	program, folder := Program(t), t.TempDir()
	config, err := configuration(rules, targets)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "prometheus.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	address := process.FreeAddress(t)
	process.Start(t, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+address, "--query.lookback-delta=30s", "--log.level=warn")
	s := &Server{URL: "http://" + address, t: t}
	s.Eventually("Prometheus to be ready", readyDeadline, func(ctx context.Context) error {
		_, err := s.get(ctx, "/-/ready", nil)
		return err
	})
	return s
}

func configuration(rules string, targets []Target) ([]byte, error) {
	type object = map[string]any
	jobs := []object{}
	for _, target := range targets {
		job := object{"job_name": target.Job, "scheme": target.Scheme,
			"static_configs": []object{{"targets": target.Addresses}}}
		if target.Scheme == "https" {
			// the certificates are self-signed; the token is what counts
			job["tls_config"] = object{"insecure_skip_verify": true}
		}
		if target.TokenFile != "" {
			job["authorization"] = object{"credentials_file": target.TokenFile}
		}
		jobs = append(jobs, job)
	}
	return yaml.Marshal(object{
		"global":         object{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{rules},
		"scrape_configs": jobs,
	})
}

// Eventually tries until nothing is wrong any more. Past the deadline it fails with what was wrong last.
func (s *Server) Eventually(what string, within time.Duration, try func(context.Context) error) {
	s.t.Helper()
	process.Eventually(s.t, what, within, try)
}

func (s *Server) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return process.Get(ctx, s.URL+path+"?"+query.Encode())
}

// Sample is one series of an answer.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query evaluates an expression now.
func (s *Server) Query(ctx context.Context, expression string) ([]Sample, error) {
	body, err := s.get(ctx, "/api/v1/query", url.Values{"query": {expression}})
	if err != nil {
		return nil, err
	}
	answer := struct {
		Data struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}{}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s gives a %s, not a vector", expression, answer.Data.ResultType)
	}
	out := []Sample{}
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, Sample{r.Metric, value})
	}
	return out, nil
}

// values of a label, over the series of a selector.
func (s *Server) values(ctx context.Context, selector, label string) ([]string, error) {
	body, err := s.get(ctx, "/api/v1/label/"+label+"/values", url.Values{"match[]": {selector}})
	if err != nil {
		return nil, err
	}
	answer := struct{ Data []string }{}
	err = json.Unmarshal(body, &answer)
	return answer.Data, err
}

// Up waits until each target was scraped with success.
func (s *Server) Up(targets int) {
	s.t.Helper()
	s.Eventually(fmt.Sprintf("%d targets to be up", targets), readyDeadline, func(ctx context.Context) error {
		up, err := s.Query(ctx, "up == 1")
		if err == nil && len(up) != targets {
			down, _ := s.get(ctx, "/api/v1/targets", url.Values{"state": {"active"}})
			err = fmt.Errorf("%d are up: %s", len(up), down)
		}
		return err
	})
}
