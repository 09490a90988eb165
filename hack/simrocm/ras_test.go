package simrocm

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rcclx.io/commgroup-operator/agent/ras"
)

// rasJob is a job whose RAS service has an address of its own.
type rasJob struct {
	t       *testing.T
	address string
	cmds    []*exec.Cmd
	said    chan struct{}
}

// startRAS starts a job; each rank that writes text is counted by wait.
func startRAS(t *testing.T, j job, text string, steps ...string) *rasJob {
	t.Helper()
	address, release, err := ras.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	j.env = append(slices.Clone(j.env), "NCCL_RAS_ADDR="+address)
	r := &rasJob{t: t, address: address, cmds: j.commands(ctx, t, memoryFolder(t), steps),
		said: make(chan struct{}, j.ranks)}
	t.Cleanup(func() {
		for _, cmd := range r.cmds {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		}
	})
	for _, cmd := range r.cmds {
		cmd.Stdout = &watcher{want: text, found: r.said}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// wait returns when so many ranks have said their text.
func (r *rasJob) wait(ranks int) *rasJob {
	r.t.Helper()
	for range ranks {
		select {
		case <-r.said:
		case <-r.t.Context().Done():
			r.t.Fatal("interrupted")
		}
	}
	return r
}

// until asks until the report is as wanted; what a rank does beyond what it says takes its time.
func (r *rasJob) until(want func(ras.Report) bool) ras.Report {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var dialer net.Dialer
	for {
		report, err := ras.Query(ctx, dialer.DialContext, r.address)
		if err == nil && want(report) {
			return report
		}
		if ctx.Err() != nil {
			r.t.Fatalf("last answer %+v, %v", report, err)
		}
	}
}

func (r *rasJob) check(report ras.Report, verdict string) {
	r.t.Helper()
	if got := report.Verdict(); got != verdict {
		r.t.Errorf("got  %s\nwant %s", got, verdict)
	}
}

const blind = " (DDA and low precision are not counted)"

func mismatch(r ras.Report) bool {
	return len(r.Groups) == 1 && slices.Contains(r.Groups[0].Errors, "MISMATCH")
}

func TestRAS(t *testing.T) {
	t.Run("healthy", func(t *testing.T) {
		r := startRAS(t, job{ranks: 4}, "ready", "ar:f32:65536:2", "hold").wait(4)
		report := r.until(func(ras.Report) bool { return true })
		r.check(report, "Simulated RAS: communicator of 4 ranks is RUNNING and its ranks have launched equally many "+
			"operations, so none lags behind in launching"+blind)
		if report.Nodes != 1 || report.Processes != 4 || report.GPUs != 4 || report.Library != "RCCL 2.28.3-SIMULATED" {
			t.Errorf("%+v", report)
		}
	})
	t.Run("a rank that does not launch", func(t *testing.T) {
		r := startRAS(t, job{ranks: 4, node: healthy(t, "late:1:3600000")}, "ready", "post:f32:65536",
			"post:f32:65536", "hold").wait(3)
		r.check(r.until(mismatch), "Simulated RAS: communicator of 4 ranks is RUNNING with MISMATCH: "+
			"rank 1 has launched none of the AllReduce (printed as Broadcast) operations, "+
			"the others 2 (asked once; ranks at work differ, too)"+blind)
	})
	t.Run("the same in DDA", func(t *testing.T) {
		r := startRAS(t, job{ranks: 8, node: healthy(t, "late:1:3600000")}, "ready", "post:f32:65536", "hold").wait(7)
		r.check(r.until(func(ras.Report) bool { return true }),
			"Simulated RAS: communicator of 8 ranks is RUNNING and its ranks have launched equally many operations, "+
				"so none lags behind in launching"+blind)
	})
	t.Run("a rank that died", func(t *testing.T) {
		r := startRAS(t, job{ranks: 4}, "ready", "hold").wait(4)
		_ = r.cmds[2].Process.Signal(syscall.SIGKILL)
		_ = r.cmds[2].Wait()
		report := r.until(func(report ras.Report) bool { return report.Missing.Count > 0 })
		if v := report.Verdict(); !strings.Contains(v,
			"is RUNNING with INCOMPLETE: no answer from rank 2; no answer from process") {
			t.Error(v)
		}
		if got := report.Missing.Listed; len(got) != 1 || got[0].PID != r.cmds[2].Process.Pid || got[0].GPUs != "2" {
			t.Errorf("missing %+v, want process %d of GPU 2", got, r.cmds[2].Process.Pid)
		}
	})
	t.Run("a rank that hangs in init", func(t *testing.T) {
		r := startRAS(t, job{ranks: 4, node: healthy(t, "init-hang:1")}, "joining").wait(4)
		r.check(r.until(func(report ras.Report) bool { return len(report.Groups) == 1 }),
			"Simulated RAS: communicator of 4 ranks is INIT on all of them")
	})
	t.Run("a rank that never comes", func(t *testing.T) {
		r := startRAS(t, job{ranks: 2, rankEnv: func(rank int) []string {
			if rank == 1 {
				return []string{"NCCL_COMM_ID=elsewhere", "NCCL_RAS_ENABLE=0"}
			}
			return nil
		}}, "joining").wait(2)
		r.check(r.until(func(ras.Report) bool { return true }),
			"Simulated RAS: no communicator yet, so its ranks have not all met (0 processes are known)")
	})
	t.Run("a rank that hangs in destroy", func(t *testing.T) {
		r := startRAS(t, job{ranks: 3, node: healthy(t, "destroy-hang:1")}, "done", "ar:f32:4096:1").wait(2)
		r.check(r.until(func(report ras.Report) bool {
			return mismatch(report) && report.Groups[0].Status == "FINALIZE"
		}), "Simulated RAS: communicator of 3 ranks is FINALIZE with MISMATCH: rank 1 is FINALIZE, the others NOCOMM")
	})
	t.Run("off", func(t *testing.T) {
		r := startRAS(t, job{ranks: 2, env: []string{"NCCL_RAS_ENABLE=0"}}, "ready", "hold").wait(2)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var dialer net.Dialer
		if _, err := ras.Query(ctx, dialer.DialContext, r.address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, want a refused connection", err)
		}
	})
}
