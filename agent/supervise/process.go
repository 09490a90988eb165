package supervise

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/agent/rank"
)

const (
	// maxEventLineBytes bounds one event; the largest real one is a few KiB.
	maxEventLineBytes = 1 << 20
	// drainGrace bounds the reading of a dead rank's pipes: what it wrote lies in them already, but a grandchild in a
	// session of its own could hold them open. It is wall time, and short: a death must be told within a second.
	drainGrace = 300 * time.Millisecond
)

// Launcher says how to start one rank process.
type Launcher struct {
	// Command is the argument list; empty means the binary rank beside this one.
	Command []string
}

func (l Launcher) argv() ([]string, error) {
	if len(l.Command) > 0 {
		return l.Command, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the agent's own executable to start ranks from: %w", err)
	}
	return []string{filepath.Join(filepath.Dir(self), "rank")}, nil
}

// status is how a rank process ended.
type status struct {
	code   int
	signal syscall.Signal
}

func (e status) ok() bool { return e.signal == 0 && e.code == 0 }

func (e status) String() string {
	if e.signal != 0 {
		return fmt.Sprintf("was killed by signal %d (%s)", int(e.signal), e.signal)
	}
	return fmt.Sprintf("exited with code %d", e.code)
}

// exitStatus is how and when.
type exitStatus struct {
	status
	at time.Time
}

// message is what goroutines tell the supervisor's loop: exactly one of the fields beside rank is set.
type message struct {
	rank    int
	event   *rank.Event
	garbage string
	exit    *exitStatus
	ras     *rasAnswer
}

// process is one running rank.
type process struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	lines          chan []byte // closed by the supervisor when the rank has ended
	stdout, stderr tail
	mu             sync.Mutex
	reaped         bool // its id may be somebody else's
	killedByUs     bool // by a SIGKILL of the supervisor's, who alone reads and writes it
}

// The kernel sends Pdeathsig when the thread that started a child ends, not the process; Go may end threads. So that a
// rank dies with the agent and not before, every child is started from one thread that lives as long as the agent.
var (
	spawnOnce sync.Once
	spawnCh   chan func()
)

func onSpawnThread(f func()) {
	spawnOnce.Do(func() {
		spawnCh = make(chan func())
		go func() {
			runtime.LockOSThread()
			for job := range spawnCh {
				job()
			}
		}()
	})
	done := make(chan struct{})
	spawnCh <- func() { defer close(done); f() }
	<-done
}

// start starts a rank in a process group of its own and streams what it says to out. The last message of a process is
// its exit, after all its events and words. stop makes the goroutines give up where nobody reads any more.
// output, where it is not nil, gets a copy of standard output and is closed at its end.
func start(argv, env []string, index int, output io.WriteCloser, now func() time.Time, out chan<- message,
	stop <-chan struct{}) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan []byte, 4)}
	p.cmd.Env = env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	pipes, err := openPipes()
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr = pipes.write[toStdout], pipes.write[toStderr]
		p.cmd.ExtraFiles = []*os.File{pipes.write[toEvents]} // becomes file descriptor rank.EventFD
		if p.stdin, err = p.cmd.StdinPipe(); err == nil {
			onSpawnThread(func() { err = p.cmd.Start() })
		}
		closeAll(pipes.write[:])
	}
	if err != nil {
		closeAll(pipes.read[:])
		if output != nil {
			_ = output.Close()
		}
		return nil, fmt.Errorf("start %s: %w%s", argv[0], err, loaderHint(argv[0], err))
	}
	go p.writeLines()
	send := func(m message) {
		m.rank = index
		select {
		case out <- m:
		case <-stop:
		}
	}
	var drained sync.WaitGroup
	drained.Go(func() { readEvents(pipes.read[toEvents], send) })
	drained.Go(func() {
		if output == nil {
			_, _ = io.Copy(&p.stdout, pipes.read[toStdout])
			return
		}
		_, _ = io.Copy(io.MultiWriter(&p.stdout, output), pipes.read[toStdout])
		_ = output.Close()
	})
	drained.Go(func() { _, _ = io.Copy(&p.stderr, pipes.read[toStderr]) })
	go func() {
		at := p.await(now)
		for _, r := range pipes.read {
			_ = r.SetReadDeadline(time.Now().Add(drainGrace))
		}
		drained.Wait()
		closeAll(pipes.read[:])
		send(message{exit: &exitStatus{status: statusOf(p.cmd.ProcessState), at: at}})
	}()
	return p, nil
}

// await waits for the rank's end, ends what it has left behind in its process group, and gives the time of its end. The
// group's id is the rank's own for certain only while the rank is not reaped.
func (p *process) await(now func() time.Time) time.Time {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	at := now()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait() // the state says more than the error
	p.reaped = true
	return at
}

// The pipes from a rank.
const (
	toEvents = iota
	toStdout
	toStderr
	pipeCount
)

