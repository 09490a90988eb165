package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// world is a node of four GPUs in a full mesh, to which things happen.
type world struct {
	random *rand.Rand
	boot   int
	driver int
	gpus   [4]worldGPU
	cut    map[link]bool

	// What of it can be seen at this look.
	hidden, unstable, bootUnread, driverUnread bool
}

type worldGPU struct {
	address                    string
	gone                       bool
	mode                       string
	ue, ce, xgmiUE, replays    uint64
	ports                      [2]string
	hidden, unread, modeUnread bool
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), cut: map[link]bool{}}
	for i := range w.gpus {
		w.gpus[i] = worldGPU{address: fmt.Sprintf("0000:%02x:00.0", i+1), mode: "SPX",
			ports: [2]string{discover.XGMIPortUp, discover.XGMIPortUp}}
	}
	return w
}

// happen changes the node itself in one way.
func (w *world) happen() {
	g := &w.gpus[w.random.IntN(len(w.gpus))]
	switch w.random.IntN(10) {
	case 0:
		if w.random.IntN(8) == 0 { // a reboot starts everything again
			w.boot++
			for i := range w.gpus {
				w.gpus[i].ue, w.gpus[i].ce, w.gpus[i].xgmiUE, w.gpus[i].replays = 0, 0, 0, 0
			}
		}
	case 1:
		if w.random.IntN(4) == 0 {
			w.driver++
			for i := range w.gpus {
				w.gpus[i].ue, w.gpus[i].ce, w.gpus[i].xgmiUE, w.gpus[i].replays = 0, 0, 0, 0
			}
		}
	case 2:
		g.gone = !g.gone
	case 3:
		other := w.gpus[w.random.IntN(len(w.gpus))].address
		if k := (link{g.address, other}); g.address != other {
			w.cut[k] = !w.cut[k]
		}
	case 4:
		g.mode = map[string]string{"SPX": "CPX", "CPX": "SPX"}[g.mode]
	case 5:
		g.ue += w.random.Uint64N(3)
		g.xgmiUE += w.random.Uint64N(2)
	case 6:
		g.ce += w.random.Uint64N(100)
	case 7:
		g.replays += w.random.Uint64N(3)
	case 8:
		g.ports[w.random.IntN(2)] = []string{discover.XGMIPortUp, discover.XGMIPortDown,
			discover.XGMIPortUnknown}[w.random.IntN(3)]
	case 9:
		g.ue, g.ce, g.xgmiUE, g.replays = 0, 0, 0, 0 // a reset
	}
}

// veil makes parts of the node unreadable for this look.
func (w *world) veil(chance int) {
	some := func() bool { return w.random.IntN(100) < chance }
	w.hidden, w.unstable, w.bootUnread, w.driverUnread = some(), some(), some(), some()
	for i := range w.gpus {
		w.gpus[i].hidden, w.gpus[i].unread, w.gpus[i].modeUnread = w.hidden && some(), some(), some()
	}
}

func (w *world) certain() bool { return !w.hidden && !w.unstable }

func (w *world) facts(now time.Time) *discover.Facts {
	f := twoGPUs(now)
	f.BootID, f.Driver.Version, f.GenerationStable, f.GPUs = fmt.Sprint("boot-", w.boot),
		fmt.Sprint("6.14.", w.driver), !w.unstable, nil
	if w.bootUnread {
		f.BootID = ""
	}
	if w.driverUnread {
		f.Driver = discover.DriverFacts{Kind: discover.DriverUnknown}
	}
	if w.hidden {
		f.HiddenNodes = []int{9}
	}
	for i := range w.gpus {
		g := &w.gpus[i]
		if g.gone || g.hidden {
			continue
		}
		gpu := discover.GPU{PCIAddress: g.address, Model: "MI300X", ComputePartition: g.mode, Complete: true}
		if g.modeUnread {
			gpu.ComputePartition = ""
		}
		if !g.unread {
			gpu.RAS = map[string]discover.ErrorCounts{"umc": {Uncorrectable: g.ue, Correctable: g.ce},
				discover.RASBlockXGMI: {Uncorrectable: g.xgmiUE}}
			gpu.XGMIUncorrectableErrors = ptr.To(g.xgmiUE)
			gpu.Metrics = &discover.Metrics{Revision: "1.7", PCIeReplays: ptr.To(g.replays), XGMIPorts: g.ports[:]}
			gpu.Metrics.XGMIPorts = slices.Clone(gpu.Metrics.XGMIPorts)
		}
		f.GPUs = append(f.GPUs, gpu)
	}
	f.Mesh.Pairs = make([][]*discover.Link, len(f.GPUs))
	for i := range f.GPUs {
		f.Mesh.Pairs[i] = make([]*discover.Link, len(f.GPUs))
		for j := range f.GPUs {
			if i != j && !w.cut[link{f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress}] {
				f.Mesh.Pairs[i][j] = &discover.Link{Type: discover.LinkXGMI, Weight: 15}
			}
		}
	}
	return f
}

