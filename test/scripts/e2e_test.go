package scripts

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// e2eSandbox is a checkout in which everything that hack/e2e.sh calls is a program of one line; the cluster's writes
// down what it was called with, and makes and removes its folder.
func e2eSandbox(t *testing.T, check, images string) string {
	t.Helper()
	root := sandbox(t, []string{"hack/e2e.sh"}, []string{"containerd", "ctr", "runc", "buildah", "ip", "iptables",
		"conntrack", "promtool", "prometheus", "go", "make"})
	state := filepath.Join(root, ".e2e")
	script(t, filepath.Join(root, "bin", "realcluster"), `#!/bin/sh
echo "$1" >>`+root+`/asked
case $1 in
check) echo "realcluster: the reason"; exit `+check+` ;;
up) [ ! -e /proc/$$/fd/9 ] || { echo "the cluster holds the lock"; exit 1; }; mkdir -p `+state+` ;;
down) [ ! -e `+state+`/stubborn ] || exit 1; rm -rf `+state+` ;;
esac
`)
	program(t, filepath.Join(root, "bin", "e2e.test"), `echo tests >>`+root+"/asked")
	if err := os.MkdirAll(filepath.Join(root, "test", "e2e"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hack/apt.sh", "hack/tool.sh", "hack/kube/build.sh",
		"hack/realcluster/images/build.sh"} {
		program(t, filepath.Join(root, name), ":")
	}
	program(t, filepath.Join(root, "hack/images/build.sh"), images)
	return root
}

// calls of the cluster's program, and of the tests.
func calls(t *testing.T, root string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "asked"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestSkipIsForWhatTheMachineCannotDo: what is left of an earlier run is ended first, and what cannot be ended, or is
// another cluster's, is a failure; else `make test` is green for ever without any such test.
func TestSkipIsForWhatTheMachineCannotDo(t *testing.T) {
	for _, c := range []struct {
		name, check, left string
		skipped, fails    bool
		want              []string
	}{
		{name: "all is well", check: "0", want: []string{"check", "up", "tests", "down"}},
		{name: "left over", check: "0", left: "realcluster.json",
			want: []string{"down", "check", "up", "tests", "down"}},
		{name: "left over and cannot be ended", check: "0", left: "stubborn", fails: true, want: []string{"down"}},
		{name: "the machine cannot", check: "1", skipped: true, want: []string{"check"}},
		{name: "another cluster", check: "2", fails: true, want: []string{"check"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := e2eSandbox(t, c.check, ":")
			if c.left != "" {
				script(t, filepath.Join(root, ".e2e", c.left), "")
			}
			out := run(t, root, "hack/e2e.sh")
			if got := calls(t, root); !slices.Equal(got, c.want) {
				t.Errorf("calls %q, expected %q\n%s", got, c.want, out)
			}
			if skipped := strings.Contains(out, "SKIPPED: the reason"); skipped != c.skipped {
				t.Errorf("skipped is %v, expected %v\n%s", skipped, c.skipped, out)
			}
			if fails := strings.Contains(out, "exit status"); fails != c.fails {
				t.Errorf("failed is %v, expected %v\n%s", fails, c.fails, out)
			}
		})
	}
}

// TestOnlyTheOwnClusterIsEnded: two users, or two terminals, in one checkout.
func TestOnlyTheOwnClusterIsEnded(t *testing.T) {
	t.Run("while another run is there", func(t *testing.T) {
		root := e2eSandbox(t, "0", ":")
		script(t, filepath.Join(root, ".e2e", "realcluster.json"), "")
		lock, err := os.Create(filepath.Join(root, ".e2e.run.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		out := run(t, root, "hack/e2e.sh")
		if got := calls(t, root); len(got) != 0 || !strings.Contains(out, "another test-e2e runs") ||
			!strings.Contains(out, "exit status 1") {
			t.Errorf("calls %q\n%s", got, out)
		}
	})
	t.Run("made by hand during the build", func(t *testing.T) {
		root := e2eSandbox(t, "0", `mkdir -p "$(dirname "$0")/../../.e2e"`)
		out := run(t, root, "hack/e2e.sh")
		if got := calls(t, root); !slices.Equal(got, []string{"check"}) || !strings.Contains(out, "exit status 1") {
			t.Errorf("calls %q\n%s", got, out)
		}
	})
}

// TestSignalLeavesNoImages in the temporary folder, nor a cluster.
func TestSignalLeavesNoImages(t *testing.T) {
	for name, number := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT,
		"TERM": syscall.SIGTERM} {
		if signal.Ignored(number) {
			continue // as under nohup: a shell cannot trap what was ignored when it began
		}
		root := e2eSandbox(t, "0", `touch "$1/manager.tar" && kill -`+name+` $PPID`)
		out := run(t, root, "hack/e2e.sh")
		left, err := filepath.Glob(filepath.Join(root, "tmp.*"))
		if err != nil || len(left) != 0 || !strings.Contains(out, "exit status") {
			t.Errorf("%s: left %q, %v\n%s", name, left, err, out)
		}
	}
}

// TestToolIsBuiltAgainForAnotherVersion: else a new version is tested with the old program.
func TestToolIsBuiltAgainForAnotherVersion(t *testing.T) {
	root := sandbox(t, []string{"hack/tool.sh", "hack/helm/go.mod", "hack/helm/go.sum"}, nil)
	program(t, filepath.Join(root, "path", "go"), `echo "$@" >>`+root+`/asked; echo made >"$4"; chmod +x "$4"`)
	for name, age := range map[string]time.Duration{"go.mod": 2 * time.Hour, "go.sum": time.Hour} {
		if err := os.Chtimes(filepath.Join(root, "hack", "helm", name), time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	builds := 0
	for _, c := range []struct {
		newer string
		more  int
	}{{"", 1}, {"", 0}, {"go.mod", 1}, {"go.sum", 1}} {
		if c.newer != "" {
			if err := os.Chtimes(filepath.Join(root, "bin", "helm"), time.Time{},
				time.Now().Add(-time.Minute)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(filepath.Join(root, "hack", "helm", c.newer), time.Time{}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		builds += c.more
		out := run(t, root, "hack/tool.sh", "helm")
		if got := strings.Count(asked(t, root), "build"); got != builds ||
			out != filepath.Join(root, "bin", "helm")+"\n" {
			t.Errorf("newer %q: %d builds, expected %d; it printed %q", c.newer, got, builds, out)
		}
		if c.newer != "" { // as old as before
			if err := os.Chtimes(filepath.Join(root, "hack", "helm", c.newer), time.Time{},
				time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestHelpListsEveryTarget that has a description.
func TestHelpListsEveryTarget(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	makefile, err := os.ReadFile(filepath.Join(testenv.Root(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "help")
	cmd.Dir = testenv.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	targets := regexp.MustCompile(`(?m)^(\S+):.*## `).FindAllStringSubmatch(string(makefile), -1)
	if len(targets) < 20 {
		t.Errorf("%d targets with a description", len(targets))
	}
	for _, target := range targets {
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(target[1]) + ` +\S`).Match(out) {
			t.Errorf("make help does not list %s", target[1])
		}
	}
}
