package executor

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

// runOnNode carries out a whole run with real rank processes on a node as the simulator makes it, and gives what it
// logged of preconditions by name. rocm, where not empty, is the container's.
func runOnNode(t *testing.T, fault, lockDir, rocm string) (api.NodeRunStatus, map[string]preflight.State) {
	t.Helper()
	root := simtest.Node(t, func(n *nodetree.Node) {
		n.Fault = fault
		if rocm != "" {
			n.ROCm = rocm
		}
	})
	plan := simulatedPlan()
	plan.Collectives, plan.SizesBytes = plan.Collectives[:1], []int64{65536}
	plan.Variants = plan.Variants[:2]
	var log bytes.Buffer
	r := &Runner{
		Node:     simulatedNode(t, root, lockDir, slog.New(slog.NewJSONHandler(&log, nil))),
		Config:   Config{RunID: "run-1", ReportGrace: time.Minute, InterruptedGrace: time.Minute},
		Reporter: &memoryReporter{assignment: assignmentOf(plan)},
	}
	res, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]preflight.State{}
	for line := range strings.Lines(log.String()) {
		var entry struct {
			Msg, Name, Message string
			State              preflight.State
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Msg == "precondition" {
			states[entry.Name] = entry.State
			t.Log(entry.Name, entry.State, entry.Message)
		}
	}
	simtest.NoChildren(t)
	return res.Status, states
}

func TestSimulatedPreconditions(t *testing.T) {
	// What this machine and not the simulated node decides.
	ofMachine := []string{preflight.LockedMemory, preflight.AddressFamily}

	t.Run("all hold", func(t *testing.T) {
		s, states := runOnNode(t, "", t.TempDir(), "")
		for _, name := range preflight.Names() {
			if states[name] != preflight.Met && !slices.Contains(ofMachine, name) {
				t.Errorf("%s is %q, expected that it is met", name, states[name])
			}
		}
		if s.Verdict == api.VerdictError {
			t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
		}
		if s.ROCm == nil || s.ROCm.State != "Found" || s.ROCm.Version == "" ||
			s.ROCm.Source != "opt/rocm/.info/version" {
			t.Errorf("the container's ROCm is %+v", s.ROCm)
		}
	})
	t.Run("ROCm older than the GPUs need", func(t *testing.T) {
		s, states := runOnNode(t, "", t.TempDir(), "6.3.4-76")
		if s.Verdict != api.VerdictError || s.Reason != api.ReasonPreconditionFailed ||
			states[preflight.ROCmVersion] != preflight.Failed ||
			!strings.Contains(s.Message, "ROCm 6.3.4 (/opt/rocm/.info/version), expected at least 6.4 for gfx942") {
			t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
		}
		if s.ROCm == nil || s.ROCm.Version != "6.3.4" {
			t.Errorf("the container's ROCm is %+v", s.ROCm)
		}
	})
	t.Run("little memory", func(t *testing.T) {
		s, states := runOnNode(t, "low-memory:1", t.TempDir(), "")
		if s.Reason != api.ReasonInsufficientMemory ||
			!strings.HasPrefix(s.Message, "GPUMemory: node sim-node-0: rank 0 ") ||
			states[preflight.GPUMemory] != preflight.Failed {
			t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
		}
	})
	t.Run("second run", func(t *testing.T) {
		dir := t.TempDir()
		release, held := preflight.Lock(dir, []string{simtest.PCI(2)},
			preflight.Holder{Run: "run-0", Start: time.Now()})
		defer release()
		if held != nil {
			t.Fatal(held)
		}
		s, _ := runOnNode(t, "", dir, "")
		if s.Reason != api.ReasonPreconditionFailed ||
			!strings.Contains(s.Message, `GPU `+simtest.PCI(2)+` is in use by run "run-0"`) {
			t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
		}
	})
}

// TestMemoryNeedBytes: in place there is one buffer, out of place two and the shift, and a sum over 64 bits does not
// wrap.
func TestMemoryNeedBytes(t *testing.T) {
	plan := defaultPlan()
	plan.Variants, plan.Collectives, plan.SizesBytes = plan.Variants[:1], plan.Collectives[:1], []int64{1024, 64 << 20}
	for _, tc := range []struct {
		placements []api.Placement
		size, want int64
	}{
		{nil, 64 << 20, 128<<20 + 256},
		// The probe of pairs is always out of place.
		{[]api.Placement{api.InPlace}, 64 << 20, 64<<20 + 16<<20 + 256},
		{[]api.Placement{api.OutOfPlace, api.InPlace}, 64 << 20, 128<<20 + 256},
		{nil, math.MaxInt64, math.MaxInt64},
	} {
		plan.Placements, plan.SizesBytes = tc.placements, []int64{1024, tc.size}
		if got := memoryNeedBytes(plan, rcclx.FlavorRCCLXDev, 8); got != tc.want {
			t.Errorf("%v of %d bytes: %d bytes, expected %d", tc.placements, tc.size, got, tc.want)
		}
	}
}
