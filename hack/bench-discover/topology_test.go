package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const printed = `

======================= ROCm System Management Interface =======================
=========================== Weight between two GPUs ============================
       GPU0         GPU1         GPU2         
GPU0   0            15           72           
GPU1   15           0            30           
GPU2   72           30           0            

============================ Hops between two GPUs =============================
       GPU0         GPU1         GPU2         
GPU0   0            1            3            
GPU1   1            0            1            
GPU2   3            1            0            

========================== Link Type between two GPUs ==========================
       GPU0         GPU1         GPU2         
GPU0   0            XGMI         PCIE         
GPU1   XGMI         0            XGMI         
GPU2   PCIE         XGMI         0            

================================== Numa Nodes ==================================
GPU[0]		: (Topology) Numa Node: 0
GPU[0]		: (Topology) Numa Affinity: 0
GPU[1]		: (Topology) Numa Node: 1
GPU[1]		: (Topology) Numa Affinity: 1
GPU[2]		: (Topology) Numa Node: -1
GPU[2]		: (Topology) Numa Affinity: -1
============================= End of ROCm SMI Log ==============================
`

func TestParseTopology(t *testing.T) {
	got, err := parseTopology(printed)
	if err != nil {
		t.Fatal(err)
	}
	want := &Topology{
		Weight: Matrix{{"0", "15", "72"}, {"15", "0", "30"}, {"72", "30", "0"}},
		Hops:   Matrix{{"0", "1", "3"}, {"1", "0", "1"}, {"3", "1", "0"}},
		Type:   Matrix{{"0", "XGMI", "PCIE"}, {"XGMI", "0", "XGMI"}, {"PCIE", "XGMI", "0"}},
		NUMA:   []string{"0", "1", "-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for what, text := range map[string]string{
		"nothing":          "",
		"no devices":       "=== Weight between two GPUs ===\n       \n=== Hops between two GPUs ===\n",
		"a row is missing": strings.Replace(printed, "GPU2   72           30           0", "", 1),
		"a cell is missing": strings.Replace(printed, "GPU2   72           30           0",
			"GPU2   72           30", 1),
		"a table is missing":  strings.Replace(printed, " Hops between two GPUs ", " Hops ", 1),
		"rows out of order":   strings.Replace(printed, "GPU1   15", "GPU2   15", 1),
		"NUMA of one missing": strings.Replace(printed, "GPU[1]		: (Topology) Numa Node: 1\n", "", 1),
	} {
		if got, err := parseTopology(text); err == nil {
			t.Errorf("%s: %+v, want an error", what, got)
		}
	}
}

func FuzzParseTopology(f *testing.F) {
	f.Add(printed)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTopology(text)
		if err != nil {
			return
		}
		n := len(got.NUMA)
		for _, m := range []Matrix{got.Weight, got.Hops, got.Type} {
			if len(m) != n || n == 0 {
				t.Fatalf("%d rows for %d devices", len(m), n)
			}
			for _, row := range m {
				if len(row) != n {
					t.Fatalf("%d cells for %d devices", len(row), n)
				}
			}
		}
	})
}

const ourFacts = `{"gpus":[
 {"pciAddress":"0000:05:00.0","nodes":[1,2],"numaNode":0},
 {"pciAddress":"0000:0a:00.0","nodes":[3,4]}],
 "links":[
 {"from":1,"to":2,"type":"XGMI","weight":13},{"from":2,"to":1,"type":"XGMI","weight":13},
 {"from":1,"to":3,"type":"XGMI","weight":41,"hops":1},{"from":3,"to":1,"type":"PCIE","weight":72},
 {"from":2,"to":9,"type":"PCIE","weight":52}]}`

