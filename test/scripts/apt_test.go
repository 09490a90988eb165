// Package scripts tests what shell scripts of hack do to the machine, with programs of its own in the place of the
// machine's.
package scripts

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/internal/testenv"
)

const deadline = time.Minute

// script writes a shell program.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
}

// program writes a program of one line.
func program(t *testing.T, path, line string) {
	t.Helper()
	script(t, path, "#!/bin/sh\n"+line+"\n")
}

// sandbox is a folder with copies of scripts, and a PATH of the machine's plain tools and of programs that do nothing.
func sandbox(t *testing.T, scripts, nothing []string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range scripts {
		data, err := os.ReadFile(filepath.Join(testenv.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		// The machine's own guard against services and its units are left alone.
		text := strings.NewReplacer("/usr/sbin/policy-rc.d", filepath.Join(root, "policy-rc.d"), "/etc/systemd/system",
			filepath.Join(root, "units")).Replace(string(data))
		script(t, filepath.Join(root, name), text)
	}
	for _, name := range []string{"sh", "bash", "dirname", "mkdir", "rm", "chmod", "tail", "printf", "mktemp", "cat",
		"touch", "flock", "env"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, "path"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(root, "path", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range nothing {
		program(t, filepath.Join(root, "path", name), "")
	}
	program(t, filepath.Join(root, "path", "id"), "echo 0")
	program(t, filepath.Join(root, "path", "uname"), "echo Linux")
	return root
}

func run(t *testing.T, root string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, words[0]), words[1:]...) //nolint:gosec // the copy of our own script
	cmd.Dir, cmd.Env = root, []string{"PATH=" + filepath.Join(root, "path"), "TMPDIR=" + root}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%v", out, err)
	}
	return string(out)
}

// asked is what the program that writes to the file was called with, a call a line.
func asked(t *testing.T, root string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "asked"))
	if err != nil {
		t.Fatalf("nothing was installed: %v", err)
	}
	return strings.TrimSpace(string(data))
}

// TestOnlyWhatIsMissingIsInstalled: a package that is named beside the missing ones can make apt remove what a user
// has, as Debian's containerd does with Docker's.
func TestOnlyWhatIsMissingIsInstalled(t *testing.T) {
	needs := []string{"containerd", "ctr", "runc", "buildah", "ip", "iptables", "conntrack", "promtool", "prometheus"}
	for _, c := range []struct {
		script, without, want, beside, besideFile string
		there, args                               []string
	}{
		{"hack/e2e.sh", "buildah", "buildah", "containernetworking-plugins", "/usr/lib/cni/bridge", needs, nil},
		{"hack/e2e.sh", "conntrack", "conntrack", "containernetworking-plugins", "/usr/lib/cni/bridge", needs, nil},
		{"hack/setup.sh", "gcc", "gcc", "libc6-dev", "/usr/include/stdlib.h",
			[]string{"git", "gcc", "go", "apt-get"}, nil},
		{"hack/setup.sh", "promtool", "prometheus", "none", "/", []string{"prometheus", "promtool", "apt-get"},
			[]string{"promtool"}},
	} {
		t.Run(c.script+"/"+c.without, func(t *testing.T) {
			var there []string
			for _, name := range c.there {
				if name != c.without {
					there = append(there, name)
				}
			}
			root := sandbox(t, []string{c.script}, there)
			program(t, filepath.Join(root, "hack", "apt.sh"), `echo "$@" >>`+root+"/asked; echo no; exit 1")
			out := run(t, root, append([]string{c.script}, c.args...)...)
			got := asked(t, root)
			if _, err := os.Stat(c.besideFile); err != nil {
				got = strings.TrimSpace(strings.ReplaceAll(got, c.beside, ""))
			}
			if got != c.want {
				t.Errorf("with %s alone missing it installs %q, expected %q\n%s", c.without, got, c.want, out)
			}
		})
	}
}

