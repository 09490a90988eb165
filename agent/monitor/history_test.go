package monitor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func codes(problems []v1alpha1.Problem) []string {
	lines := []string{}
	for _, p := range problems {
		lines = append(lines, strings.TrimSpace(p.Severity+" "+p.Code+" "+p.Subject()))
	}
	return lines
}

// TestHistory walks through looks; each case changes the second and later ones.
func TestHistory(t *testing.T) {
	type look struct {
		after    time.Duration
		change   func(*discover.Facts)
		problems []string
		changes  []string
	}
	counter := func(correctable, uncorrectable uint64) func(*discover.Facts) {
		return func(f *discover.Facts) {
			f.GPUs[1].XGMICorrectableErrors, f.GPUs[1].XGMIUncorrectableErrors = &correctable, &uncorrectable
		}
	}
	lose := func(f *discover.Facts) {
		f.GPUs = f.GPUs[:1]
		f.Mesh.Pairs = [][]*discover.Link{{nil}}
	}
	noLink := func(f *discover.Facts) { f.Mesh.Pairs[0][1] = nil }
	generation := func(n uint64) func(*discover.Facts) { return func(f *discover.Facts) { f.Generation = &n } }
	firmware := func(mec, sdma uint64) func(*discover.Facts) {
		return func(f *discover.Facts) {
			f.Devices = []discover.Device{{PCIAddress: "0000:05:00.0", FWVersion: &mec, SDMAVersion: &sdma}}
		}
	}
	modes := func(compute, memory string) func(*discover.Facts) {
		return func(f *discover.Facts) { f.GPUs[1].ComputePartition, f.GPUs[1].MemoryPartition = compute, memory }
	}
	ras := func(c discover.ErrorCounts) func(*discover.Facts) {
		return func(f *discover.Facts) { f.GPUs[1].RAS = map[string]discover.ErrorCounts{"umc": c} }
	}
	metrics := func(set func(*discover.Metrics)) func(*discover.Facts) {
		return func(f *discover.Facts) {
			f.GPUs[1].Metrics = &discover.Metrics{Revision: "1.7"}
			if set != nil {
				set(f.GPUs[1].Metrics)
			}
		}
	}
	cycles := func(all, memory, power uint64) func(*discover.Facts) {
		return metrics(func(m *discover.Metrics) {
			m.AccumulationCounter = &all
			m.ThrottleAccumulators = map[string]uint64{discover.ThrottleMemoryHot: memory,
				discover.ThrottlePower: power}
		})
	}
	portStates := func(letters string) func(*discover.Facts) {
		return metrics(func(m *discover.Metrics) {
			for _, l := range letters {
				m.XGMIPorts = append(m.XGMIPorts, map[rune]string{'U': discover.XGMIPortUp, 'D': discover.XGMIPortDown,
					'?': discover.XGMIPortUnknown}[l])
			}
		})
	}
	traffic := func(letters string, kb ...uint64) func(*discover.Facts) {
		return func(f *discover.Facts) {
			portStates(letters)(f)
			f.GPUs[1].Metrics.XGMIReadKB, f.GPUs[1].Metrics.XGMIWriteKB = kb, []uint64{0, 0, 0}
		}
	}
	const throttled = "Warning Throttled 0000:2b:00.0"
	const risen = "Warning XGMICorrectableErrors 0000:2b:00.0"
	for name, looks := range map[string][]look{
		"nothing": {{after: time.Minute}, {after: time.Minute}},
		"GPU lost and back": {
			{time.Minute, lose, []string{"Error GPULost 0000:2b:00.0"}, []string{"Error GPULost 0000:2b:00.0"}},
			{time.Minute, lose, []string{"Error GPULost 0000:2b:00.0"}, nil},
			{time.Minute, nil, nil, []string{"Warning GPULost 0000:2b:00.0"}},
		},
		"GPU lost that discovery names already": {{time.Minute, func(f *discover.Facts) {
			lose(f)
			f.Problems = []v1alpha1.Problem{{Code: v1alpha1.ProblemGPUNotInKFD, GPU: "0000:2b:00.0"}}
		}, nil, []string{"Error GPULost 0000:2b:00.0"}}},
		"GPU hidden is not lost": {{time.Minute,
			func(f *discover.Facts) { lose(f); f.HiddenNodes = []int{3} }, nil, nil}},
		"link lost and back": {
			{time.Minute, noLink, []string{"Error LinkLost 0000:05:00.0<->0000:2b:00.0"},
				[]string{"Error LinkLost 0000:05:00.0<->0000:2b:00.0"}},
			{time.Minute, noLink, []string{"Error LinkLost 0000:05:00.0<->0000:2b:00.0"}, nil},
			{time.Minute, nil, nil, []string{"Warning LinkLost 0000:05:00.0<->0000:2b:00.0"}},
		},
		"counters rise, hold, and calm down": {
			{time.Minute, counter(3, 0), []string{risen}, []string{risen}},
			{time.Minute, counter(3, 0), []string{risen}, nil},
			{holdTime, counter(3, 0), nil, nil},
			{time.Minute, counter(4, 0), []string{risen}, []string{risen}},
			// The GPU was reset: no rise.
			{time.Minute, counter(0, 0), []string{risen, "Warning DriverChanged 0000:2b:00.0"},
				[]string{"Warning DriverChanged 0000:2b:00.0"}},
		},
		"uncorrectable": {{time.Minute, counter(0, 2), nil, []string{"Error XGMIUncorrectableErrors 0000:2b:00.0"}}},
		"counter unread, then the same": {
			{time.Minute, func(f *discover.Facts) { f.GPUs[1].XGMICorrectableErrors = nil }, nil, nil},
			{time.Minute, nil, nil, nil}},
		"reboot forgets": {{time.Minute, func(f *discover.Facts) { lose(f); f.BootID = "boot-2" },
			nil, []string{"Warning NodeRebooted"}},
			{time.Minute, func(f *discover.Facts) { lose(f); f.BootID = "boot-2" }, nil, nil}},
		"driver changed": {
			{time.Minute, func(f *discover.Facts) { f.Driver.Version = "6.16.6" },
				[]string{"Warning DriverChanged sys/module/amdgpu"},
				[]string{"Warning DriverChanged sys/module/amdgpu"}},
			{holdTime, func(f *discover.Facts) { f.Driver.Version = "6.16.6" }, nil, nil}},
		"driver gone and back": {
			{time.Minute, func(f *discover.Facts) {
				f.Driver = discover.DriverFacts{Kind: discover.DriverNotLoaded}
				f.GPUs, f.Mesh.Pairs = nil, nil
				f.Problems = []v1alpha1.Problem{{Code: v1alpha1.ProblemDriverNotLoaded}}
			}, []string{"Error GPULost 0000:05:00.0", "Error GPULost 0000:2b:00.0",
				"Warning DriverChanged sys/module/amdgpu"}, []string{"Warning DriverChanged sys/module/amdgpu",
				"Error GPULost 0000:05:00.0", "Error GPULost 0000:2b:00.0"}},
			{time.Minute, nil, []string{"Warning DriverChanged sys/module/amdgpu"},
				[]string{"Warning DriverChanged sys/module/amdgpu", "Warning GPULost 0000:05:00.0",
					"Warning GPULost 0000:2b:00.0"}}},
		"driver loaded again between two looks": {
			{time.Minute, generation(12), nil, nil},
			{time.Minute, func(f *discover.Facts) { generation(2)(f); counter(0, 0)(f) },
				[]string{"Warning DriverChanged sys/module/amdgpu"},
				[]string{"Warning DriverChanged sys/module/amdgpu"}},
			{time.Minute, generation(3), []string{"Warning DriverChanged sys/module/amdgpu"}, nil}},
		"generation of a moving topology": {
			{time.Minute, generation(12), nil, nil},
			{time.Minute, func(f *discover.Facts) { generation(2)(f); f.GenerationStable = false }, nil, nil}},
		"version file unreadable, then as before": {
			{time.Minute, func(f *discover.Facts) { f.Driver.SrcVersion = "ABC" }, nil, nil},
			{time.Minute, func(f *discover.Facts) { f.Driver.Version = "" }, nil, nil},
			{time.Minute, func(f *discover.Facts) { f.Driver.SrcVersion = "ABC" }, nil, nil},
			{time.Minute, func(f *discover.Facts) { f.Driver.SrcVersion = "DEF" },
				[]string{"Warning DriverChanged sys/module/amdgpu"},
				[]string{"Warning DriverChanged sys/module/amdgpu"}}},
		"firmware changed": {
			{time.Minute, firmware(185, 20), nil, nil},
			{time.Minute, func(f *discover.Facts) { f.Devices = nil }, nil, nil},
			{time.Minute, firmware(190, 20), []string{"Warning DriverChanged"}, []string{"Warning DriverChanged"}}},
		"repartition": {
			{time.Minute, modes("SPX", "NPS1"), nil, nil},
			{time.Minute, modes("", ""), nil, nil},
			{time.Minute, modes("CPX", "NPS1"), []string{"Warning Repartitioned 0000:2b:00.0"},
				[]string{"Warning Repartitioned 0000:2b:00.0"}},
			{time.Minute, modes("CPX", "NPS4"), []string{"Warning Repartitioned 0000:2b:00.0"},
				[]string{"Warning Repartitioned 0000:2b:00.0"}},
			{holdTime, modes("CPX", "NPS4"), nil, nil}},
		"RAS of every block": {
			{time.Minute, ras(discover.ErrorCounts{}), nil, nil},
			{time.Minute, ras(discover.ErrorCounts{Correctable: 3}), []string{"Warning CorrectableErrors 0000:2b:00.0"},
				[]string{"Warning CorrectableErrors 0000:2b:00.0"}},
			{time.Minute, ras(discover.ErrorCounts{Correctable: 3, Deferred: ptr.To[uint64](1)}),
				[]string{"Warning CorrectableErrors 0000:2b:00.0"}, nil},
			{time.Minute, ras(discover.ErrorCounts{Correctable: 3, Deferred: ptr.To[uint64](2)}),
				[]string{"Warning CorrectableErrors 0000:2b:00.0"}, []string{"Warning DeferredErrors 0000:2b:00.0"}},
			{holdTime, ras(discover.ErrorCounts{Correctable: 3, Deferred: ptr.To[uint64](2), Uncorrectable: 1}), nil,
				[]string{"Error UncorrectableErrors 0000:2b:00.0"}},
			{time.Minute, nil, nil, nil}, // not read
			{time.Minute, ras(discover.ErrorCounts{Correctable: 1, Deferred: ptr.To[uint64](2), Uncorrectable: 1}),
				[]string{"Warning DriverChanged 0000:2b:00.0"}, []string{"Warning DriverChanged 0000:2b:00.0"}}},
		"retired pages": {
			{time.Minute, func(f *discover.Facts) { f.GPUs[1].RetiredPages = ptr.To(1) }, nil, nil},
			{time.Minute, func(f *discover.Facts) { f.GPUs[1].RetiredPages = ptr.To(3) }, nil,
				[]string{"Warning RetiredPages 0000:2b:00.0"}},
			{time.Minute, func(f *discover.Facts) { f.GPUs[1].RetiredPages = ptr.To(0) }, nil, nil}},
		"PCIe replays": {
			{time.Minute, metrics(func(m *discover.Metrics) { m.PCIeReplays = ptr.To[uint64](7) }), nil, nil},
			{time.Minute, metrics(nil), nil, nil},
			{time.Minute, metrics(func(m *discover.Metrics) { m.PCIeReplays = ptr.To[uint64](8) }),
				[]string{"Warning PCIeReplays 0000:2b:00.0"}, []string{"Warning PCIeReplays 0000:2b:00.0"}}},
		"throttle status": {
			{time.Minute, metrics(func(m *discover.Metrics) { m.ThrottleStatus = ptr.To[uint64](0) }), nil, nil},
			{time.Minute, metrics(func(m *discover.Metrics) { m.ThrottleStatus = ptr.To[uint64](2) }),
				[]string{throttled}, []string{throttled}},
			{time.Minute, metrics(func(m *discover.Metrics) { m.ThrottleStatus = ptr.To[uint64](0) }),
				[]string{throttled}, nil},
			{holdTime, nil, nil, nil}},
		"throttle residency": {
			{time.Minute, cycles(1000, 500, 0), nil, nil}, // what was before is not known to be now
			{time.Minute, cycles(2000, 509, 99), nil, nil},
			{time.Minute, cycles(3000, 519, 99), []string{throttled}, []string{throttled}},
			{time.Minute, nil, []string{throttled}, nil},
			{holdTime, cycles(4000, 519, 198), nil, nil},
			{time.Minute, cycles(5000, 519, 298), []string{throttled}, []string{throttled}}},
		"firmware counts again": {
			{time.Minute, cycles(1000, 500, 0), nil, nil},
			{time.Minute, cycles(100, 50, 0), []string{"Warning DriverChanged 0000:2b:00.0"},
				[]string{"Warning DriverChanged 0000:2b:00.0"}},
			{time.Minute, cycles(200, 50, 0), []string{"Warning DriverChanged 0000:2b:00.0"}, nil}},
		"firmware's counter overflows": {{time.Minute, cycles(1<<32-2, 0, 0), nil, nil},
			{time.Minute, cycles(5, 0, 0), nil, nil}},
		"port down and back": {
			{time.Minute, portStates("UD?"), nil, nil},
			{time.Minute, portStates("?DU"), nil, nil},
			{time.Minute, portStates("DDD"), []string{"Warning XGMIPortDown 0000:2b:00.0"},
				[]string{"Warning XGMIPortDown 0000:2b:00.0"}},
			{time.Minute, nil, nil, nil}, // not read
			{time.Minute, portStates("UUU"), nil, []string{"Warning XGMIPortDown 0000:2b:00.0"}}},
		"port dead under load": {
			{time.Minute, traffic("UUU", 100, 100, 100), nil, nil},
			{time.Minute, traffic("UDU", 100, 100, 100), []string{"Warning XGMIPortDown 0000:2b:00.0"},
				[]string{"Warning XGMIPortDown 0000:2b:00.0"}},
			// it carried something
			{time.Minute, traffic("UDU", 1e6, 101, 100), []string{"Warning XGMIPortDown 0000:2b:00.0"}, nil},
			{time.Minute, traffic("UDU", 2e6, 101, 100), []string{"Error XGMIPortDown 0000:2b:00.0"},
				[]string{"Error XGMIPortDown 0000:2b:00.0"}},
			{time.Minute, traffic("UDU", 2e6, 101, 100), []string{"Error XGMIPortDown 0000:2b:00.0"}, nil},
			{time.Minute, traffic("UUU", 2e6, 101, 100), nil, []string{"Warning XGMIPortDown 0000:2b:00.0"}}},
		"driver unreadable is no change": {{time.Minute, func(f *discover.Facts) {
			f.Driver = discover.DriverFacts{Kind: discover.DriverUnknown}
		}, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			h := history{}
			if problems, changes := h.look(twoGPUs(now), now); len(problems)+len(changes) > 0 {
				t.Fatalf("first look: %v, %v", problems, changes)
			}
			for i, l := range looks {
				now = now.Add(l.after)
				f := twoGPUs(now)
				if l.change != nil {
					l.change(f)
				}
				problems, changes := h.look(f, now)
				if diff := cmp.Diff(append([]string{}, l.problems...), codes(problems)); diff != "" {
					t.Errorf("look %d: problems (-want +got):\n%s", i, diff)
				}
				if diff := cmp.Diff(append([]string{}, l.changes...), codes(changes)); diff != "" {
					t.Errorf("look %d: changes (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestMessages: what a user reads, with units, the cause and what to do.
func TestMessages(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := history{}
	f := twoGPUs(now)
	f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": {}, "gfx": {}}
	f.GPUs[0].Metrics = &discover.Metrics{AccumulationCounter: ptr.To[uint64](1000),
		ThrottleAccumulators: map[string]uint64{discover.ThrottleMemoryHot: 0, discover.ThrottlePower: 0}}
	h.look(f, now)
	now = now.Add(30 * time.Second)
	f = twoGPUs(now)
	f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": {Correctable: 4}, "gfx": {Correctable: 1}}
	f.GPUs[0].Metrics = &discover.Metrics{AccumulationCounter: ptr.To[uint64](2000), HotspotCelsius: ptr.To[int64](107),
		ThrottleAccumulators: map[string]uint64{discover.ThrottleMemoryHot: 370, discover.ThrottlePower: 120}}
	problems, _ := h.look(f, now)
	want := []v1alpha1.Problem{
		{Severity: "Warning", Code: "CorrectableErrors", GPU: "0000:05:00.0",
			Message: "At 2001-09-09T01:47:10Z: Correctable errors rise, by block: gfx 1, umc 4 more in 30s. " +
				"Hardware repaired them: watch the kernel log for uncorrectable ones, and measure this GPU."},
		{Severity: "Warning", Code: "Throttled", GPU: "0000:05:00.0", Message: "At 2001-09-09T01:47:10Z: " +
			"Throttled: 37 % of the time by the memory's temperature, 12 % of the time by the power limit; " +
			"hotspot 107 C, memory unknown. Expected full clocks: look at fans, inlet air and power supply. " +
			"At the power limit alone the GPU is sound, and results of this time are lower than it can do."},
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFolding: what befalls every GPU is one problem with all their addresses, and a worse one changes its message.
func TestFolding(t *testing.T) {
	now := time.Unix(1e9, 0)
	look := func(h *history, cycles, hot, hotOfThird uint64) []v1alpha1.Problem {
		f := twoGPUs(now)
		f.GPUs, f.Mesh.Pairs = nil, nil
		for i := range 8 {
			n := hot
			if i == 3 {
				n = hotOfThird
			}
			f.GPUs = append(f.GPUs, discover.GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", i),
				Metrics: &discover.Metrics{AccumulationCounter: &cycles,
					ThrottleAccumulators: map[string]uint64{discover.ThrottleSocketHot: n}}})
		}
		problems, _ := h.look(f, now)
		now = now.Add(30 * time.Second)
		return problems
	}
	h := history{}
	look(&h, 1000, 0, 0)
	first := look(&h, 2000, 20, 20) // 2 %
	if len(first) != 1 || first[0].Subject() != "0000:00:00.0 0000:01:00.0 0000:02:00.0 0000:03:00.0 0000:04:00.0 "+
		"0000:05:00.0 0000:06:00.0 0000:07:00.0" || !strings.HasPrefix(first[0].Message, "8 of this kind; "+
		"0000:00:00.0: At 2001-09-09T01:47:10Z: Throttled: 2 % of the time by the socket's temperature") {
		t.Fatalf("problems %+v", first)
	}
	if again := look(&h, 3000, 60, 60); !cmp.Equal(first, again) { // 4 %: as bad as before
		t.Errorf("facts changed:\n%s", cmp.Diff(first, again))
	}
	worse := look(&h, 4000, 100, 760) // 70 %
	if len(worse) != 1 ||
		!strings.HasPrefix(worse[0].Message, "8 of this kind; 0000:03:00.0: At 2001-09-09T01:48:10Z: Throttled: 70 %") {
		t.Errorf("problems %+v", worse)
	}
}

// TestFoldedSubjects: what is folded keeps its GPUs, and links their pairs.
func TestFoldedSubjects(t *testing.T) {
	problem := func(gpu, peer string) v1alpha1.Problem {
		return v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemLinkLost, GPU: gpu,
			PeerGPU: peer, Message: "Gone."}
	}
	folded := func(message string, gpus ...string) v1alpha1.Problem {
		return v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemLinkLost,
			GPUs: gpus, Message: message}
	}
	var many []v1alpha1.Problem
	for i := range 8 {
		many = append(many, problem("0000:05:00.0", fmt.Sprintf("0000:%02x:00.0", 16+i)))
	}
	for name, c := range map[string]struct {
		alike []v1alpha1.Problem
		want  v1alpha1.Problem
	}{
		"links": {[]v1alpha1.Problem{problem("b", "c"), problem("a", "b"), problem("a", "c")},
			folded("3 of this kind; a<->b a<->c b<->c: Gone.", "a", "b", "c")},
		"GPUs": {[]v1alpha1.Problem{problem("b", ""), problem("a", ""), problem("c", "")},
			folded("3 of this kind; b: Gone.", "a", "b", "c")},
		"nothing": {[]v1alpha1.Problem{problem("", ""), problem("a", ""), problem("", "")},
			folded("3 of this kind: Gone.", "a")},
		"many links": {many, folded("8 of this kind; 0000:05:00.0<->0000:10:00.0 "+
			"0000:05:00.0<->0000:11:00.0 0000:05:00.0<->0000:12:00.0 0000:05:00.0<->0000:13:00.0 ...: Gone.",
			"0000:05:00.0", "0000:10:00.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0", "0000:14:00.0",
			"0000:15:00.0", "0000:16:00.0", "0000:17:00.0")},
	} {
		if diff := cmp.Diff([]v1alpha1.Problem{c.want}, foldMany(c.alike)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRates: an event that goes on keeps its message, until its rate is ten times worse.
func TestRates(t *testing.T) {
	now := time.Unix(1e9, 0)
	h, sum := history{}, uint64(0)
	look := func(more uint64) string {
		sum += more
		f := twoGPUs(now)
		f.GPUs[0].RAS = map[string]discover.ErrorCounts{"umc": {Correctable: sum}, "gfx": {Correctable: sum / 2}}
		problems, _ := h.look(f, now)
		now = now.Add(30 * time.Second)
		if len(problems) == 0 {
			return ""
		}
		return problems[0].Message
	}
	look(0)
	first := look(2) // 240 an hour
	for _, more := range []uint64{0, 3, 0, 8} {
		if again := look(more); again != first {
			t.Errorf("message changed with %d more errors: %q, before %q", more, again, first)
		}
	}
	if worse := look(90); worse == first || !strings.Contains(worse, "umc 90 more in 30s") {
		t.Errorf("message %q after 90 more errors", worse)
	}
}