type pipes struct{ read, write [pipeCount]*os.File }

func openPipes() (pipes, error) {
	var p pipes
	for i := range pipeCount {
		var err error
		if p.read[i], p.write[i], err = os.Pipe(); err != nil {
			closeAll(p.read[:i])
			closeAll(p.write[:i])
			return pipes{}, fmt.Errorf("make a pipe: %w", err)
		}
	}
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func statusOf(state *os.ProcessState) status {
	if state == nil {
		return status{code: -1}
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return status{code: -1, signal: ws.Signal()}
	}
	return status{code: state.ExitCode()}
}

// readEvents sends each line of r as an event. At the first line that is none it reports that and only drains from
// there on: what follows cannot be trusted.
func readEvents(r io.Reader, send func(message)) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(br)
		if len(line) > 0 {
			ev, perr := parseEvent(line)
			if perr != nil {
				send(message{garbage: perr.Error()})
				_, _ = io.Copy(io.Discard, br)
				return
			}
			send(message{event: ev})
		}
		if err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				send(message{garbage: err.Error()})
				_, _ = io.Copy(io.Discard, br)
			}
			return
		}
	}
}

func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxEventLineBytes:
			return nil, fmt.Errorf("a line longer than %d bytes: %w", maxEventLineBytes, bufio.ErrTooLong)
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return bytes.TrimSpace(line), err
		}
	}
}

// parseEvent reads one line from a rank. The text of its errors quotes at most 80 bytes of the line.
func parseEvent(line []byte) (*rank.Event, error) {
	var ev rank.Event
	if err := json.Unmarshal(line, &ev); err != nil {
		return nil, fmt.Errorf("expected an event as a JSON line, got %.80q", line)
	}
	missing := ""
	switch ev.Kind {
	case rank.EventLoaded:
		if ev.Library == nil {
			missing = "library"
		}
	case rank.EventUniqueID:
		if len(ev.UniqueID) == 0 {
			missing = "uniqueID"
		}
	case rank.EventMeasured:
		if ev.Measurement == nil {
			missing = "measurement"
		}
	case rank.EventPairMeasured:
		if ev.Pair == nil {
			missing = "pair"
		}
	case rank.EventError:
		if ev.Error == nil {
			missing = "error"
		}
	case rank.EventStepStart:
		if ev.At == nil {
			missing = "at"
		}
	case rank.EventInitStart, rank.EventInitDone, rank.EventDone:
	default:
		return nil, fmt.Errorf("expected an event of a known kind, got %.80q", line)
	}
	if missing != "" {
		return nil, fmt.Errorf("expected %q in a %s event, got %.80q", missing, ev.Kind, line)
	}
	return &ev, nil
}

// writeLine hands v as one JSON line to the process's writer. A rank that is gone is no error here: its exit says so.
func (p *process) writeLine(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T for the rank: %w", v, err)
	}
	select {
	case p.lines <- append(data, '\n'):
		return nil
	default:
		return fmt.Errorf("more than %d lines wait to be read by the rank", cap(p.lines))
	}
}

// writeLines writes in a goroutine of its own, so that a rank that does not read cannot block the supervisor.
func (p *process) writeLines() {
	for line := range p.lines {
		_, _ = p.stdin.Write(line)
	}
}

// kill ends the rank and whatever it started, but for what went into a session of its own. One that was ending already
// ends by what ended it.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.killedByUs = !dying(p.cmd.Process.Pid)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// dying says whether a child that was not reaped has ended, or is about to: a process that was killed may take seconds
// to give its GPU's memory back, while its peers have seen its connections close.
func dying(pid int) bool {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == nil &&
		info.Signo != 0 {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && exiting(string(stat))
}

// exiting reads the flags in /proc/PID/stat (proc_pid_stat(5), field 9): the kernel sets PF_EXITING
// (include/linux/sched.h) before it closes what the process had open.
func exiting(stat string) bool {
	const flagsAfterName, exiting = 6, 0x4
	// The name stands in parentheses and may hold spaces and parentheses itself.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= flagsAfterName {
		return false
	}
	flags, err := strconv.ParseUint(fields[flagsAfterName], 10, 32)
	return err == nil && flags&exiting != 0
}

// stateOf reads the state of a process, which follows its name in brackets (fs/proc/array.c, do_task_stat); empty where
// it cannot be read.
func stateOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	state, _, _ := strings.Cut(strings.TrimSpace(string(data[bytes.LastIndexByte(data, ')')+1:])), " ")
	return state
}

// loaderHint explains an error that hides its cause: the kernel says "no such file" of a binary whose loader is
// missing.
func loaderHint(binary string, err error) string {
	if !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if _, statErr := os.Stat(binary); statErr != nil {
		return "; agent install puts it beside the agent"
	}
	return "; the binary is there, so its loader is not: the runtime image needs glibc"
}
