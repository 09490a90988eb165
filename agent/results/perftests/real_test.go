package perftests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

func parseFile(t *testing.T, name string) results.Report {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	reports, err := Parse(name, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 1 {
		t.Fatalf("%d reports, expected 1", len(reports))
	}
	return reports[0]
}

func find(t *testing.T, r results.Report, size int64, p rcclx.Placement) results.Result {
	t.Helper()
	i := slices.IndexFunc(r.Results, func(x results.Result) bool { return x.SizeBytes == size && x.Placement == p })
	if i < 0 {
		t.Fatalf("no result of %d B %s", size, p)
	}
	return r.Results[i]
}

// The real outputs of nccl-tests on two H200: the text and the JSON of one run must agree.
func TestRealAllReduce(t *testing.T) {
	text, js := parseFile(t, "nccl-tests-2.19.6-all_reduce.txt"), parseFile(t, "nccl-tests-2.19.6-all_reduce.json")
	for name, r := range map[string]results.Report{"text": text, "json": js} {
		if r.Source != results.SourceNCCLTests || r.Ranks != 2 || r.Nodes != 1 || r.Failure != nil ||
			len(r.Warnings) != 0 || !r.Good() {
			t.Errorf("%s: source %s, %d ranks, %d nodes, failure %v, warnings %v",
				name, r.Source, r.Ranks, r.Nodes, r.Failure, r.Warnings)
		}
		if r.Library == nil || r.Library.VersionCode != 22809 || r.Library.Flavor != rcclx.FlavorNCCL {
			t.Errorf("%s: library %+v", name, r.Library)
		}
		if len(r.Devices) != 2 || r.Devices[1].Name != "NVIDIA H200" || r.Devices[1].Ordinal != 1 ||
			r.Devices[1].PCIAddress != "0000:00:07" {
			t.Errorf("%s: devices %+v", name, r.Devices)
		}
		if len(r.Results) != 20 {
			t.Fatalf("%s: %d results, expected 20", name, len(r.Results))
		}
		for _, x := range r.Results {
			wrong, checked := x.Wrong()
			if x.Collective != rcclx.AllReduce || x.Datatype != rcclx.BFloat16 || x.Op != "Sum" || wrong != 0 ||
				!checked || x.Latency.IterationsPerRepeat != 20 || x.CountElements*2 != x.SizeBytes {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
	large := find(t, text, 1<<30, rcclx.OutOfPlace)
	if large.Latency.MedianNanoseconds != 0 || large.MeanLatencyNanoseconds != 3269990 ||
		large.BusBandwidthMBps != 328362.418 || large.MeanBusBandwidthMBps != 328362.418 {
		t.Errorf("1 GiB: %+v", large)
	}
	if in := find(t, text, 8, rcclx.InPlace); in.MeanLatencyNanoseconds != 12580 {
		t.Errorf("8 B in place: %+v", in)
	}
	for _, x := range text.Results {
		y := find(t, js, x.SizeBytes, x.Placement)
		if d := x.MeanLatencyNanoseconds - y.MeanLatencyNanoseconds; d < -5 || d > 5 {
			t.Errorf("%d B %s: text %d ns, JSON %d ns",
				x.SizeBytes, x.Placement, x.MeanLatencyNanoseconds, y.MeanLatencyNanoseconds)
		}
	}
}

func TestRealAllGather(t *testing.T) {
	for _, name := range []string{"nccl-tests-2.19.6-all_gather.txt", "nccl-tests-2.19.6-all_gather.json"} {
		r := parseFile(t, name)
		// At 8 B no rank has an element: both blocks of that row are empty calls.
		if len(r.Results) != 18 || len(r.Warnings) != 1 ||
			!strings.HasPrefix(r.Warnings[0], "2 results left out: an empty call") {
			t.Errorf("%s: %d results, warnings %q", name, len(r.Results), r.Warnings)
		}
		x := find(t, r, 1<<30, rcclx.InPlace)
		if x.Op != "" || x.CountElements != 268435456 || x.BusBandwidthMBps < 295990-5 ||
			x.BusBandwidthMBps > 295990+5 {
			t.Errorf("%s: %+v", name, x)
		}
		// Every rank's result of 1 GiB is compared.
		if x.Checks[0].CheckedElements != 2*(1<<29) {
			t.Errorf("%s: checked %d elements", name, x.Checks[0].CheckedElements)
		}
	}
}

func TestRealAllToAll(t *testing.T) {
	r := parseFile(t, "nccl-tests-2.19.6-alltoall.txt")
	if len(r.Results) != 6 || r.Failure != nil {
		t.Fatalf("%d results, failure %v", len(r.Results), r.Failure)
	}
	if _, checked := find(t, r, 1<<20, rcclx.InPlace).Wrong(); checked {
		t.Error("N/A was taken for checked")
	}
	if x := find(t, r, 64<<20, rcclx.OutOfPlace); x.Collective != rcclx.AllToAll || x.Datatype != rcclx.Float32 ||
		x.BusBandwidthMBps != 240189.205 {
		t.Errorf("%+v", x)
	}
	if len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "3 of 6 results were not checked") {
		t.Errorf("warnings %q", r.Warnings)
	}
}
