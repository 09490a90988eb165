package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeAgent stands for agent bench with two ranks: its report, its exit code and its time are what the case says,
// without a fault and once a rank was killed or stopped. Its ranks are processes called rank.
const fakeAgent = `#!/usr/bin/env bash
for word; do if [ "$previous" = --iterations ]; then iterations=$word; fi; previous=$word; done
echo "$iterations" >>ROOT/iterations
[ "$iterations" != 200 ] || { printf '{\n  "medianNanoseconds": CALL,\n}\n'; exit CALIBRATION; }
ROOT/bin/rank CONTROL & one=$!
ROOT/bin/rank 60 & two=$!
echo "Baseline: forming a communicator" >&2
report() { kill -CONT $1; kill -KILL $one $two; wait $one $two; printf '{\n  "kind": "%s",\n}\n' "$2"; exit "$3"; } 2>/dev/null
while kill -0 $one 2>/dev/null; do
	read -r -a stat </proc/$two/stat || report $two KILLED
	[ "${stat[2]}" != T ] || report $two STOPPED
	[ "${stat[2]}" != Z ] || report $two KILLED
	sleep 0.05
done
kill -KILL $two
printf '{\n  "kind": "WITHOUT",\n}\n'
exit CODE
`

// TestFaults: the check of deaths and hangs on a GPU machine passes only where a run without a fault passes, and a
// fault is reported as what it is.
func TestFaults(t *testing.T) {
	type fakes struct{ call, calibration, control, killed, stopped, without, code string }
	good := fakes{call: "2000000", calibration: "0", control: "4", killed: "Died 1", stopped: "Hung 1", code: "0"}
	for name, c := range map[string]struct {
		change func(*fakes)
		want   string // empty where it passes
	}{
		"all is reported": {func(*fakes) {}, ""},
		"a hang without a fault": {func(f *fakes) { f.without, f.code = "Hung", "1" },
			"the control without a fault fails (Hung), so a hang would prove nothing"},
		"the bench does not work": {func(f *fakes) { f.calibration = "1" }, "the bench fails without a fault"},
		"no time of a call":       {func(f *fakes) { f.call = "0" }, "no time of a call"},
		"over before the fault":   {func(f *fakes) { f.control = "0.2" }, "no rank would be at work after 1 s"},
		"a death is called a hang": {func(f *fakes) { f.killed = "Hung 1" },
			"death-1: reported as Hung, expected Died"},
		"a hang is called a deadline": {func(f *fakes) { f.stopped = "RunDeadline 1" },
			"hang-1: reported as RunDeadline, expected Hung"},
		"a death is not seen": {func(f *fakes) { f.killed = "none 0" },
			"death-1: the bench passed although a rank was hit by KILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := good
			c.change(&f)
			root := sandbox(t, []string{"hack/gpu/faults.sh"}, []string{"nvidia-smi"})
			for _, tool := range []string{"pgrep", "seq", "date", "sleep", "grep", "wc", "tr", "sed", "head"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Skipf("%v", err)
				}
				if err := os.Symlink(path, filepath.Join(root, "path", tool)); err != nil {
					t.Fatal(err)
				}
			}
			bash, err := exec.LookPath("bash") // behind env the process would be called bash
			if err != nil {
				t.Fatal(err)
			}
			script(t, filepath.Join(root, "bin", "rank"), "#!"+bash+"\nread -rt \"$1\" <> <(:)\n")
			script(t, filepath.Join(root, "bin", "agent"), strings.NewReplacer("ROOT", root, "CALL",
				f.call, "CALIBRATION", f.calibration, "CONTROL", f.control, "KILLED", f.killed,
				"STOPPED", f.stopped, "WITHOUT", f.without, "CODE", f.code).Replace(fakeAgent))
			out := run(t, root, "path/env", "LIBRARY=lib.so", "ROUNDS=1", "STEP_SECONDS=2", "FAULT_AFTER=1",
				"OUT="+root+"/out", "bash", "hack/gpu/faults.sh")
			if c.want == "" &&
				(strings.Contains(out, "exit status") || !strings.Contains(out, "hang-1: signal STOP")) ||
				!strings.Contains(out, c.want) {
				t.Errorf("expected %q, got:\n%s", c.want, out)
			}
			if c.want != "" && !strings.Contains(out, "exit status 1") {
				t.Errorf("it passed:\n%s", out)
			}
			if data, err := os.ReadFile(filepath.Join(root, "iterations")); c.want == "" &&
				(err != nil || !strings.HasPrefix(string(data), "200\n1000\n1000\n1000\n")) {
				t.Errorf("iterations %q (%v), expected 200 and as many as take 2 s", data, err)
			}
		})
	}
}