func TestOurTopologyAndDifferences(t *testing.T) {
	var f facts
	if err := json.Unmarshal([]byte(ourFacts), &f); err != nil {
		t.Fatal(err)
	}
	// The order is rocm-smi's, by card number, not ours.
	order := []string{"0000:0a:00.0", "0000:05:00.0"}
	whole, err := f.topology(order, true)
	if err != nil {
		t.Fatal(err)
	}
	// Devices are nodes 3, 4, 1 and 2.
	if diff := cmp.Diff(Matrix{{"0", "-", "72", "-"}, {"-", "0", "-", "-"}, {"41", "-", "0", "13"},
		{"-", "-", "13", "0"}}, whole.Weight); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"-", "-", "0", "0"}, whole.NUMA); diff != "" {
		t.Errorf("NUMA (-want +got):\n%s", diff)
	}
	first, err := f.topology(order, false)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &Topology{Weight: Matrix{{"0", "72"}, {"41", "0"}}, Hops: Matrix{{"0", "N/A"}, {"2", "0"}},
		Type: Matrix{{"0", "PCIE"}, {"PCIE", "0"}}, NUMA: []string{"-", "1"}}
	want := []difference{
		{table: "weight", cells: 2},
		{table: "hops", cells: 2, different: 1, example: "GPU1-GPU0: ours 1, theirs 2"}, // N/A is silence as ours is
		{table: "type", cells: 2, different: 1, example: "GPU1-GPU0: ours XGMI, theirs PCIE"},
		{table: "NUMA", cells: 2, different: 1, example: "GPU1: ours 0, theirs 1"},
	}
	if diff := cmp.Diff(want, compare(first, theirs), cmp.AllowUnexported(difference{})); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	if _, err := f.topology([]string{"0000:ff:00.0"}, true); err == nil {
		t.Error("an order that names no GPU gave a topology")
	}
}

// TestTrees: each tree is as rocm-smi needs it, and in the order of the GPUs.
func TestTrees(t *testing.T) {
	for i := range systems {
		t.Run(systems[i].name, func(t *testing.T) {
			dir := t.TempDir()
			if err := systems[i].write(dir); err != nil {
				t.Fatal(err)
			}
			order, err := cards(dir)
			if err != nil {
				t.Fatal(err)
			}
			for n, address := range order {
				card := filepath.Join(dir, drmDir, "card"+string(rune('0'+n)))
				target, err := os.Readlink(card)
				if err != nil || !strings.Contains(target, "/"+address+"/drm/card") {
					t.Errorf("card %d leads to %q (%v), want %s in it", n, target, err, address)
				}
				for _, name := range []string{"vendor", "vbios_version", "numa_node"} {
					if _, err := os.ReadFile(filepath.Join(card, "device", name)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func TestMediansAndRatios(t *testing.T) {
	runs := func(ms ...int) (list []run) {
		for _, m := range ms {
			list = append(list, run{wall: time.Duration(m) * time.Millisecond})
		}
		return list
	}
	if got := median(runs(9, 1, 5), wallMS); got != 5 {
		t.Errorf("median of three: %v", got)
	}
	if got := median(runs(1, 2, 4, 9), wallMS); got != 3 {
		t.Errorf("median of four: %v", got)
	}
	// The ratio is that of each round: 2, 10 and 3, not that of the medians.
	if got := ratio(runs(10, 1, 3), runs(20, 10, 9), wallMS); got != 3 {
		t.Errorf("ratio: %v", got)
	}
	if got := median(nil, wallMS); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
}

// TestMeasuresAProcess: the figures of a process are its own, and an exit code that is not expected is an error with
// its text.
func TestMeasuresAProcess(t *testing.T) {
	c := &command{name: "shell", args: []string{"/bin/sh", "-c", "echo hello; exit 3"}, okCodes: []int{3}}
	if err := c.once(); err != nil {
		t.Fatal(err)
	}
	if c.output != "hello\n" || len(c.runs) != 1 || c.runs[0].wall <= 0 || c.runs[0].peakKiB <= 0 {
		t.Errorf("output %q, runs %+v", c.output, c.runs)
	}
	bad := &command{name: "shell", args: []string{"/bin/sh", "-c", "echo no tree >&2; exit 1"}}
	if err := bad.once(); err == nil || !strings.Contains(err.Error(), "no tree") {
		t.Errorf("error %v", err)
	}
	if err := (&command{name: "missing", args: []string{"/nonexistent"}}).once(); err == nil {
		t.Error("a program that is not there ran")
	}
}