// teller says in its own way what a look must tell: it keeps what the looks before could know.
type teller struct {
	boot, driver string
	told         map[string]bool   // things that were there: true once they were told to be lost
	last         map[string]uint64 // counters as last read
	mode         map[string]string
}

func newTeller() *teller {
	return &teller{told: map[string]bool{}, last: map[string]uint64{}, mode: map[string]string{}}
}

func (o *teller) expect(f *discover.Facts, certain bool) []string {
	lines := []string{}
	if f.BootID != "" {
		if o.boot != "" && o.boot != f.BootID {
			lines = append(lines, "Warning NodeRebooted")
			*o = *newTeller()
		}
		o.boot = f.BootID
	}
	if v := f.Driver.Version; v != "" {
		if o.driver != "" && o.driver != v {
			lines = append(lines, "Warning DriverChanged sys/module/amdgpu")
			clear(o.last)
		}
		o.driver = v
	}
	there, down := map[string]bool{}, map[string]bool{}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		there["GPULost "+g.PCIAddress] = true
		if g.Metrics != nil {
			for n, state := range g.Metrics.XGMIPorts {
				key := fmt.Sprint("XGMIPortDown ", g.PCIAddress, " ", n)
				there[key], down[key] = state == discover.XGMIPortUp, state == discover.XGMIPortDown
			}
		}
		for j, l := range f.Mesh.Pairs[i] {
			if i != j {
				there["LinkLost "+g.PCIAddress+"<->"+f.GPUs[j].PCIAddress] = l != nil
			}
		}
		if mode := g.ComputePartition; mode != "" {
			if o.mode[g.PCIAddress] != "" && o.mode[g.PCIAddress] != mode {
				lines = append(lines, "Warning Repartitioned "+g.PCIAddress)
			}
			o.mode[g.PCIAddress] = mode
		}
		lines = append(lines, o.counters(g)...)
	}
	ports := map[string]bool{} // several ports of a GPU are one line
	for key := range o.told {
		code, rest, _ := strings.Cut(key, " ")
		lost := false
		switch code {
		case "GPULost":
			lost = certain && !there[key]
		case "LinkLost":
			from, to, _ := strings.Cut(rest, "<->")
			lost = certain && !there[key] && there["GPULost "+from] && there["GPULost "+to]
		case "XGMIPortDown":
			lost = down[key]
			address, _, _ := strings.Cut(rest, " ")
			rest = address
		}
		switch {
		case lost && !o.told[key]:
			o.told[key] = true
			if code == "XGMIPortDown" {
				ports["Warning XGMIPortDown "+rest+" down"] = true
				continue
			}
			lines = append(lines, "Error "+code+" "+rest)
		case there[key] && o.told[key]:
			o.told[key] = false
			if code == "XGMIPortDown" {
				ports["Warning XGMIPortDown "+rest+" up"] = true
				continue
			}
			lines = append(lines, "Warning "+code+" "+rest)
		}
	}
	for line := range ports {
		lines = append(lines, strings.TrimSuffix(strings.TrimSuffix(line, " up"), " down"))
	}
	for key, is := range there {
		if _, known := o.told[key]; is && !known {
			o.told[key] = false
		}
	}
	slices.Sort(lines)
	return lines
}

func (o *teller) counters(g *discover.GPU) []string {
	if g.RAS == nil {
		return nil
	}
	var lines []string
	reset := false
	for _, c := range []struct {
		line string
		now  uint64
	}{{"Error UncorrectableErrors ", g.RAS["umc"].Uncorrectable},
		{"Warning CorrectableErrors ", g.RAS["umc"].Correctable},
		{"Error XGMIUncorrectableErrors ", *g.XGMIUncorrectableErrors},
		{"Warning PCIeReplays ", *g.Metrics.PCIeReplays}} {
		key := c.line + g.PCIAddress
		was, known := o.last[key]
		if known && c.now > was {
			lines = append(lines, key)
		}
		reset = reset || known && c.now < was
		o.last[key] = c.now
	}
	if reset {
		lines = append(lines, "Warning DriverChanged "+g.PCIAddress)
	}
	return lines
}

// TestEveryChangeIsTold: over random sequences, each look tells exactly what changed since the looks before could see
// it: nothing else, nothing twice, and nothing as lost that is only out of sight.
func TestEveryChangeIsTold(t *testing.T) {
	for seed := range uint64(300) {
		w, h, o := newWorld(seed), history{}, newTeller()
		now := time.Unix(1e9, 0)
		for look := range 120 {
			for range w.random.IntN(3) {
				w.happen()
			}
			w.veil([]int{0, 0, 20}[w.random.IntN(3)])
			f := w.facts(now)
			want := o.expect(f, w.certain())
			_, changes := h.look(f, now)
			got := codes(changes)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, look %d (-want +got):\n%s", seed, look, diff)
			}
			now = now.Add(30 * time.Second)
		}
	}
}

