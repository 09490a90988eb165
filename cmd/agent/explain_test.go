package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func runExplain(args ...string) (string, error) {
	var out bytes.Buffer
	command := newRootCommand()
	command.SetArgs(append([]string{"explain"}, args...))
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.Execute()
	return out.String(), err
}

// The command of the issue, word for word.
func TestExplainTable(t *testing.T) {
	out, err := runExplain("--flavor", "rcclx-dev", "--collective", "AllReduce", "--datatype", "bf16", "--ranks", "8")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"AllReduce (Sum) of BFloat16, 8 ranks on 1 node, library flavor rcclx-dev\n",
		"2 B to 15 B             2 to 15             RingTree: ring or tree\n",
		"16 B to 200 KiB         16 to 204800        DDAFlat: DDA flat (one-shot)\n",
		"over 200 KiB to 29 MiB  204801 to 30408704  DDATree: DDA tree (two-shot)\n",
		"over 29 MiB             from 30408705       RingTree: ring or tree\n",
		"FP8 is off, and would take these sizes: 16 MiB and up. To switch it on: here --low-precision Preferred",
		"16 MiB to 29 MiB (16777216 to 30408704 bytes): DDATree [2]\n",
		"not LowPrecision (Disabled): FP8 is off for AllReduce, and would take the call if it were on",
		"not DDA (AboveThreshold): over the tree (two-shot) limit of 30408704 bytes (29 MiB)",
		"note: only sizes that split into 8 parts that are multiples of 16 bytes",
		"[2] torchcomms comms/common/algorithms/all_reduce/AllReduceAlgoManager.cu\n",
		"dda.AllReduce=Preferred: Partial, AboveThreshold, up to 29 MiB (30408704 bytes)\n",
		"RCCL_DDA_NRANKS=8                           dda.mode                   8         torchcomms " +
			"comms/rcclx/develop/meta/algorithms/AlgoInit.h:12\n",
		"RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES not set  dda.allReduceFlatMaxBytes  204800    ",
		"Remark: library flavor rcclx-dev never reads RCCL_DDA_ENABLE, which published guides name",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestExplainOthers(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--env", "RCCL_DDA_ENABLE=1", "--env", "NCCL_DEBUG=INFO"},
			[]string{"env.RCCL_DDA_ENABLE=1: NotInEffect, UnknownVariable\n", "never reads RCCL_DDA_ENABLE",
				"RCCL_DDA_ENABLE=1                           yours, never read",
				"NCCL_DEBUG=INFO                             yours (--env)"}},
		{[]string{"--flavor", "rccl-dda", "--env", "RCCL_DDA_ENABLE=0"},
			[]string{"env.RCCL_DDA_ENABLE=0: NotInEffect, NotApplied\n", "RCCL_DDA_ENABLE=1", "Unknown: not known"}},
		{[]string{"--flavor", "rccl-dda", "--dda-tree-max", "64M"},
			[]string{"dda.allReduceTreeMaxBytes 67108864", "up to 64 MiB", "DDA: DDA", "RCCL_DDA_THRESHOLD=67108864"}},
		{[]string{"--flavor", "rccl-dda", "--gfx", "gfx90a", "--dda-tree-max", "64M"},
			[]string{"2 B and up    from 2  RingTree", "not DDA (NotBuilt): DDA is for gfx942 and gfx950, not gfx90a",
				"dda.AllReduce=Preferred: NotInEffect, NotBuilt"}},
		{[]string{"--gfx", "gfx90a", "--low-precision", "preferred"}, []string{"LowPrecision: FP8 E4M3 transport",
			"note: danger: FP8's kernels are machine code for gfx942 and gfx950"}},
		{[]string{"--dda", "disabled"},
			[]string{"DDA is off, and would take these sizes: 16 B to 29 MiB. To switch it on: here --dda Preferred"}},
		{[]string{"--low-precision", "required"}, []string{"from 16777216       LowPrecision: FP8 E4M3 transport",
			"under 16 MiB (to 16777215 bytes)", "note: danger: with a count that is no multiple of 1024 elements"}},
		{[]string{"--low-precision", "Preferred", "--low-precision-collectives", "all_gather"},
			[]string{"lowPrecision.collectives [AllGather]", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1"}},
		{[]string{"--dda-flat-max", "64K"}, []string{"16 B to 64 KiB", "RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES=65536"}},
		{[]string{"--collective", "all_gather"}, []string{"Direct: direct, to all peers at once",
			"Standard: direct, ring or tree", "--gfx gfx942 (MI300X, MI325X)"}},
		{[]string{"--collective", "all_gather", "--gfx", "GFX950"}, []string{"8 ranks on 1 node of gfx950",
			"16 B to 8 MiB  ", "over direct AllGather's limit of 8388608 bytes (8 MiB) on gfx950"}},
		{[]string{"--collective", "sendrecv", "--datatype", "fp8_e4m3", "--flavor", "nccl", "--ranks", "1"},
			[]string{"1 rank on 1 node", "SendRecv: sends and receives",
				"has Float8E4M3 elements from version 2.24.0", "NCCL_NVLS_ENABLE=0"}},
		{[]string{"--collective", "broadcast"}, []string{"dda.Broadcast=Preferred: NotInEffect, NotBuilt",
			"not LowPrecision (NotBuilt): FP8 has no Broadcast"}},
		{[]string{"--ranks", "4"},
			[]string{"not DDA (RankCount): DDA needs exactly 8 ranks; this communicator has 4 [2]",
				"[2] torchcomms comms/rcclx/develop/meta/algorithms/AlgoInit.h:38-57"}},
		{[]string{"--op", "max"},
			[]string{"AllReduce (Max)", "not DDA (OpUnsupported): DDA takes the operation Sum, not Max"}},
	} {
		out, err := runExplain(tt.args...)
		if err != nil {
			t.Errorf("explain %v: %v", tt.args, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("explain %v: no %q in:\n%s", tt.args, want, out)
			}
		}
	}
}

func TestExplainJSON(t *testing.T) {
	out, err := runExplain("--low-precision", "Required", "--low-precision-collectives", "AllGather",
		"--collective", "AllGather", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var answer explanation
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if n := len(answer.Ranges); n != 2 || answer.Ranges[0].Path != "P2PAllGather" ||
		answer.Ranges[1].Path != "LowPrecision" || answer.Ranges[1].MinBytes != 16<<20 {
		t.Errorf("ranges: %+v", answer.Ranges)
	}
	values := map[string]string{}
	for _, v := range answer.Variables {
		if v.Source == "" || v.Rule == "" || v.Setting == "" {
			t.Errorf("no source, rule or setting: %+v", v)
		}
		if v.Value != nil {
			values[v.Name] = *v.Value
		}
	}
	if values["RCCL_LOW_PRECISION_ENABLE"] != "0" || values["RCCL_LOW_PRECISION_ENABLE_ALLGATHER"] != "1" {
		t.Errorf("variables: %v", values)
	}
}

func TestExplainRejects(t *testing.T) {
	for _, args := range [][]string{{"--flavor", "rocm"}, {"--collective", "Gather"}, {"--datatype", "Int7"},
		{"--ranks", "0"}, {"--dda", "on"}, {"--low-precision", "1"}, {"--env", "NAME"}, {"-o", "yaml"},
		{"extra"}, {"--low-precision-collectives", "Gather"}, {"--low-precision-collectives", "Broadcast"},
		{"--op", "Xor"}, {"--dda-flat-max", "64KB"}, {"--dda-tree-max", "x"}, {"--nodes", "9"}, {"--gfx", "foo"},
		{"--gfx", "MI300X"}, {"--gfx", "gfx"}, {"--gfx", "gfx942:sramecc+"}, {"--rank", "8"}, {"--ranks", "many"}} {
		if out, err := runExplain(args...); err == nil || exitCode(err) != 2 {
			t.Errorf("explain %v: %v, expected exit code 2:\n%s", args, err, out)
		}
	}
}

func TestHumanRange(t *testing.T) {
	to := func(n int64) *int64 { return &n }
	for want, r := range map[string]rcclx.Range{
		"2 B to 15 B":                  {MinBytes: 2, MaxBytes: to(15)},
		"over 200 KiB to under 16 MiB": {MinBytes: 204801, MaxBytes: to(16<<20 - 1)},
		"16 MiB to 29 MiB":             {MinBytes: 16 << 20, MaxBytes: to(29 << 20)},
		"16 MiB and up":                {MinBytes: 16 << 20},
		"over 29 MiB":                  {MinBytes: 29<<20 + 1},
		"1.46 KiB to under 2 KiB":      {MinBytes: 1500, MaxBytes: to(2047)},
	} {
		if got := humanRange(r); got != want {
			t.Errorf("humanRange(%d) = %q, want %q", r.MinBytes, got, want)
		}
	}
}

type brokenWriter struct{ after int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestExplainReportsAWriteError(t *testing.T) {
	answer, err := explainFlags{flavor: "rcclx-dev", collective: "AllReduce", datatype: "bf16", op: "Sum",
		dda: "Preferred", lowPrecision: "Disabled", ranks: 8, nodes: 1}.explain()
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.print(&brokenWriter{after: 3}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("print gave %v", err)
	}
}

func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"benhc"}, {"--flag"}} {
		if code, out, errs := runCommand(t, "", args...); code != 2 || out != "" {
			t.Errorf("%v: exit %d, %s%s", args, code, errs, out)
		}
	}
	if code, out, _ := runCommand(t, ""); code != 0 || !strings.Contains(out, "Available Commands") {
		t.Errorf("exit %d: %s", code, out)
	}
}
