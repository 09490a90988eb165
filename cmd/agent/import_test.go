package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/results/perftests"
)

// runCommand carries out a command line and gives its exit code and output.
func runCommand(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		code = 1
		errs.WriteString(err.Error())
		if exit := (*exitError)(nil); errors.As(err, &exit) {
			code = exit.code
		}
	}
	return code, out.String(), errs.String()
}

// An input that never ends, and one that cannot even be opened, do not keep the command from ending when it is told to.
func TestImportInterrupted(t *testing.T) {
	data, err := os.ReadFile(sampleOf("nccl-tests-2.19.6-all_reduce.txt"))
	if err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	done := make(chan error, 1)
	p := reportPrinter{output: "table", statistic: results.Median}
	go func() {
		done <- importFiles(ctx, []string{"-", "never-opened"}, perftests.Options{}, p, in, &out, &errs)
	}()
	half, _, _ := bytes.Cut(data, []byte("# Out of bounds"))
	for _, part := range [][]byte{half, []byte("\n")} { // the second is taken when the first was passed on
		if _, err := feed.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	err = <-done
	if code := exitCode(err); code != 1 || !strings.Contains(err.Error(), "standard input: interrupted") ||
		strings.Contains(err.Error(), "never-opened") {
		t.Errorf("exit %d: %v", code, err)
	}
	if !strings.Contains(out.String(), "3269.99") {
		t.Errorf("what was read before is lost:\n%s", out.String())
	}

	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt = context.WithCancel(t.Context())
	go func() { done <- importFiles(ctx, []string{fifo}, perftests.Options{}, p, in, &out, &errs) }()
	interrupt()
	if err := <-done; exitCode(err) != 1 || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
}

// The signals that end a bench after it printed what it has: a hangup is one, but not under nohup. A process of its own
// tells, since what a process ignores is its own.
func TestEndSignals(t *testing.T) {
	if os.Getenv("AGENT_TEST_SIGNALS") != "" {
		fmt.Println(endSignals())
		return
	}
	cases := map[string]string{"trap '' HUP;": "[interrupt terminated]"}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, which no child can take back
		cases[""] = "[interrupt terminated hangup]"
	}
	for prefix, want := range cases {
		command := exec.Command("sh", "-c", prefix+`exec "$0" -test.run '^TestEndSignals$'`, os.Args[0])
		command.Env = append(os.Environ(), "AGENT_TEST_SIGNALS=1")
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), want+"\n") {
			t.Errorf("%q: %v, no %s in %s", prefix, err, want, out)
		}
	}
}

func sampleOf(name string) string {
	return filepath.Join("..", "..", "agent", "results", "testdata", name)
}

