package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// serverStats reads how many requests the API server has answered.
type serverStats struct{ config *rest.Config }

// request is a kind of request.
type request struct{ verb, resource, code string }

// requests are counts by kind.
type requests map[request]int64

func (s *serverStats) read(ctx context.Context) (requests, error) {
	c, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	total := families["apiserver_request_total"]
	if total == nil {
		return nil, errors.New("the API server has no metric apiserver_request_total")
	}
	out := requests{}
	for _, m := range total.Metric {
		l := labels(m)
		key := request{verb: l["verb"], resource: l["resource"], code: l["code"]}
		if l["subresource"] != "" {
			key.resource += "/" + l["subresource"]
		}
		out[key] += int64(m.Counter.GetValue())
	}
	return out, nil
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.Label {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

func (r requests) since(before requests) requests {
	out := maps.Clone(r)
	for key, n := range before {
		if out[key] -= n; out[key] == 0 {
			delete(out, key)
		}
	}
	return out
}

// writes are those that were taken, but for leases and events.
func (r requests) writes() (n int64) {
	for key, count := range r {
		switch key.verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
			if strings.HasPrefix(key.code, "2") && key.resource != "leases" && key.resource != "events" {
				n += count
			}
		}
	}
	return n
}

func (r requests) code(code string) (n int64) {
	for key, count := range r {
		if key.code == code {
			n += count
		}
	}
	return n
}

// line is one kind of request, with its count.
type line struct {
	request
	count int64
}

// lines are all kinds, the most frequent first.
func (r requests) lines() []line {
	var out []line
	for key, count := range r {
		out = append(out, line{key, count})
	}
	slices.SortFunc(out, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.count, a.count),
			strings.Compare(a.verb+a.resource+a.code, b.verb+b.resource+b.code))
	})
	return out
}

// clockTicks a second, in which /proc/PID/stat counts (USER_HZ, which is 100 on every architecture that Go runs on).
const clockTicks = 100

// procUsage reads processor time from the text of /proc/PID/stat (proc(5): utime and stime are fields 14 and 15), and
// the peak of the resident memory from /proc/PID/status.
func procUsage(stat []byte, pid int) (cpu time.Duration, peakBytes int64, err error) {
	_, rest, ok := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 13 {
		return 0, 0, fmt.Errorf("/proc/%d/stat is not as proc(5) has it", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for row := range strings.SplitSeq(string(status), "\n") {
		if value, ok := strings.CutPrefix(row, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return time.Duration(ticks) * time.Second / clockTicks, kib << 10, err
		}
	}
	return 0, 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
