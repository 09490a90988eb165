package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestRestart: what changed while no monitor ran is told by the next one, once, from the facts that the CommNode holds.
func TestRestart(t *testing.T) {
	const first, second = "0000:05:00.0", "0000:2b:00.0"
	all := "0000:05:00.0 0000:2b:00.0 0000:5b:00.0 0000:65:00.0 0000:7d:00.0 0000:a5:00.0 0000:d5:00.0 0000:e7:00.0"
	type change = func(*nodetree.Node)
	reboot := func(n *nodetree.Node) { n.BootID = "00000000-0000-4000-8000-000000000002" }
	missing := func(n *nodetree.Node) { n.GPUs[1].Missing = true }
	hideLink := func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 0, B: 1, Kind: nodetree.LinkNone}} }
	for name, c := range map[string]struct {
		before, meanwhile change
		edit              func(*v1alpha1.NodeFacts) // of what the CommNode holds
		lastErr           error
		want              []string // problems of the report
		changes           []string // in the log
	}{
		"nothing": {},
		"nothing, partitioned": {before: func(n *nodetree.Node) { n.Partition = nodetree.CPX },
			meanwhile: func(n *nodetree.Node) { n.Partition = nodetree.CPX }},
		"rebooted": {meanwhile: reboot, changes: []string{"NodeRebooted"}},
		"rebooted without a GPU": {meanwhile: func(n *nodetree.Node) { reboot(n); missing(n) },
			want: []string{"Warning GPUMissing"}, changes: []string{"NodeRebooted"}},
		"GPU lost": {meanwhile: missing,
			want: []string{"Error GPULost " + second, "Warning GPUMissing"}, changes: []string{"GPULost " + second}},
		"GPU lost, and the facts are gone": {meanwhile: missing, lastErr: errors.New("no API server"),
			want: []string{"Warning GPUMissing"}},
		"GPU lost, and nothing was written": {meanwhile: missing,
			edit: func(f *v1alpha1.NodeFacts) { *f = v1alpha1.NodeFacts{} }, want: []string{"Warning GPUMissing"}},
		"GPU lost, and the boot was not known": {meanwhile: missing,
			edit: func(f *v1alpha1.NodeFacts) { f.BootID = "" }, want: []string{"Warning GPUMissing"}},
		"facts of another origin": {meanwhile: missing, edit: func(f *v1alpha1.NodeFacts) {
			f.Origin = v1alpha1.OriginHardware
		}, want: []string{"Warning GPUMissing"}},
		"link gone": {meanwhile: hideLink,
			want:    []string{"Error LinkMissing " + first + "<->" + second},
			changes: []string{"LinkLost " + first + "<->" + second, "LinkLost " + second + "<->" + first}},
		"driver": {meanwhile: func(n *nodetree.Node) { n.DriverVersion = "6.16.6" },
			want:    []string{"Warning DriverChanged sys/module/amdgpu"},
			changes: []string{"DriverChanged sys/module/amdgpu"}},
		"driver was not known": {meanwhile: func(n *nodetree.Node) { n.DriverVersion = "6.16.6" },
			edit: func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: discover.DriverUnknown} }},
		"firmware of all": {meanwhile: func(n *nodetree.Node) {
			for i := range n.GPUs {
				n.GPUs[i].Firmware = 999
			}
		}, want: []string{"Warning DriverChanged"}, changes: []string{"DriverChanged"}},
		"firmware was mixed": {meanwhile: func(n *nodetree.Node) {
			for i := range n.GPUs {
				n.GPUs[i].Firmware = 999
			}
		}, edit: func(f *v1alpha1.NodeFacts) { f.Firmware.MEC = discover.Mixed }},
		"repartitioned": {meanwhile: func(n *nodetree.Node) { n.Partition = nodetree.DPX },
			want: []string{"Warning Repartitioned " + all}, changes: []string{"Repartitioned"}},
		"mode was not known": {meanwhile: func(n *nodetree.Node) { n.Partition = nodetree.DPX },
			edit: func(f *v1alpha1.NodeFacts) { f.Partition = "unknown/NPS1" }},
		"still lost": {before: missing, meanwhile: missing, edit: func(f *v1alpha1.NodeFacts) {
			f.LostGPUs = []string{second}
		}, want: []string{"Error GPULost " + second, "Warning GPUMissing"}},
		"back": {before: missing, edit: func(f *v1alpha1.NodeFacts) {
			f.LostGPUs = []string{second}
		}, changes: []string{"GPULost " + second}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			generate := func(by change) discover.FS {
				n, err := nodetree.Defaults("MI300X")
				if err != nil {
					t.Fatal(err)
				}
				n.Name = "node-a"
				if by != nil {
					by(&n)
				}
				tree, err := nodetree.Generate(n)
				if err != nil {
					t.Fatal(err)
				}
				return tree
			}
			before := &node{}
			m, _ := newTestMonitor(before, logr.Discard())
			m.cfg.Scanner = discover.NewScanner(generate(c.before), discover.Options{})
			m.Step(context.Background())
			last := before.reports[0]
			if c.edit != nil {
				c.edit(last)
			}
			var log []string
			after := &node{last: last, lastErr: c.lastErr}
			m, clock := newTestMonitor(after, funcr.New(func(_, args string) {
				log = append(log, args)
			}, funcr.Options{}))
			m.cfg.Scanner, m.cfg.Valid = discover.NewScanner(generate(c.meanwhile), discover.Options{}), time.Hour
			m.Step(context.Background())
			if diff := cmp.Diff(append([]string{}, c.want...), codes(after.reports[0].Problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			changes := func() (lines []string) {
				for _, line := range log {
					if strings.Contains(line, `"msg"="change"`) {
						lines = append(lines, line)
					}
				}
				return lines
			}
			told := changes()
			for _, want := range c.changes {
				code, subject, _ := strings.Cut(want, " ")
				found := false
				for _, line := range told {
					found = found || strings.Contains(line, `"code"="`+code+`"`) &&
						strings.Contains(line, `"subject"="`+subject)
				}
				if !found {
					t.Errorf("change %s is not in the log: %v", want, told)
				}
			}
			if len(c.changes) == 0 && len(told) > 0 {
				t.Errorf("changes %v, want none", told)
			}
			clock.Step(30 * time.Second)
			m.Step(context.Background())
			if len(changes()) != len(told) || len(after.reports) != 1 {
				t.Errorf("told again: %v, %d reports", changes()[len(told):], len(after.reports))
			}
		})
	}
}