// TestNoWriteWhenNothingChanged: a look at a node that is as it was at the last look writes nothing, but for the
// renewal and for what ends by itself; and what is found wrong is in the report of the same look.
func TestNoWriteWhenNothingChanged(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed)
		n := &node{}
		m, clock := newTestMonitor(n, logr.Discard())
		m.cfg.Valid = 600 * time.Second
		n.facts = func() *discover.Facts { return w.facts(clock.Now()) }
		for look := range 200 {
			before := len(n.reports)
			changed := look == 0
			if w.random.IntN(4) == 0 {
				w.happen()
				w.veil([]int{0, 20}[w.random.IntN(2)])
				changed = true
			}
			written := m.at
			m.Step(context.Background())
			wrote := len(n.reports) > before
			if wrote && !changed && clock.Now().Sub(written) < m.cfg.Valid/2 {
				was, is := n.reports[before-1], n.reports[before]
				if diff := cmp.Diff(withoutProblems(was), withoutProblems(is)); diff != "" {
					t.Fatalf("seed %d, look %d wrote though nothing changed (-was +is):\n%s", seed, look, diff)
				}
				for _, p := range is.Problems {
					if !ended(was.Problems, p) {
						t.Fatalf("seed %d, look %d has a new problem though nothing changed: %+v, before %+v",
							seed, look, p, was.Problems)
					}
				}
			}
			last := n.reports[len(n.reports)-1]
			if int(last.GPUCount) != len(w.facts(clock.Now()).GPUs) {
				t.Fatalf("seed %d, look %d: %d GPUs reported of %d",
					seed, look, last.GPUCount, len(w.facts(clock.Now()).GPUs))
			}
			clock.Step(30 * time.Second)
		}
	}
}

// withoutProblems leaves out also the sums that may wait for another reason to write (TestDue).
func withoutProblems(f *v1alpha1.NodeFacts) v1alpha1.NodeFacts {
	c := *f.DeepCopy()
	c.Problems, c.ObservedTime.Time, c.XGMI.CorrectableErrors = nil, time.Time{}, nil
	if c.RAS != nil {
		c.RAS.Correctable, c.RAS.Deferred = nil, nil
	}
	return c
}

// ended says that a problem was there before, or is what is left of several that were one.
func ended(before []v1alpha1.Problem, p v1alpha1.Problem) bool {
	return slices.ContainsFunc(before, func(b v1alpha1.Problem) bool {
		return b.Code == p.Code || b.Code == v1alpha1.ProblemMoreProblems || p.Code == v1alpha1.ProblemMoreProblems
	})
}

// TestFlickerWritesLittle: what changes at every look for two hours makes a few writes beside the renewals.
func TestFlickerWritesLittle(t *testing.T) {
	for name, change := range map[string]func(f *discover.Facts, look uint64){
		"link idles": func(f *discover.Facts, look uint64) {
			if look%2 == 1 {
				f.Problems = []v1alpha1.Problem{{Severity: "Warning", Code: v1alpha1.ProblemPCIeDegraded,
					GPU: "0000:05:00.0", Message: fmt.Sprint(look%7, " GT/s")}}
			}
		},
		"hung read": func(f *discover.Facts, look uint64) {
			f.Problems = []v1alpha1.Problem{{Severity: "Error", Code: v1alpha1.ProblemReadTimeout, Path: "sys/x",
				Message: fmt.Sprint("read has not returned for ", 30*look, "s")}}
		},
		"port idles": func(f *discover.Facts, look uint64) {
			f.GPUs[0].Metrics = &discover.Metrics{XGMIPorts: []string{discover.XGMIPortUp,
				[]string{discover.XGMIPortUp, discover.XGMIPortDown}[look%2]}}
		},
		"throttled, more or less": func(f *discover.Facts, look uint64) {
			f.GPUs[0].Metrics = &discover.Metrics{AccumulationCounter: ptr.To(1000 * look),
				HotspotCelsius:       ptr.To(int64(90 + look%9)),
				ThrottleAccumulators: map[string]uint64{discover.ThrottleSocketHot: look * (100 + look%3)}}
		},
		"correctable errors": func(f *discover.Facts, look uint64) {
			f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": {Correctable: look * 3}}
			f.GPUs[0].XGMICorrectableErrors = ptr.To(look * 5)
			f.GPUs[1].Metrics = &discover.Metrics{PCIeReplays: ptr.To(look * look)}
		},
		"GPU resets": func(f *discover.Facts, look uint64) {
			f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": {Correctable: look % 2}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{}
			m, clock := newTestMonitor(n, logr.Discard())
			m.cfg.Valid = 600 * time.Second
			look := uint64(0)
			n.facts = func() *discover.Facts {
				look++
				f := twoGPUs(clock.Now())
				change(f, look)
				return f
			}
			for range 240 {
				m.Step(context.Background())
				clock.Step(30 * time.Second)
			}
			// 24 renewals, some changes at the beginning, and a new message each quarter of an hour.
			if len(n.reports) > 24+6+8+4 {
				t.Errorf("%d reports in 240 looks", len(n.reports))
			}
		})
	}
}
