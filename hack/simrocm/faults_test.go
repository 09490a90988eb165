package simrocm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	t.Run("hang", func(t *testing.T) {
		o := job{ranks: 8, node: healthy(t, "hang:3")}.run(t, "deadline:300", "ar:f32:65536:1")
		for rank, code := range o.codes {
			if code != 3 {
				t.Errorf("rank %d ended with %d, want 3 (its event was never ready)", rank, code)
			}
		}
	})
	t.Run("wrong data", func(t *testing.T) {
		o := job{ranks: 8, node: healthy(t, "wrong-data:5")}.run(t, "ar:f32:1048576:1", "pair:0-5:65536:1",
			"pair:1-2:65536:1")
		if o.step(t, "ar:f32:1048576:1", "wrong") == 0 || o.step(t, "pair:0-5:65536:1", "wrong") == 0 {
			t.Error("the corrupted contribution cannot be seen")
		}
		if o.step(t, "pair:1-2:65536:1", "wrong") != 0 {
			t.Error("a pair without the GPU is wrong, too")
		}
	})
	t.Run("slow link", func(t *testing.T) {
		const collective, slow, other = "ar:f32:33554432:1", "pair:1-4:16777216:1", "pair:0-5:16777216:1"
		base := job{ranks: 8, node: healthy(t, "")}.run(t, collective, slow, other)
		o := job{ranks: 8, node: healthy(t, "slow-link:1-4:25")}.run(t, collective, slow, other)
		for step, factor := range map[string]float64{collective: 3.4, slow: 3.4, other: 1} {
			if got := float64(o.step(t, step, "ns")) / float64(base.step(t, step, "ns")); got < factor ||
				got > factor*1.2 {
				t.Errorf("%s takes %.2f times as long, want about %.1f", step, got, factor)
			}
		}
	})
	t.Run("low memory", func(t *testing.T) {
		o := job{ranks: 2, node: healthy(t, "low-memory:64")}.run(t, "ar:f32:134217728:1")
		if !strings.Contains(o.text, "call=hipMalloc code=2") {
			t.Errorf("want hipErrorOutOfMemory of hipMalloc:\n%s", o.text)
		}
	})
	t.Run("missing symbol", func(t *testing.T) {
		o := job{ranks: 1, node: healthy(t, "missing-symbol:ncclAllReduce")}.run(t, "symbol:ncclAllReduce",
			"symbol:ncclAllGather")
		if !strings.Contains(o.text, "symbol name=ncclAllReduce found=0") ||
			!strings.Contains(o.text, "symbol name=ncclAllGather found=1") {
			t.Errorf("want only ncclAllReduce missing:\n%s", o.text)
		}
	})
	t.Run("late", func(t *testing.T) {
		const step = "ar:f32:65536:3"
		base := job{ranks: 4, node: healthy(t, "")}.run(t, step).step(t, step, "ns")
		// Each of the three waits for the straggler, whom the timing starts with.
		if got := (job{ranks: 4, node: healthy(t, "late:2:20")}.run(t, step).step(t, step, "ns")); got !=
			base+20_000_000 {
			t.Errorf("%d ns with a rank that is 20 ms late, want %d and that", got, base)
		}
	})
	t.Run("init hang", func(t *testing.T) {
		kill := job{ranks: 4, node: healthy(t, "init-hang:1")}.start(t, memoryFolder(t), "joining", "hold")
		kill()
	})
	t.Run("destroy hang", func(t *testing.T) {
		memory := memoryFolder(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmds := job{ranks: 3, node: healthy(t, "destroy-hang:1")}.commands(ctx, t, memory, []string{"ar:f32:4096:1"})
		for _, cmd := range cmds {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(cmds[0].Wait(), cmds[2].Wait()); err != nil {
			t.Errorf("the other ranks: %v", err)
		}
		_ = cmds[1].Process.Signal(syscall.SIGKILL)
		_ = cmds[1].Wait()
		if status, ok := cmds[1].ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Errorf("rank 1 ended with %v before it was killed", cmds[1].ProcessState)
		}
	})
	t.Run("segfault", func(t *testing.T) {
		memory := memoryFolder(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmds := job{ranks: 2, node: healthy(t, "segfault:1")}.commands(ctx, t, memory, []string{"ar:f32:4096:1"})
		for _, cmd := range cmds {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmds[1].Wait()
		if status, ok := cmds[1].ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGSEGV {
			t.Errorf("rank 1 ended with %v, want SIGSEGV", cmds[1].ProcessState)
		}
		_ = cmds[0].Process.Signal(syscall.SIGKILL)
		_ = cmds[0].Wait()
	})
	t.Run("garbage version", func(t *testing.T) {
		o := job{ranks: 1, node: healthy(t, "garbage-version:-7")}.run(t, "version")
		if !strings.Contains(o.text, "version code=-7") {
			t.Errorf("want the version -7:\n%s", o.text)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		for _, fault := range []string{"late:1", "late:9:5", "late:1:0", "init-hang:8", "init-hang:",
			"garbage-version:x", "hang"} {
			if o := (job{ranks: 1, node: healthy(t, fault)}.run(t)); !strings.Contains(o.text,
				"unknown fault: "+fault) {
				t.Errorf("fault %s was taken:\n%s", fault, o.text)
			}
		}
	})
	t.Run("precondition", func(t *testing.T) {
		o := job{ranks: 1, env: []string{"HSA_NO_SCRATCH_RECLAIM=0"}}.run(t)
		if !strings.Contains(o.text, "call=ncclGetUniqueId code=2") {
			t.Errorf("want ncclSystemError without HSA_NO_SCRATCH_RECLAIM=1:\n%s", o.text)
		}
	})
	t.Run("unreadable configuration", func(t *testing.T) {
		o := job{ranks: 1, env: []string{"SIMROCM_ROOT=" + t.TempDir()}}.run(t)
		if !strings.Contains(o.text, "simrocm.conf: cannot be read") {
			t.Errorf("want an error about simrocm.conf:\n%s", o.text)
		}
	})
}

// start starts the ranks, waits until each has written the text, and gives a function that kills all that are left.
func (j job) start(t *testing.T, memory, text string, steps ...string) (kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmds := j.commands(ctx, t, memory, steps)
	said := make(chan struct{}, len(cmds))
	for _, cmd := range cmds {
		w := &watcher{want: text, found: said}
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for range cmds {
		select {
		case <-said:
		case <-ctx.Done():
			t.Fatalf("a rank did not say %q within %s", text, patience)
		}
	}
	return func() {
		for _, cmd := range cmds {
			_ = cmd.Process.Signal(syscall.SIGKILL)
		}
		for _, cmd := range cmds {
			_ = cmd.Wait()
		}
	}
}

// watcher keeps what a process writes, and tells once when it has seen a text.
type watcher struct {
	want  string
	found chan<- struct{}

	mu   sync.Mutex
	text strings.Builder
	done bool
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.text.Write(p)
	tell := !w.done && strings.Contains(w.text.String(), w.want)
	w.done = w.done || tell
	w.mu.Unlock()
	if tell {
		w.found <- struct{}{}
	}
	return len(p), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestKilledRanksLeaveNothing(t *testing.T) {
	memory := memoryFolder(t)
	kill := job{ranks: 8}.start(t, memory, "ready", "ar:f32:1048576:1", "hold")
	left, err := os.ReadDir(memory)
	if err != nil || len(left) != 0 {
		t.Errorf("while the ranks run: %v (%v), want no files", left, err)
	}
	kill()
	if left, err = os.ReadDir(memory); err != nil || len(left) != 0 {
		t.Errorf("after SIGKILL: %v (%v), want no files", left, err)
	}
}

func TestNextRunSweepsWhatDiedBeforeItMet(t *testing.T) {
	memory := memoryFolder(t)
	j := job{ranks: 2, rankEnv: func(rank int) []string {
		// Rank 1 waits in another communicator, so that neither is ever complete.
		return []string{fmt.Sprintf("NCCL_COMM_ID=%s-%d", t.Name(), rank)}
	}}
	kill := j.start(t, memory, "joining", "hold")
	for deadline := time.Now().Add(patience); ; { // until both files are there
		if left, err := os.ReadDir(memory); err == nil && len(left) == 2 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("files %v (%v), want two", left, err)
		}
	}
	kill()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, cmd := range (job{ranks: 1}).commands(ctx, t, memory, nil) {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) != 0 {
		t.Errorf("%v (%v), want no files", left, err)
	}
}

func TestTwoRanksOnOneGPU(t *testing.T) {
	o := job{ranks: 4, env: []string{"RCCL_DDA_NRANKS=0"}, rankEnv: func(r int) []string {
		return []string{fmt.Sprintf("TEST_DEVICE=%d", max(r, 1))} // ranks 0 and 1 both get device 1
	}}.run(t, "ar:f32:4096:1")
	for _, want := range []string{"error rank=0 call=ncclCommInitRank code=5 text=Duplicate GPU detected : " +
		"rank 0 and rank 1 both on CUDA device 2b000", "error rank=2 call=ncclCommInitRank code=6"} {
		if !strings.Contains(o.text, want) {
			t.Errorf("want %q:\n%s", want, o.text)
		}
	}
}

// id gives the unique id that a rank of the output has made, in hexadecimal.
func id(t *testing.T, text string) string {
	t.Helper()
	_, after, ok := strings.Cut(text, " id=")
	value, _, _ := strings.Cut(after, "\n")
	if !ok || len(value) != 256 {
		t.Fatalf("no unique id in %q", text)
	}
	return value
}

func TestUniqueIDOfAnotherRun(t *testing.T) {
	impatient := []string{"NCCL_SOCKET_RETRY_CNT=1", "NCCL_SOCKET_RETRY_SLEEP_MSEC=10"}
	const refused = "call=ncclCommInitRank code=6 text=socketStartConnect: connect to the root of simrocm-"
	alone := func(ranks int) job { return job{ranks: ranks, env: append([]string{"NCCL_COMM_ID="}, impatient...)} }
	t.Run("that ended well", func(t *testing.T) {
		old := id(t, alone(1).run(t).text)
		o := job{ranks: 2, env: append([]string{"TEST_ID=" + old}, impatient...)}.run(t)
		if strings.Count(o.text, refused) != 2 {
			t.Errorf("want both ranks refused:\n%s", o.text)
		}
	})
	t.Run("that was killed before its ranks met", func(t *testing.T) {
		memory := memoryFolder(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		waiting := alone(2).commands(ctx, t, memory, nil)[0]
		found, text := make(chan struct{}, 1), &watcher{want: "\n"}
		text.found = found
		waiting.Stdout = text
		if err := waiting.Start(); err != nil {
			t.Fatal(err)
		}
		<-found
		_ = waiting.Process.Signal(syscall.SIGKILL)
		_ = waiting.Wait()
		late := job{ranks: 2, env: append([]string{"TEST_ID=" + id(t, text.String())}, impatient...)}.commands(ctx,
			t, memory, nil)[1]
		out, _ := late.CombinedOutput()
		if !strings.Contains(string(out), refused) {
			t.Errorf("want the rank refused:\n%s", out)
		}
		if left, err := os.ReadDir(memory); err != nil || len(left) != 0 {
			t.Errorf("%v (%v), want no files", left, err)
		}
	})
	t.Run("that is still waiting", func(t *testing.T) {
		memory := memoryFolder(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		root := alone(2).commands(ctx, t, memory, nil)[0]
		found, text := make(chan struct{}, 1), &watcher{want: "\n"}
		text.found = found
		root.Stdout = text
		if err := root.Start(); err != nil {
			t.Fatal(err)
		}
		<-found
		peer := job{ranks: 2, env: append([]string{"TEST_ID=" + id(t, text.String())}, impatient...)}.commands(ctx,
			t, memory, nil)[1]
		if out, err := peer.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if err := root.Wait(); err != nil {
			t.Errorf("root: %v\n%s", err, text.String())
		}
	})
}

// As in the library the root gives up, and nobody hears of it but its log.
func TestWrongRankOrWorldSizeWaitsForEver(t *testing.T) {
	for name, c := range map[string]struct {
		late []string
		want string
	}{
		"rank":       {[]string{"0", "2"}, "rank 0 of 2 ranks has already checked in"},
		"world size": {[]string{"1", "3"}, "mismatch in info from procs, nranks"},
	} {
		t.Run(name, func(t *testing.T) {
			memory := memoryFolder(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmds := job{ranks: 2, env: []string{"NCCL_DEBUG=WARN"}}.commands(ctx, t, memory, nil)
			cmds[1].Args = append(cmds[1].Args[:1:1], c.late...)
			found := make(chan struct{}, len(cmds))
			for _, cmd := range cmds {
				cmd.Stdout = &watcher{want: c.want, found: found} // whoever comes second says it
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-found:
			case <-ctx.Done():
				t.Errorf("no rank said %q within %s", c.want, patience)
			}
			for _, cmd := range cmds {
				_ = cmd.Process.Signal(syscall.SIGKILL)
				_ = cmd.Wait()
			}
		})
	}
}

func TestInitAbort(t *testing.T) {
	memory := memoryFolder(t)
	j := job{ranks: 8, node: healthy(t, "init-abort:2")}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmds := j.commands(ctx, t, memory, []string{"hold"})
	var text bytes.Buffer
	cmds[2].Stderr = &text
	for _, cmd := range cmds {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmds[2].Wait()
	status, ok := cmds[2].ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGABRT ||
		!strings.Contains(text.String(), "init-abort") {
		t.Errorf("rank 2 ended with %v, want SIGABRT and a reason: %s", cmds[2].ProcessState, text.String())
	}
	for i, cmd := range cmds {
		if i == 2 {
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGKILL) // the others wait for ever, as real ones do
		_ = cmd.Wait()
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) != 0 {
		t.Errorf("%v (%v), want no files", left, err)
	}
}

func TestBannerSaysSimulated(t *testing.T) {
	o := job{ranks: 2, env: []string{"NCCL_DEBUG=VERSION"}}.run(t)
	if !strings.Contains(o.text, "RCCL version : 2.28.3-SIMULATED:rcclx-dev") ||
		strings.Count(o.text, "Librccl path") != 1 {
		t.Errorf("want one banner that says SIMULATED:\n%s", o.text)
	}
}

func TestAbortEndsAHungStandardKernel(t *testing.T) {
	o := job{ranks: 2, node: healthy(t, "hang:1")}.run(t, "post:f32:65536", "abort")
	if strings.Count(o.text, "aborted rank=") != 2 {
		t.Errorf("want both ranks to get out by ncclCommAbort:\n%s", o.text)
	}
}
