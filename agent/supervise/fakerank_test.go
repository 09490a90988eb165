package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

// fakeScriptEnv makes this test binary behave as a rank, as its value, a fakeScript in JSON, says.
const fakeScriptEnv = "SUPERVISE_TEST_FAKE_RANK"

// fakeScript says how one fake rank misbehaves; the zero value is a healthy one. Other ranks are healthy.
type fakeScript struct {
	Rank int
	// At is the place: "load", "init", a step's name, "done" or "exit".
	At string
	// Do: "hang", "hangIgnoringSignals", "abort", "bus", "crash", "killed", "terminated", "exit0", "exit3", "flood",
	// "garbage", "wrongRank", "error", "fork", "daemon".
	Do string
	// Code of the error for Do "error".
	Code string
	// After is a file that Do "error" waits for.
	After string
	// Also is what another rank does.
	Also *fakeScript
	// PidFile takes the pid of the rank for Do "hang", of a grandchild for Do "fork" and "daemon".
	PidFile string
}

// hangingParent as the first of two arguments makes this test binary supervise a rank that hangs and that writes its
// pid to the file of the second; it prints a line once the rank hangs.
const hangingParent = "hanging-parent"

func superviseHangingRank(pidFile string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	script, err := json.Marshal(fakeScript{At: "init", Do: "hang", PidFile: pidFile})
	if err != nil {
		panic(err)
	}
	s := &Supervisor{Launcher: Launcher{Command: []string{self}}, Clock: clock.RealClock{}}
	s.Run(context.Background(), Team{
		Specs: []rank.Spec{{WorldSize: 1, InitDeadline: time.Hour, StepDeadline: time.Hour}},
		Env:   []string{fakeScriptEnv + "=" + string(script)},
		OnEvent: func(ev rank.Event) {
			if ev.Kind == rank.EventInitStart {
				fmt.Println("hangs")
			}
		}})
}

func TestMain(m *testing.M) {
	simtest.Main()
	if len(os.Args) == 3 && os.Args[1] == hangingParent {
		superviseHangingRank(os.Args[2])
		os.Exit(0)
	}
	if script := os.Getenv(fakeScriptEnv); script != "" {
		os.Exit(fakeRank(script))
	}
	os.Exit(m.Run())
}

func fakeRank(raw string) int {
	var script fakeScript
	if err := json.Unmarshal([]byte(raw), &script); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	in := bufio.NewReader(os.Stdin)
	var spec rank.Spec
	if !readJSON(in, &spec) {
		return 2
	}
	if also := script.Also; also != nil && also.Rank == spec.Rank {
		script = *also
	}
	out := os.NewFile(rank.EventFD, "events")
	send := func(ev rank.Event) {
		ev.Rank, ev.Time = spec.Rank, time.Now()
		data, _ := json.Marshal(ev)
		_, _ = out.Write(append(data, '\n'))
	}
	if script.Do == "hang" && script.PidFile != "" && script.Rank == spec.Rank {
		_ = os.WriteFile(script.PidFile, fmt.Appendf(nil, "%d", os.Getpid()), 0o600)
	}
	fmt.Printf("log of rank %d\n", spec.Rank)
	at := func(place string) {
		if script.Rank != spec.Rank || script.At != place {
			return
		}
		switch script.Do {
		case "hang":
			select {}
		case "abort":
			fmt.Fprintln(os.Stderr, "FATAL: out of luck")
			_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
			select {}
		case "hangIgnoringSignals":
			signal.Ignore()
			select {}
		case "bus", "crash", "killed", "terminated":
			_ = syscall.Kill(os.Getpid(), map[string]syscall.Signal{"bus": syscall.SIGBUS, "crash": syscall.SIGSEGV,
				"killed": syscall.SIGKILL, "terminated": syscall.SIGTERM}[script.Do])
			select {}
		case "exit0":
			os.Exit(0)
		case "exit3":
			os.Exit(3)
		case "flood":
			noise := []byte(strings.Repeat("NCCL INFO still here\n", 4096))
			for range 256 { // 20 MiB to each
				_, _ = os.Stdout.Write(noise)
				_, _ = os.Stderr.Write(noise)
			}
			fmt.Fprintln(os.Stderr, "the last word")
			os.Exit(3)
		case "garbage":
			_, _ = out.WriteString("NCCL WARN this is no event\n")
			select {}
		case "wrongRank":
			data, _ := json.Marshal(rank.Event{Kind: rank.EventInitStart, Rank: 99})
			_, _ = out.Write(append(data, '\n'))
			select {}
		case "error":
			for script.After != "" {
				if text, err := os.ReadFile(script.After); err == nil && len(text) > 0 {
					break
				}
				runtime.Gosched()
			}
			send(rank.Event{Kind: rank.EventError,
				Error: &rank.Error{Code: script.Code, Step: place, Message: "scripted"}})
			os.Exit(1)
		case "fork":
			child := exec.Command("/bin/sh", "-c", "while :; do read x </dev/zero; done")
			child.Stdout = os.Stdout // holds the pipe open
			if err := child.Start(); err != nil {
				os.Exit(4)
			}
			_ = os.WriteFile(script.PidFile, fmt.Appendf(nil, "%d", child.Process.Pid), 0o600)
			os.Exit(3)
		case "daemon":
			child := exec.Command("/bin/sh", "-c", "while :; do sleep 1000; done")
			child.Stdout, child.Stderr, child.ExtraFiles = os.Stdout, os.Stderr, []*os.File{out}
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := child.Start(); err != nil {
				os.Exit(4)
			}
			_ = os.WriteFile(script.PidFile, fmt.Appendf(nil, "%d", child.Process.Pid), 0o600)
			os.Exit(3)
		}
	}
	at("load")
	send(rank.Event{Kind: rank.EventLoaded, Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorSimulated,
		Imitates: rcclx.FlavorRCCLXDev, VersionCode: 22803, PCIAddress: fmt.Sprintf("0000:%x5:00.0", spec.Device)}})
	if spec.WorldSize == 0 {
		send(rank.Event{Kind: rank.EventDone})
		return 0
	}
	if spec.Rank == 0 {
		send(rank.Event{Kind: rank.EventUniqueID, UniqueID: []byte("0123456789")})
	} else {
		var rendezvous rank.Rendezvous
		if !readJSON(in, &rendezvous) || string(rendezvous.UniqueID) != "0123456789" {
			return 2
		}
	}
	send(rank.Event{Kind: rank.EventInitStart})
	at("init")
	send(rank.Event{Kind: rank.EventInitDone, InitDuration: time.Millisecond})
	for _, step := range spec.Steps {
		for _, size := range step.SizesBytes {
			position := &rank.Position{Kind: step.Kind, Collective: step.Collective,
				Datatype: step.Datatype, SizeBytes: size}
			send(rank.Event{Kind: rank.EventStepStart, At: position})
			at(position.String())
			send(rank.Event{Kind: rank.EventMeasured, Measurement: &rank.Measurement{Collective: step.Collective,
				Datatype: step.Datatype, SizeBytes: size, Latency: rcclx.LatencyStats{MedianNanoseconds: 1000},
				Checks: []rcclx.CheckResult{{CheckedElements: 1}}}})
		}
	}
	at("done")
	send(rank.Event{Kind: rank.EventDone})
	at("exit")
	return 0
}

func readJSON(in *bufio.Reader, v any) bool {
	line, err := in.ReadString('\n')
	return err == nil && json.Unmarshal([]byte(strings.TrimSpace(line)), v) == nil
}
