package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func runExplain(args ...string) (string, error) {
	var out bytes.Buffer
	command := newExplainCommand()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.Execute()
	return out.String(), err
}

func TestExplainTable(t *testing.T) {
	out, err := runExplain("--flavor", "rcclx-dev", "--collective", "AllReduce", "--datatype", "BFloat16", "--ranks", "8", "--env", "RCCL_DDA_ENABLE=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"204800", "DDAFlat", "30408704", "DDATree", "Standard", "RCCL_DDA_NRANKS=8", "UnknownVariable", "never reads RCCL_DDA_ENABLE"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestExplainJSON(t *testing.T) {
	out, err := runExplain("--low-precision", "Required", "--low-precision-collectives", "AllGather", "--collective", "AllGather", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var answer explanation
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if n := len(answer.Ranges); n != 2 || answer.Ranges[0].Path != "P2PAllGather" || answer.Ranges[1].Path != "LowPrecision" || answer.Ranges[1].MinBytes != 16<<20 {
		t.Errorf("ranges: %+v", answer.Ranges)
	}
}

func TestExplainRejects(t *testing.T) {
	for _, args := range [][]string{{"--flavor", "rocm"}, {"--collective", "Gather"}, {"--datatype", "Int7"}, {"--ranks", "0"}, {"--dda", "on"},
		{"--low-precision", "1"}, {"--env", "NAME"}, {"-o", "yaml"}, {"extra"}, {"--low-precision-collectives", "Gather"}} {
		if out, err := runExplain(args...); err == nil {
			t.Errorf("explain %v gave no error:\n%s", args, out)
		}
	}
}