// TestNothingIsRemovedAndNoServiceStarts: the one script that installs packages lets apt remove none, and takes its
// guard against services away.
func TestNothingIsRemovedAndNoServiceStarts(t *testing.T) {
	root := sandbox(t, []string{"hack/apt.sh"}, nil)
	program(t, filepath.Join(root, "path", "apt-get"), `[ -x `+root+
		`/policy-rc.d ] && guard=guarded; echo "$guard $@" >>`+root+"/asked; [ $1 != install ] || exit 100")
	if out := run(t, root, "hack/apt.sh", "buildah", "runc"); !strings.Contains(out, "exit status 100") {
		t.Errorf("apt-get failed, and hack/apt.sh says %q", out)
	}
	calls := strings.Split(asked(t, root), "\n")
	last := calls[len(calls)-1]
	for _, want := range []string{"guarded install ", " --no-remove ", " --no-install-recommends ", " buildah runc"} {
		if !strings.Contains(last, want) {
			t.Errorf("apt-get was called as %q, expected %q in it", last, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "policy-rc.d")); err == nil {
		t.Error("the guard against services stayed")
	}
}

// TestGuardAgainstServicesGoesWhateverHappens: with it left, no service of the machine starts any more.
func TestGuardAgainstServicesGoesWhateverHappens(t *testing.T) {
	const foreign = "#!/bin/sh\nexit 0\n"
	for _, c := range []struct{ name, before, install, want string }{
		{"success", "", "exit 0", ""},
		{"failure", "", "exit 100", ""},
		{"HUP", "", "kill -HUP $PPID; exit 100", ""},
		{"INT", "", "kill -INT $PPID; exit 100", ""},
		{"TERM", "", "kill -TERM $PPID; exit 100", ""},
		{"an earlier one was killed", "#!/bin/sh\n# made by hack/apt.sh\nexit 101\n", "exit 0", ""},
		{"somebody else's", foreign, "exit 0", foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := sandbox(t, []string{"hack/apt.sh"}, nil)
			policy := filepath.Join(root, "policy-rc.d")
			if c.before != "" {
				script(t, policy, c.before)
			}
			program(t, filepath.Join(root, "path", "apt-get"),
				`[ -x `+policy+` ] || echo no guard; [ $1 = install ] || exit 0; `+c.install)
			if out := run(t, root, "hack/apt.sh", "prometheus"); strings.Contains(out, "no guard") {
				t.Errorf("packages were installed without the guard: %s", out)
			}
			if got, _ := os.ReadFile(policy); string(got) != c.want {
				t.Errorf("afterwards the guard is %q, expected %q", got, c.want)
			}
		})
	}
}

// TestNoServiceStartsAtTheNextBoot: packages enable their services, whether or not they may start them now.
func TestNoServiceStartsAtTheNextBoot(t *testing.T) {
	for _, end := range []string{"exit 0", "exit 100", "kill -INT $PPID; exit 100"} {
		root := sandbox(t, []string{"hack/apt.sh"}, nil)
		wants := filepath.Join(root, "units", "multi-user.target.wants")
		program(t, filepath.Join(root, "unit"), ":")
		link := func(name string) string { return filepath.Join(wants, name) }
		if err := os.MkdirAll(wants, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, "unit"), link("a-prometheus.service")); err != nil {
			t.Fatal(err)
		}
		ln, err := exec.LookPath("ln")
		if err != nil {
			t.Fatal(err)
		}
		program(t, filepath.Join(root, "path", "apt-get"),
			`[ $1 = install ] || exit 0; `+ln+` -s `+root+`/unit `+link("prometheus.service")+"; "+end)
		out := run(t, root, "hack/apt.sh", "prometheus")
		if _, err := os.Lstat(link("prometheus.service")); err == nil {
			t.Errorf("after %q the new service is enabled: %s", end, out)
		}
		if _, err := os.Lstat(link("a-prometheus.service")); err != nil {
			t.Errorf("after %q a service that was there is not enabled any more: %s", end, out)
		}
		if !strings.Contains(out, "systemctl enable prometheus.service") {
			t.Errorf("after %q nothing says what was done: %s", end, out)
		}
	}
}

// TestOnePlaceInstalls: no other script has a command that installs packages.
func TestOnePlaceInstalls(t *testing.T) {
	command := regexp.MustCompile(`(?m)^[^#"']*\bapt(-get)?\b[^"'\n]*\binstall\b`)
	seen := 0
	err := filepath.WalkDir(filepath.Join(testenv.Root(), "hack"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".sh") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found := command.FindString(string(data)); found != "" {
			seen++
			if !strings.HasSuffix(path, filepath.Join("hack", "apt.sh")) {
				t.Errorf("%s: %q: let hack/apt.sh do it", path, found)
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d scripts install packages, expected one: %v", seen, err)
	}
}
