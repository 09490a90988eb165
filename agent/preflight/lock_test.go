package preflight

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/internal/audience"
)

// lockHelper makes this test program a second run: it locks argument 2's folder for the addresses that follow, says so,
// and holds on until its input ends.
const lockHelper = "hold-locks"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == lockHelper {
		release, f := Lock(os.Args[2], os.Args[3:], Holder{Run: "run-a", Start: time.Unix(1_800_000_000, 0).UTC()})
		if f != nil {
			fmt.Println(f)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		release()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// secondRun is another process that holds locks until it is ended.
type secondRun struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startRun(t *testing.T, dir string, pci ...string) secondRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, exec.Command(self, append([]string{lockHelper, dir}, pci...)...)) //nolint:gosec // this test program itself
}

func startProgram(t *testing.T, cmd *exec.Cmd) secondRun {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the other process says %q (%v), expected that it holds the locks", line, err)
	}
	return secondRun{cmd, stdin}
}

const gpuA, gpuB, gpuC = "0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0"

func TestLockBetweenProcesses(t *testing.T) {
	for name, end := range map[string]func(secondRun) error{
		"ends":      func(r secondRun) error { return r.stdin.Close() },
		"is killed": func(r secondRun) error { return r.cmd.Process.Signal(syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			other := startRun(t, dir, gpuA, gpuB)
			release, f := Lock(dir, []string{gpuC, gpuB}, Holder{Run: "run-b"})
			release()
			if f == nil || f.State != Failed || f.Name != GPUBusy || f.Rank != 1 {
				t.Fatalf("finding %+v, expected that rank 1's GPU is busy", f)
			}
			for _, want := range []string{gpuB, `run "run-a"`, fmt.Sprintf("process %d", other.cmd.Process.Pid),
				"2027-01-15T08:00:00Z"} {
				if !strings.Contains(f.Message, want) {
					t.Errorf("message %q lacks %q", f.Message, want)
				}
			}
			// What the failed try had taken, it gave back; and other GPUs are free.
			release, f = Lock(dir, []string{gpuC}, Holder{Run: "run-b"})
			if f != nil {
				t.Errorf("another GPU: %+v", f)
			}
			release()
			if err := end(other); err != nil {
				t.Fatal(err)
			}
			_ = other.cmd.Wait()
			release, f = Lock(dir, []string{gpuA, gpuB, gpuC}, Holder{Run: "run-b"})
			if f != nil {
				t.Errorf("after the other run: %+v", f)
			}
			release()
		})
	}
}

// TestHolderInWords: what a lock's file does not say leaves no hole in the message.
func TestHolderInWords(t *testing.T) {
	since := time.Unix(1_800_000_000, 0).UTC()
	for want, h := range map[string]Holder{
		"a run that left nothing of itself in the lock's file":          {},
		`run "run-a" (process 12, since 2027-01-15T08:00:00Z)`:          {ProcessID: 12, Run: "run-a", Start: since},
		"a run without a name (process 12, since 2027-01-15T08:00:00Z)": {ProcessID: 12, Start: since},
		`run "run-a" (process 12)`:                                      {ProcessID: 12, Run: "run-a"},
		`run "run-a"`:                                                   {Run: "run-a"},
		"a run without a name (since 2027-01-15T08:00:00Z)":             {Start: since},
	} {
		if got := h.String(); got != want {
			t.Errorf("%+v is %q, expected %q", h, got, want)
		}
	}
	f := found(GPUBusy, Failed, 0, "GPU %s is in use by %s", gpuA, Holder{})
	if got := f.Advised(audience.Shell); strings.Contains(got, ",:") ||
		!strings.Contains(got, "lock's file: wait for") {
		t.Errorf("%q", got)
	}
}

// TestLockBetweenUsers: the runs of two users meet in a folder that everybody writes to, whoever made the file.
func TestLockBetweenUsers(t *testing.T) {
	const nobody = 65534
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	base, err := os.MkdirTemp("", "locks") // unlike t.TempDir, a folder that others can be let into
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied, dir := filepath.Join(base, "program"), filepath.Join(base, "lock")
	for _, err := range []error{os.Chmod(base, 0o755), os.WriteFile(copied, program, 0o755), os.Mkdir(dir, 0o777),
		os.Chmod(dir, 0o777|os.ModeSticky)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	start := func(pci string) secondRun {
		cmd := exec.Command(copied, lockHelper, dir, pci)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return startProgram(t, cmd)
	}
	release, f := Lock(dir, []string{gpuA}, Holder{Run: "run-b"})
	if f != nil {
		t.Fatal(f)
	}
	release()
	for what, pci := range map[string]string{"root's file": gpuA, "a file of their own": gpuB} {
		other := start(pci)
		release, f := Lock(dir, []string{pci}, Holder{Run: "run-b"})
		release()
		if f == nil || f.State != Failed || !strings.Contains(f.Message, `run "run-a"`) {
			t.Errorf("another user locks %s: %+v, expected that its run is named", what, f)
		}
		_ = other.stdin.Close()
		_ = other.cmd.Wait()
		release, f = Lock(dir, []string{pci}, Holder{Run: "run-b"})
		release()
		if f != nil {
			t.Errorf("after another user locked %s: %+v", what, f)
		}
	}
}

// TestLockChildren: a child of the holder does not hold the lock on.
func TestLockChildren(t *testing.T) {
	dir := t.TempDir()
	release, f := Lock(dir, []string{gpuA}, Holder{})
	if f != nil {
		t.Fatal(f)
	}
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close(); _ = child.Wait() }()
	release()
	release, f = Lock(dir, []string{gpuA}, Holder{})
	defer release()
	if f != nil {
		t.Errorf("the child kept the lock: %+v", f)
	}
}

