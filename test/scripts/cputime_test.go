package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCPUTimeOfTests: hack/cputime.sh starts what go test gives it, in its folder, and notes the time of its children,
// too.
func TestCPUTimeOfTests(t *testing.T) {
	root := sandbox(t, []string{"hack/cputime.sh"}, nil)
	tools(t, root, "readlink", "awk", "sort")
	program(t, filepath.Join(root, "some.test"),
		`echo "$@"; sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; exit 3`)
	out := run(t, root, "hack/cputime.sh", filepath.Join(root, "some.test"), "-test.v")
	if want := "-test.testlogfile=" + root + "/testlog.txt -test.v\n"; !strings.HasPrefix(out, want) ||
		!strings.Contains(out, "exit status 3") {
		t.Errorf("%q, want the binary's output %q and its exit status", out, want)
	}
	notes, err := os.ReadFile(filepath.Join(root, "bin", "cputime"))
	if err != nil || len(strings.Fields(string(notes))) != 3 || strings.HasPrefix(string(notes), "0.00") {
		t.Errorf("notes %q, %v", notes, err)
	}
}

// TestCPUBudget: a package above its budget is named.
func TestCPUBudget(t *testing.T) {
	for notes, want := range map[string][]string{
		"":                             nil,
		"200.5 99.0 ./a\n10 10 ./b\n":  {"299.5 CPU-s  ./a\n", "319.5 CPU-s  in all 2 packages"},
		"200.5 100.0 ./a\n10 10 ./b\n": {"300.5 CPU-s  ./a  ABOVE ITS BUDGET of 300 CPU-s\n"},
		"449 0 ./a\n1 1 ./b\n":         {"449.0 CPU-s  ./a  ABOVE"},
		"5 5 ./b\n400 51 ./controllers/envtest\n": {"451.0 CPU-s  ./controllers/envtest  ABOVE"},
	} {
		root := sandbox(t, []string{"hack/cputime.sh"}, nil)
		tools(t, root, "readlink", "awk", "sort")
		script(t, filepath.Join(root, "bin", "cputime"), notes)
		out := run(t, root, "hack/cputime.sh", "--report")
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%q: no %q in %q", notes, text, out)
			}
		}
		if strings.Contains(out, "exit status") {
			t.Errorf("%q: %q", notes, out)
		}
	}
}

// tools are more of the machine's programs on the sandbox's PATH.
func tools(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		program(t, filepath.Join(root, "path", name), `PATH=/usr/local/bin:/usr/bin:/bin exec `+name+` "$@"`)
	}
}
