package metrics

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Sample is one series of a metric of the contract at one time.
type Sample struct {
	Metric *Metric
	Value  float64
	// Labels are the values of Metric.Labels, in their order.
	Labels []string
}

// descriptors are those of the whole contract, by name.
var descriptors = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for _, m := range All() {
		all[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return all
}()

// Describe sends the descriptors of one source's metrics.
func Describe(source Source, out chan<- *prometheus.Desc) {
	for _, m := range All() {
		if m.Source == source {
			out <- descriptors[m.Name]
		}
	}
}

// Emitter sends samples to a scrape, each series once: one that comes twice would void the whole scrape, and what a
// status says twice is no reason for that.
type Emitter struct {
	out  chan<- prometheus.Metric
	sent map[string]bool
	key  strings.Builder
}

// NewEmitter makes an Emitter for one scrape of about so many series.
func NewEmitter(out chan<- prometheus.Metric, series int) *Emitter {
	return &Emitter{out: out, sent: make(map[string]bool, series)}
}

// Emit sends the samples. Of one series, the first sample counts.
func (e *Emitter) Emit(samples []Sample) {
	for i := range samples {
		s := &samples[i]
		e.key.Reset()
		e.key.WriteString(s.Metric.Name)
		for j, v := range s.Labels {
			if !utf8.ValidString(v) { // text of a file or of a foreign writer; the client library takes no other
				v = strings.ToValidUTF8(v, "�")
				s.Labels[j] = v
			}
			e.key.WriteByte(0xff) // in no valid text
			e.key.WriteString(v)
		}
		if key := e.key.String(); !e.sent[key] {
			e.sent[key] = true
			e.out <- s.prometheus()
		}
	}
}

func (s *Sample) prometheus() prometheus.Metric {
	kind := prometheus.GaugeValue
	if s.Metric.Kind == Counter {
		kind = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(descriptors[s.Metric.Name], kind, s.Value, s.Labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(descriptors[s.Metric.Name], err)
	}
	return m
}
