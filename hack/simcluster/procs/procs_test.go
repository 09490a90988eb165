package procs

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	s, err := ParseStat("42 (a (b) c) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3")
	if err != nil || s != (Stat{PID: 42, State: 'S', PPID: 7, Session: 41, StartTicks: 987654}) {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "x (y) S 1", "42 (x) S 7 42"} {
		if s, err := ParseStat(bad); err == nil {
			t.Errorf("ParseStat(%q) = %+v, want an error", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (a) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3")
	f.Fuzz(func(_ *testing.T, line string) { _, _ = ParseStat(line) })
}

func TestMembers(t *testing.T) {
	r := Record{PID: 10, StartTicks: 100, Mark: "M=1"}
	marked := func(pid int, _ string) bool { return pid == 14 }
	all := []Stat{
		{PID: 1}, {PID: 10, PPID: 1, Session: 10, StartTicks: 100}, {PID: 11, PPID: 10, Session: 10, StartTicks: 110},
		{PID: 12, PPID: 11, Session: 12, StartTicks: 120}, {PID: 13, PPID: 1, Session: 10, StartTicks: 130},
		{PID: 14, PPID: 1, Session: 14, StartTicks: 140}, {PID: 15, PPID: 1, Session: 15, StartTicks: 150},
		{PID: 16, PPID: 1, Session: 10, StartTicks: 90},
	}
	if got := pids(Members(r, all, marked)); got != "10 11 12 13 14 " {
		t.Errorf("members %s, want leader, session, descendants and marked ones: 10 11 12 13 14", got)
	}
	all[1].StartTicks = 105
	if got := pids(Members(r, all, marked)); got != "14 " {
		t.Errorf("members %s: the number went to another process, so only the marked 14 belongs", got)
	}
}

func pids(members []Stat) string {
	out := ""
	for _, m := range members {
		out += string(rune('0'+m.PID/10)) + string(rune('0'+m.PID%10)) + " "
	}
	return out
}

func TestTerminateEndsAllThatWasStarted(t *testing.T) {
	cmd := exec.Command("sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "PROCS_TEST_MARK=terminate")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := New("x", cmd.Process.Pid, "sh")
	if err != nil {
		t.Fatal(err)
	}
	r.Mark = "PROCS_TEST_MARK=terminate"
	dir := t.TempDir()
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || len(loaded) != 1 || loaded[0] != r {
		t.Fatalf("loaded %+v, %v; want %+v", loaded, err, r)
	}
	waited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(waited) }()
	if err := Terminate(r, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-waited
	if r.Alive() {
		t.Error("the process is still there")
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Members(r, all, carriesMark) {
		if s.State != 'Z' {
			t.Errorf("process %d of it is still there", s.PID)
		}
	}
}

func TestAliveTellsProcessesWithOneNumberApart(t *testing.T) {
	self, err := New("self", os.Getpid(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is not alive")
	}
	other := self
	other.StartTicks++
	if other.Alive() {
		t.Error("a record with another start time is taken for this process")
	}
	named := self
	named.Argv0 = "/something/else"
	if named.Alive() {
		t.Error("a record with another command is taken for this process")
	}
}
