package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// saved is a group that the simulator made, with its CommTasks and CommNodes: one link of sim-node-2 is slow.
func saved(t *testing.T) (*state.Group, []client.Object) {
	t.Helper()
	data, err := os.ReadFile("testdata/simulated-slow-link.json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var group *v1alpha1.CommGroup
	var runs []v1alpha1.CommRun
	var others []client.Object
	for _, raw := range list.Items {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(raw, &kind); err != nil {
			t.Fatal(err)
		}
		var o client.Object
		switch kind.Kind {
		case "CommTask":
			o = &v1alpha1.CommTask{}
		case "CommNode":
			o = &v1alpha1.CommNode{}
		case "CommRun":
			o = &v1alpha1.CommRun{}
		default:
			o = &v1alpha1.CommGroup{}
		}
		if err := json.Unmarshal(raw, o); err != nil {
			t.Fatal(err)
		}
		switch o := o.(type) {
		case *v1alpha1.CommGroup:
			group = o
		case *v1alpha1.CommRun:
			runs = append(runs, *o)
		default:
			others = append(others, o)
		}
	}
	if group == nil || group.Status.Origin != v1alpha1.OriginSimulated || len(state.RunsOf(group, runs)) != 1 ||
		len(others) != 8 {
		t.Fatalf("testdata has group %v, %d runs and %d others, want a simulated one with its run, and a CommTask "+
			"and a CommNode of 4 nodes", group != nil, len(runs), len(others))
	}
	return state.Join(group, runs), others
}

// cli is a cluster that the commands talk to.
type cli struct {
	t       *testing.T
	options *options
	clock   *clocktesting.FakeClock
	group   *state.Group
}

func newCLI(t *testing.T, change func(*state.Group), more ...client.Object) *cli {
	t.Helper()
	group, others := saved(t)
	if change != nil {
		change(group)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme,
		coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	g, run := group.Objects()
	objects := append(append(slices.Clone(more), g, run), others...)
	for _, o := range objects {
		o.SetResourceVersion("")
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.CommGroup{}, &v1alpha1.CommRun{}).
		WithIndex(&v1alpha1.CommGroup{}, "metadata.name", byName).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).Build()
	clock := clocktesting.NewFakeClock(group.Status.Run.StartTime.Add(2 * time.Minute))
	return &cli{t: t, options: &options{client: c, clock: clock}, clock: clock, group: group}
}

// run runs one command line and gives what it printed and its exit code.
func (c *cli) run(args ...string) (string, string, int) {
	c.t.Helper()
	var out, errs bytes.Buffer
	o := *c.options
	root := rootCommand(&o)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err := root.ExecuteContext(c.t.Context())
	if err != nil {
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), exitCode(err)
}

// earlier is the CommRun of a run before the saved one, with other latencies.
func earlier(t *testing.T, id string, scale int64) *v1alpha1.CommRun {
	t.Helper()
	group, _ := saved(t)
	_, r := group.Objects()
	r.Name, r.Status.ID, r.Status.Number, r.Status.Verdict = "kept-"+id, id, 0, v1alpha1.VerdictPass
	for i := range r.Status.Results {
		for j := range r.Status.Results[i].LatencyNanoseconds {
			r.Status.Results[i].LatencyNanoseconds[j] = r.Status.Results[i].LatencyNanoseconds[j] * scale / 100
			r.Status.Results[i].BusBandwidthMBps[j] = r.Status.Results[i].BusBandwidthMBps[j] * 100 / scale
		}
	}
	return r
}

// TestGolden holds whole outputs against testdata/golden; -update writes them.
func TestGolden(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"status":   {[]string{"status", "mi300x"}, 1},
		"groups":   {[]string{"status", "-A"}, 1},
		"topology": {[]string{"topology", "sim-node-2"}, 0},
		"results":  {[]string{"results", "mi300x", "--collective", "allreduce"}, 0},
		"results-csv": {[]string{"results", "mi300x", "--node", "sim-node-2", "--variant", "DDA",
			"--collective", "AllReduce", "-o", "csv"}, 0},
		"explain": {[]string{"explain", "mi300x"}, 0},
		"compare": {[]string{"compare", "mi300x", "--collective", "AllReduce"}, 0},
		"runs":    {[]string{"compare", "--list", "mi300x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := newCLI(t, nil, earlier(t, "1-0", 80)).run(tc.args...)
			if code != tc.code {
				t.Fatalf("exit code %d, want %d: %s", code, tc.code, errs)
			}
			file := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out != string(want) {
				t.Errorf("%s differs from (-update writes it anew)\n%s\ngot\n%s", strings.Join(tc.args, " "), want, out)
			}
		})
	}
}

func TestExitCodesAndErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		change func(*state.Group)
		code   int
		want   string
	}{
		"no such group": {[]string{"status", "nope"}, nil, 2,
			"no CommGroup nope in namespace default; it has mi300x"},
		"bad output":      {[]string{"status", "mi300x", "-o", "xml"}, nil, 2, "table, json or yaml"},
		"bad colour":      {[]string{"status", "--color", "pink"}, nil, 2, "auto, always or never"},
		"no such node":    {[]string{"topology", "nope"}, nil, 2, "neither a member"},
		"no such setting": {[]string{"explain", "mi300x", "nope"}, nil, 2, "no setting nope; it has"},
		"no such collective": {[]string{"results", "mi300x", "--collective", "nope"}, nil, 2,
			"no results of variant any and collective nope; CommGroup default/mi300x has variants Baseline, DDA, " +
				"LowPrecision and collectives AllGather, AllReduce"},
		"compares no such": {[]string{"compare", "mi300x", "--collective", "nope"}, nil, 2, "neither run has variant " +
			"any and collective nope; they have AllReduce BFloat16 Baseline, AllGather BFloat16 Baseline"},
		"no such variant": {[]string{"results", "mi300x", "--node", "sim-node-1", "--variant", "nope"}, nil, 2,
			"node sim-node-1 has variants Baseline, DDA, LowPrecision"},
		"run not kept": {[]string{"compare", "mi300x/1-7", "1-1"}, nil, 2,
			"run 1-7 of default/mi300x is not kept; kept are 1-1, 1-0"},
		"one run":            {[]string{"compare", "mi300x/1-1"}, nil, 2, "name a second one"},
		"the same run":       {[]string{"compare", "mi300x/1-1", "1-1"}, nil, 2, "are one run"},
		"run of which group": {[]string{"compare", "1-1", "1-0"}, nil, 2, "run 1-1 of which group? Write GROUP/1-1"},
		"got slower": {[]string{"compare", "mi300x", "--fail-above", "5"}, nil, 1,
			"run B is worse than run A by more than 5 %"},
		"suspended": {[]string{"run", "mi300x"}, func(g *state.Group) { g.Spec.Run.State = v1alpha1.RunSuspended },
			2, "is suspended"},
		"no manager": {[]string{"run", "mi300x", "--answer-timeout", "1ms"}, nil, 2,
			"no manager has answered within 1ms"},
		"over": {[]string{"wait", "mi300x"}, nil, 1, ""},
		"waiting without end": {[]string{"wait", "mi300x", "--timeout", "1ms"},
			func(g *state.Group) { g.Generation = 9 }, 2, "gave up after 1ms; last seen: no run is going on"},
		"waiting, and suspended": {[]string{"wait", "mi300x"},
			func(g *state.Group) { g.Generation, g.Spec.Run.State = 9, v1alpha1.RunSuspended }, 2, "is suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, code := newCLI(t, tc.change, earlier(t, "1-0", 80)).run(tc.args...)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("exit code %d, want %d; %q, want %q", code, tc.code, errs, tc.want)
			}
		})
	}
}

// TestNothingIsNoYes: where there is nothing to tell, no command says so by exit code 0 or by an empty table.
func TestNothingIsNoYes(t *testing.T) {
	empty := func(g *state.Group) {
		g.Status = state.Status{Run: g.Status.Run, Conditions: g.Status.Conditions}
	}
	unfinished := func(g *state.Group) { g.Status.Run.Phase = v1alpha1.RunPhaseRunning }
	for name, tc := range map[string]struct {
		args   []string
		change func(*state.Group)
		want   string
	}{
		"no group": {[]string{"status", "-n", "nowhere"}, nil, "no CommGroup in namespace nowhere"},
		"no group, as JSON": {[]string{"status", "-n", "nowhere", "-o", "json"}, nil,
			"no CommGroup in namespace nowhere"},
		"no results": {[]string{"results", "mi300x"}, empty,
			"CommGroup default/mi300x has no results yet: Validated is False"},
		"no results, as CSV": {[]string{"results", "mi300x", "-o", "csv"}, empty, "has no results yet"},
		"no run to list":     {[]string{"compare", "--list", "mi300x"}, unfinished, "has finished no run"},
		"no settings":        {[]string{"explain", "mi300x"}, empty, "tells of no settings yet"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := newCLI(t, tc.change).run(tc.args...)
			if code != exitFailed || !strings.Contains(errs, tc.want) {
				t.Errorf("exit code %d, want %d; %q, want %q", code, exitFailed, errs, tc.want)
			}
			if strings.Contains(out, "SIZE") || strings.Contains(out, "sizeBytes") {
				t.Errorf("a table of nothing:\n%s", out)
			}
		})
	}
}