func TestImport(t *testing.T) {
	text, js := sampleOf("nccl-tests-2.19.6-all_reduce.txt"), sampleOf("nccl-tests-2.19.6-all_gather.json")
	code, out, errs := runCommand(t, "", "import", text, js)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"# nccl-tests " + text, "AllReduce BFloat16 Sum OutOfPlace",
		"AllGather BFloat16 InPlace", "3269.99", "328.362", "2 results left out: an empty call"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	code, out, errs = runCommand(t, "", "import", text, js, "-o", "json")
	var reports []results.Report
	if err := json.Unmarshal([]byte(out), &reports); err != nil || code != 0 || len(reports) != 2 ||
		len(reports[0].Results) != 20 {
		t.Errorf("exit %d, %v, %s:\n%s", code, err, errs, out)
	}
	code, out, errs = runCommand(t, "", "import", text, js, "-o", "csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || code != 0 || len(rows) != 1+20+18 || !strings.Contains(errs, "an empty call") {
		t.Errorf("exit %d, %v, %d rows, stderr %q", code, err, len(rows), errs)
	}
	data, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if code, out, _ = runCommand(t, string(data), "import", "-"); code != 0 ||
		!strings.Contains(out, "standard input") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestImportFails(t *testing.T) {
	data, err := os.ReadFile(sampleOf("nccl-tests-2.19.6-all_reduce.txt"))
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	cut := whole[:strings.Index(whole, "# Out of bounds")+1]
	wrong := strings.Replace(whole, "0.00    0.00       0", "0.00    0.00       7", 1)
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
		rows  bool
	}{
		"cut off":    {cut, nil, 1, "ends after 10 rows", true},
		"wrong data": {wrong, nil, 1, "wrong data: 7 elements in 1 result", true},
		"empty":      {"", nil, 1, "standard input: is empty", false},
		"own CSV": {"simulated,source,input\ntrue,agent bench,\n", nil, 1,
			"is the CSV of agent bench, which cannot be read again: write it with -o json", false},
		"own table": {"# agent bench 2026-11-28T03:30:00Z, 8 ranks on a\n#   size(B)     count      type  " +
			"redop\n   8192  4096  BFloat16 Sum\n", nil, 1, "is the table of agent bench", false},
		"nothing":            {"hello\n", nil, 1, "found no output of rccl-tests", false},
		"not JSON":           {whole, []string{"--from", "json"}, 1, "is not JSON", false},
		"unknown form":       {whole, []string{"--from", "xml"}, 2, "auto, text, json or csv", false},
		"unknown collective": {whole, []string{"--collective", "gather"}, 2, "is not known", false},
		"unknown output":     {whole, []string{"-o", "yaml"}, 2, "table, json or csv", false},
		"unknown statistic":  {whole, []string{"--statistic", "p99"}, 2, "median, min, max", false},
		"unknown flag":       {whole, []string{"--frm", "x"}, 2, "unknown flag", false},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runCommand(t, tc.stdin, append([]string{"import", "-"}, tc.args...)...)
			if code != tc.code || !strings.Contains(errs, tc.want) || strings.Contains(out, "AllReduce") != tc.rows {
				t.Errorf("exit %d, expected %d; stderr %q; stdout:\n%s", code, tc.code, errs, out)
			}
		})
	}
	if code, _, errs := runCommand(t, "", "import"); code != 2 || !strings.Contains(errs, "at least one file") {
		t.Errorf("exit %d: %s", code, errs)
	}
	// One bad file does not hide the others.
	code, out, errs := runCommand(t, "", "import", filepath.Join(t.TempDir(), "none"),
		sampleOf("nccl-tests-2.19.6-alltoall.txt"))
	if code != 1 || !strings.Contains(out, "AllToAll") || !strings.Contains(errs, "no such file") {
		t.Errorf("exit %d: %s\n%s", code, errs, out)
	}
}

// What CSV has no row for is said on standard error, and what a file holds cannot steer the terminal there.
func TestImportUnsaid(t *testing.T) {
	data, err := os.ReadFile(sampleOf("report.json"))
	if err != nil {
		t.Fatal(err)
	}
	evil := strings.Replace(string(data), `"message": "node a:`, `"message": "\u001b[2Jnode a:\n`, 1)
	code, _, errs := runCommand(t, strings.Replace(evil, "NUMABalancing:", "\\u001b[2JNUMA:", 1),
		"import", "-", "-o", "csv")
	if code != 1 || strings.ContainsRune(errs, 0x1b) || !strings.Contains(errs, "pairs are not in CSV: use -o json") ||
		!strings.Contains(errs, "?[2JNUMA: kernel") || !strings.Contains(errs, "?[2Jnode a: rank 1 missed") {
		t.Errorf("exit %d: %q", code, errs)
	}
	if _, _, errs = runCommand(t, string(data), "import", "-"); strings.Contains(errs, "pairs are not") {
		t.Errorf("the table has pairs: %q", errs)
	}
}

// What the program itself counts fails, in every form of output, also where its row was lost.
func TestImportFailsByTheProgramsCounter(t *testing.T) {
	for _, form := range []string{"table", "json", "csv"} {
		code, out, errs := runCommand(t, "", "import", sampleOf("cases/31-wrong-row-damaged-input.txt"), "-o", form)
		if code != 1 || !strings.Contains(errs, "the program counts values out of bounds: 2 FAILED") {
			t.Errorf("%s: exit %d: %s", form, code, errs)
		}
		if form == "json" &&
			(!strings.Contains(out, `"version": "develop:1a2b3c4"`) || !strings.Contains(out, "2 FAILED")) {
			t.Errorf("JSON without format or failure:\n%s", out)
		}
	}
}