func lockPath(dir, pci string) string { return filepath.Join(dir, "rcclx-"+pci+".lock") }

func TestLockFiles(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for name, tc := range map[string]struct {
		prepare func(dir string) error
		pci     string
		state   State // "" means that the lock is had
		text    string
	}{
		"new file":   {func(string) error { return nil }, gpuA, "", ""},
		"upper case": {func(string) error { return nil }, "0000:AB:00.0", "", ""},
		"stale file": {func(d string) error {
			return os.WriteFile(lockPath(d, gpuA), []byte(`{"pid":1,"run":"old"}`), 0o666)
		}, gpuA, "", ""},
		"file of garbage": {func(d string) error {
			return os.WriteFile(lockPath(d, gpuA), []byte(strings.Repeat("x", 99999)), 0o666)
		}, gpuA, "", ""},
		"read-only file": {func(d string) error { return os.WriteFile(lockPath(d, gpuA), nil, 0o444) }, gpuA, "", ""},
		"link": {func(d string) error { return os.Symlink(filepath.Join(d, "target"), lockPath(d, gpuA)) }, gpuA,
			Unknown, "could not be locked"},
		"FIFO": {func(d string) error { return unix.Mkfifo(lockPath(d, gpuA), 0o666) }, gpuA, Unknown,
			"not a regular file"},
		"folder": {func(d string) error { return os.Mkdir(lockPath(d, gpuA), 0o777) }, gpuA, Unknown,
			"could not be locked"},
		"no folder for locks": {os.Remove, gpuA, Unknown, "no such file"},
		"address as a path":   {func(string) error { return nil }, "../../0000:05", Unknown, "no PCI address"},
		"no address":          {func(string) error { return nil }, "", Unknown, "no PCI address"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "locks")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tc.prepare(dir); err != nil {
				t.Fatal(err)
			}
			release, f := Lock(dir, []string{tc.pci}, Holder{Run: "run-a"})
			defer release()
			if tc.state != "" {
				if f == nil || f.State != tc.state || !strings.Contains(f.Message, tc.text) {
					t.Errorf("finding %+v, expected %s with %q", f, tc.state, tc.text)
				}
				if _, err := os.Stat(filepath.Join(dir, "target")); err == nil {
					t.Error("a link was followed")
				}
				return
			}
			if f != nil {
				t.Fatalf("finding %+v, expected the lock", f)
			}
			second, f := Lock(dir, []string{tc.pci}, Holder{Run: "run-b"})
			defer second()
			if f == nil || f.State != Failed {
				t.Errorf("second run: %+v, expected that the GPU is busy", f)
			}
			info, err := os.Stat(lockPath(dir, strings.ToLower(tc.pci)))
			if err != nil || name == "new file" && info.Mode().Perm() != lockFileMode {
				t.Errorf("file %v, error %v: other users could not open it", info, err)
			}
		})
	}
}

// TestLockRemovedName: a file whose name was taken away keeps nobody out, so the holder's name must still be there.
func TestLockRemovedName(t *testing.T) {
	dir := t.TempDir()
	f, err := openLock(lockPath(dir, gpuA))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if !stillThere(f, lockPath(dir, gpuA)) {
		t.Error("the file is not the one that was opened")
	}
	if err := os.Remove(lockPath(dir, gpuA)); err != nil {
		t.Fatal(err)
	}
	if stillThere(f, lockPath(dir, gpuA)) {
		t.Error("a removed name passes for the file")
	}
	release, finding := Lock(dir, []string{gpuA}, Holder{})
	defer release()
	if finding != nil || stillThere(f, lockPath(dir, gpuA)) {
		t.Errorf("finding %+v; the new file must be another one", finding)
	}
}

func TestLockPartitions(t *testing.T) {
	release, f := Lock(t.TempDir(), []string{gpuA, gpuA, gpuB, gpuA}, Holder{})
	defer release()
	if f != nil {
		t.Errorf("ranks on partitions of one GPU lock it once: %+v", f)
	}
}

func TestDefaultLockDir(t *testing.T) {
	info, err := os.Stat(DefaultLockDir())
	if err != nil || !info.IsDir() {
		t.Errorf("%s: %v", DefaultLockDir(), err)
	}
	root := t.TempDir()
	dir := PodHost{Root: root}.LockDir()
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !strings.HasPrefix(dir, root+"/") {
		t.Errorf("a simulated node locks in %s (%v), expected below %s", dir, err, root)
	}
}