// TestSaysWhereNoManagerIs: a lease that nobody renews is told by what shows or awaits a status, and a fresh one is
// not.
func TestSaysWhereNoManagerIs(t *testing.T) {
	group, _ := saved(t)
	now := group.Status.Run.StartTime.Add(2 * time.Minute)
	lease := func(age time.Duration) *coordinationv1.Lease {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(-age)}}}
		l.Namespace, l.Name = "commgroup-system", v1alpha1.ManagerLease
		return l
	}
	other := lease(time.Hour)
	other.Namespace, other.Name = "kube-system", "another"
	for name, args := range map[string][]string{"status": {"status"}, "status of one": {"status", "mi300x"},
		"wait": {"wait", "mi300x", "--timeout", "50ms"}} {
		t.Run(name, func(t *testing.T) {
			for silent, leases := range map[bool][]client.Object{true: {lease(10 * time.Minute)},
				false: {lease(5 * time.Second), other}} {
				out, errs, code := newCLI(t, func(g *state.Group) { g.Generation = 9 }, leases...).run(args...)
				for what, text := range map[string]string{"output": out, "error": errs} {
					if what == "error" && args[0] != "wait" {
						continue
					}
					if got := strings.Contains(strings.ToLower(text),
						"no manager has been heard of for 10m0s (lease commgroup-system/"); got != silent {
						t.Errorf("silent %v: the %s says so: %v\n%s", silent, what, got, text)
					}
				}
				if code == exitOK || strings.Contains(errs, "..") {
					t.Errorf("silent %v: exit code %d, %q", silent, code, errs)
				}
			}
		})
	}
}

// TestTopologyCompletesNodes: of the namespace with the groups for the first name, of the group for the second.
func TestTopologyCompletesNodes(t *testing.T) {
	nodes := "sim-node-0\nsim-node-1\nsim-node-2\nsim-node-3\n"
	for want, args := range map[string][]string{"mi300x\n" + nodes: {""}, nodes: {"mi300x", ""}, "": {"another", ""}} {
		out, errs, _ := newCLI(t, nil).run(append([]string{"__complete", "topology"}, args...)...)
		if got, _, _ := strings.Cut(out, ":"); got != want {
			t.Errorf("%q completes with %q %s, want %q", args, got, errs, want)
		}
	}
}

// TestGainWithoutBaselineShown: a variant's gain is against Baseline also where that is not among what is shown.
func TestGainWithoutBaselineShown(t *testing.T) {
	for _, more := range [][]string{nil, {"--node", "sim-node-1"}} {
		out, errs, code := newCLI(t, nil).run(append([]string{"results", "mi300x", "--variant", "dda",
			"--collective", "AllReduce"}, more...)...)
		if code != 0 || !regexp.MustCompile(`(?m)^1K +\S+ +\S+ +2\.49x$`).MatchString(out) ||
			strings.Contains(out, "BASELINE") {
			t.Errorf("%v: exit code %d %s\n%s\nwant DDA's columns with its gain", more, code, errs, out)
		}
	}
}