// TestFirstScanFails: the facts of the earlier monitor outlive a report that writes over them.
func TestFirstScanFails(t *testing.T) {
	n := &node{scanErr: errors.New("hung")}
	m, clock := newTestMonitor(n, logr.Discard())
	n.last = twoGPUs(clock.Now().Add(-time.Hour)).NodeFacts(time.Hour)
	m.Step(context.Background())
	if len(n.reports) != 1 || n.reports[0].GPUCount != 0 {
		t.Fatalf("reports %+v", n.reports)
	}
	n.last, n.scanErr = n.reports[0], nil
	n.facts = func() *discover.Facts {
		f := twoGPUs(clock.Now())
		f.GPUs, f.Mesh.Pairs = f.GPUs[:1], [][]*discover.Link{{nil}}
		return f
	}
	clock.Step(30 * time.Second)
	m.Step(context.Background())
	last := n.reports[len(n.reports)-1]
	if diff := cmp.Diff([]string{"Error GPULost 0000:2b:00.0"}, codes(last.Problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if len(last.Problems) == 1 &&
		!strings.Contains(last.Problems[0].Message, "This MI300X was here at 2001-09-09T00:46:40Z") {
		t.Errorf("message %q", last.Problems[0].Message)
	}
}

// TestLostLinksOutliveTheMonitor: however many links and GPUs are lost, a monitor that restarts knows all of them, by
// the facts alone and within their size.
func TestLostLinksOutliveTheMonitor(t *testing.T) {
	const count = 8
	mesh := func(now time.Time, gone func(i, j int) bool) *discover.Facts {
		f := twoGPUs(now)
		gpu := f.GPUs[0]
		f.GPUs, f.Mesh.Pairs = nil, make([][]*discover.Link, count)
		for i := range count {
			gpu.PCIAddress = fmt.Sprintf("0000:%02x:00.0", 16*i+5)
			f.GPUs = append(f.GPUs, gpu)
			f.Mesh.Pairs[i] = make([]*discover.Link, count)
			for j := range count {
				if i != j && !gone(i, j) {
					f.Mesh.Pairs[i][j] = &discover.Link{Type: discover.LinkXGMI, Weight: 15}
				}
			}
		}
		return f
	}
	for name, gone := range map[string]func(i, j int) bool{
		"one": func(i, j int) bool { return i+j == 1 },
		"ten": func(i, j int) bool { return (i+j)%4 == 1 || (i+j) == 2 || (i+j) == 12 && i*j == 35 },
		"all": func(int, int) bool { return true },
	} {
		start := time.Unix(1e9, 0)
		h := newHistory()
		h.look(mesh(start, func(int, int) bool { return false }), start)
		lost := mesh(start, gone)
		h.look(lost, start)
		written := lost.NodeFacts(time.Minute)
		data, err := json.Marshal(written)
		if err != nil || len(data) > discover.FactsBudgetBytes {
			t.Fatalf("%s: %v, %d bytes", name, err, len(data))
		}
		want := map[link]bool{}
		for i := range count {
			for j := range count {
				if i != j && (gone(i, j) || gone(j, i)) {
					want[link{lost.GPUs[i].PCIAddress, lost.GPUs[j].PCIAddress}] = true
				}
			}
		}
		for range 3 { // restarts, one after the other
			after := mesh(start, gone)
			restarted := earlier(written, after)
			restarted.look(after, start)
			got := map[link]bool{}
			for _, k := range restarted.links.lost(compareLinks) {
				got[k] = true
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(link{})); diff != "" {
				t.Fatalf("%s: lost links after a restart (-want +got):\n%s", name, diff)
			}
			written = after.NodeFacts(time.Minute)
		}
	}
}

// TestLinksOfLostGPUsOutliveTheMonitor: a GPU that comes back without its links is told of, however often the monitor
// restarted.
func TestLinksOfLostGPUsOutliveTheMonitor(t *testing.T) {
	linked := func(now time.Time) *discover.Facts {
		f := twoGPUs(now)
		link := &discover.Link{Type: discover.LinkXGMI, Weight: 15}
		f.Mesh.Pairs = [][]*discover.Link{{nil, link}, {link, nil}}
		return f
	}
	for name, tc := range map[string]struct {
		restarts int
		links    bool // after the GPU's return
	}{"no restart": {0, false}, "one restart": {1, false}, "three restarts": {3, false},
		"the links are back as well": {3, true}} {
		start := time.Unix(1e9, 0)
		h := newHistory()
		h.look(linked(start), start)
		one := func() *discover.Facts {
			f := twoGPUs(start)
			f.GPUs, f.Mesh.Pairs = f.GPUs[:1], [][]*discover.Link{{nil}}
			return f
		}
		lost := one()
		h.look(lost, start)
		for range tc.restarts {
			last := lost.NodeFacts(time.Minute)
			lost = one()
			h = earlier(last, lost)
			h.look(lost, start)
		}
		back := linked(start)
		if !tc.links {
			back.Mesh.Pairs = [][]*discover.Link{{nil, nil}, {nil, nil}}
		}
		problems, changes := h.look(back, start)
		for what, list := range map[string][]v1alpha1.Problem{"problems": problems, "changes": changes} {
			told := slices.ContainsFunc(list, func(p v1alpha1.Problem) bool {
				return p.Code == v1alpha1.ProblemLinkLost
			})
			if told == tc.links {
				t.Errorf("%s: the lost link is told of in %s: %v, expected %v: %+v", name, what, told, !tc.links, list)
			}
		}
	}
}

// TestLostGPUsOutliveTheMonitor: the same for GPUs, of which a folded problem names but some.
func TestLostGPUsOutliveTheMonitor(t *testing.T) {
	start := time.Unix(1e9, 0)
	all := make([]string, 14)
	for i := range all {
		all[i] = fmt.Sprintf("0000:%02x:00.0", 16*i+6)
	}
	now := twoGPUs(start)
	now.LostGPUs = all
	for range 3 {
		last := now.NodeFacts(time.Minute)
		now = twoGPUs(start)
		h := earlier(last, now)
		h.look(now, start)
		if diff := cmp.Diff(all, now.LostGPUs); diff != "" {
			t.Fatalf("lost GPUs after a restart (-want +got):\n%s", diff)
		}
	}
}

// FuzzEarlier: whatever a CommNode holds, the first look after it ends, and facts that say nothing of a GPU lose none.
func FuzzEarlier(f *testing.F) {
	f.Add("SPX/NPS1", "185", "ab-", "a", "XGMI", "0000:05:00.0", ".x", int32(8))
	f.Add("/", "-1", "", "", "", "", "xxxxxxxxxxxxxxxxxxx", int32(-5))
	f.Fuzz(func(t *testing.T, partition, firmware, links, letter, kind, lost, lostLinks string, devices int32) {
		now := twoGPUs(time.Unix(1e9, 0))
		last := now.NodeFacts(time.Minute)
		last.Partition, last.Firmware = partition, &v1alpha1.FirmwareFacts{MEC: firmware, SDMA: firmware}
		last.GPUs[0].Links, last.GPUs[0].Devices, last.LinkClasses = links, devices%64,
			[]v1alpha1.LinkClass{{Letter: letter, Type: kind}}
		last.LostGPUs, last.GPUs[0].LostLinks = []string{lost}, lostLinks
		h := earlier(last, now)
		problems, _ := h.look(now, now.ObservedTime)
		for _, p := range problems {
			if p.Code == v1alpha1.ProblemGPULost &&
				(p.Subject() != lost || p.GPU == "0000:05:00.0" || p.GPU == "0000:2b:00.0") {
				t.Errorf("%+v from %q", p, lost)
			}
		}
	})
}