func TestComparesFiles(t *testing.T) {
	c := newCLI(t, nil)
	out, errs, code := c.run("results", "mi300x", "-o", "json")
	if code != 0 {
		t.Fatal(errs)
	}
	file := filepath.Join(t.TempDir(), "before.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code = c.run("compare", file, "mi300x/latest", "--fail-above", "1")
	if code != 0 || !strings.Contains(out, " 0 are slower, 0 faster") {
		t.Errorf("a run against itself: exit code %d, %s\n%s", code, errs, out)
	}
	hardware := strings.Replace(strings.ReplaceAll(string(must(os.ReadFile(file))), `"origin": "Simulated"`,
		`"origin": "Hardware"`), "MI300X", "MI355X", 1)
	if err := os.WriteFile(file, []byte(hardware), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code = c.run("compare", file, "mi300x/latest"); code != 2 ||
		!strings.Contains(errs, "different kinds: origin of the figures (Hardware, Simulated)") {
		t.Errorf("of two kinds: exit code %d, %s", code, errs)
	}
	if out, _, code = c.run("compare", file, "mi300x/latest", "--anyway"); code != 0 ||
		!strings.Contains(out, "NOT OF ONE KIND") {
		t.Errorf("of two kinds anyway: exit code %d\n%s", code, out)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

// TestTerminal: on a real terminal the output is coloured and no wider, with NO_COLOR it is not coloured.
func TestTerminal(t *testing.T) {
	show := func(noColor string) string {
		t.Setenv("NO_COLOR", noColor)
		t.Setenv("TERM", "xterm")
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := pty.Setsize(slave, &pty.Winsize{Rows: 40, Cols: 100}); err != nil {
			t.Fatal(err)
		}
		c := newCLI(t, nil)
		o := *c.options
		root := rootCommand(&o)
		root.SetOut(slave)
		root.SetArgs([]string{"status"})
		read := make(chan string, 1)
		go func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(master) // ends with an error once the other side is closed
			read <- b.String()
		}()
		if err := root.ExecuteContext(t.Context()); exitCode(err) != exitNotReady {
			t.Fatal(err)
		}
		_ = slave.Close()
		text := <-read
		_ = master.Close()
		return strings.ReplaceAll(text, "\r\n", "\n")
	}
	coloured, plain := show(""), show("1")
	if !strings.Contains(coloured, "\x1b[31;1mFalse") {
		t.Errorf("no red False on a terminal: %q", coloured)
	}
	if strings.Contains(plain, "\x1b") {
		t.Errorf("escapes with NO_COLOR: %q", plain)
	}
	if got := escape.ReplaceAllString(coloured, ""); got != plain {
		t.Errorf("colours change more than colours:\n%s\n%s", got, plain)
	}
}

func TestUseColour(t *testing.T) {
	none := func(string) string { return "" }
	for name, tc := range map[string]struct {
		mode     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		"a terminal":         {"auto", true, nil, true},
		"a pipe":             {"auto", false, nil, false},
		"NO_COLOR":           {"auto", true, map[string]string{"NO_COLOR": "1"}, false},
		"a dumb terminal":    {"auto", true, map[string]string{"TERM": "dumb"}, false},
		"always, in a pipe":  {"always", false, map[string]string{"NO_COLOR": "1"}, true},
		"never, on terminal": {"never", true, nil, false},
	} {
		getenv := none
		if tc.env != nil {
			getenv = func(key string) string { return tc.env[key] }
		}
		if got, err := useColour(tc.mode, tc.terminal, getenv); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tc.want)
		}
	}
}

func TestRunRefs(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want [2]runRef
	}{
		{[]string{"pool"}, [2]runRef{{group: "pool", id: "previous"}, {group: "pool", id: "latest"}}},
		{[]string{"pool/1-1", "1-2"}, [2]runRef{{group: "pool", id: "1-1"}, {group: "pool", id: "1-2"}}},
		{[]string{"pool/previous", "latest"},
			[2]runRef{{group: "pool", id: "previous"}, {group: "pool", id: "latest"}}},
		{[]string{"a.json", "pool"}, [2]runRef{{file: "a.json"}, {group: "pool", id: "latest"}}},
		{[]string{"old", "new"}, [2]runRef{{group: "old", id: "latest"}, {group: "new", id: "latest"}}},
		{[]string{"-", "dir/b.json"}, [2]runRef{{file: "-"}, {file: "dir/b.json"}}},
	} {
		if got, err := runRefs(tc.args); err != nil || got != tc.want {
			t.Errorf("%v: %v, %v; want %v", tc.args, got, err, tc.want)
		}
	}
	for _, args := range [][]string{{"a.json"}, {"pool/1-1"}, {"1-1"}, {"a.json", "1-1"}, {"pool/x", "pool/1-1"},
		{"/1-1", "pool"}, {"pool", "pool"}} {
		if got, err := runRefs(args); err == nil {
			t.Errorf("%v: %v, want an error", args, got)
		}
	}
}
