// Package worker carries out one rank: it loads the library, joins the communicator, takes its steps and streams
// events.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/engine"
)

// maxLineBytes bounds one line from the parent.
const maxLineBytes = 1 << 20

// specDeadline bounds the wait for the first line, which carries all other deadlines.
const specDeadline = time.Minute

// The parent kills the rank at a deadline. What the rank knows is told only if it speaks before: the engine by the
// whole margin, and the watchdog, which knows less, by a quarter of it.
func margin(deadline time.Duration) time.Duration { return min(time.Second, deadline/10) }

func engineDeadline(deadline time.Duration) time.Duration { return deadline - margin(deadline) }

func watchdogDeadline(deadline time.Duration) time.Duration { return deadline - margin(deadline)/4 }

// ErrFailed is what Run returns after it has told the parent of an error.
var ErrFailed = errors.New("the rank failed; its last event says why")

// Run carries out one rank: it reads the Spec and, but for rank 0, the Rendezvous from in, and writes Events to out. A
// call may be stuck inside the library when Run returns with an error: the process must then exit.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := readLines(in)
	spec, err := readSpec(ctx, lines)
	events := &eventWriter{out: out, now: time.Now, rank: spec.Rank}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		events.last(rank.Event{Kind: rank.EventError, Error: describe(StepLoad, err)})
		return ErrFailed
	}
	w := &worker{spec: spec, lines: lines, events: events, dog: newWatchdog(), clock: engine.SystemClock{}}
	defer w.dog.stop()
	done := make(chan error, 1)
	go func() {
		// The runtime keeps the current device for each OS thread.
		runtime.LockOSThread()
		done <- w.run(ctx)
	}()
	select {
	case err = <-done:
	case m := <-w.dog.fired:
		err = &stepError{m.step, w.stuck(m)}
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil {
		events.last(rank.Event{Kind: rank.EventDone})
		return events.failed()
	}
	step := StepLoad
	var at *stepError
	if errors.As(err, &at) {
		step, err = at.step, at.err
	}
	events.last(rank.Event{Kind: rank.EventError, Error: describe(step, err)})
	if writing := events.failed(); writing != nil {
		return fmt.Errorf("%w; it could not be sent: %w", ErrFailed, writing)
	}
	return ErrFailed
}

// stuck is the error of a call inside the library that did not come back. The worker's thread is in that call, so that
// this may look at what it wrote before.
func (w *worker) stuck(m missed) error {
	err := &engine.DeadlineError{Waiting: "a call inside the library", Deadline: m.deadline}
	if m.step == StepInit && w.lib != nil {
		err.Detail = w.lib.StuckInit(0, w.spec.Rank, w.spec.WorldSize, w.id)
	}
	return err
}

// line is one line from the parent, or the end.
type line struct {
	text []byte
	err  error
}

// readLines reads in the background, since a read has no deadline of its own.
func readLines(in io.Reader) <-chan line {
	lines := make(chan line, 2)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLineBytes)
		for scanner.Scan() {
			lines <- line{text: append([]byte(nil), scanner.Bytes()...)}
		}
		if err := scanner.Err(); err != nil {
			lines <- line{err: err}
		}
	}()
	return lines
}

func readSpec(ctx context.Context, lines <-chan line) (rank.Spec, error) {
	var spec rank.Spec
	text, err := nextLine(ctx, lines, "the spec", specDeadline)
	if err != nil {
		return spec, &specError{err}
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return spec, &specError{fmt.Errorf("the first line is not a spec: %w", err)}
	}
	if err := validate(spec); err != nil {
		return spec, &specError{err}
	}
	return spec, nil
}

func nextLine(ctx context.Context, lines <-chan line, what string, deadline time.Duration) ([]byte, error) {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case l, ok := <-lines:
		if !ok {
			return nil, fmt.Errorf("the parent ended its output before %s", what)
		}
		return l.text, l.err
	case <-timer.C:
		return nil, &engine.DeadlineError{Waiting: "the parent's line with " + what, Deadline: deadline}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func validate(s rank.Spec) error {
	if s.WorldSize == 0 {
		return nil
	}
	switch {
	case s.WorldSize < 0 || s.Rank < 0 || s.Rank >= s.WorldSize:
		return fmt.Errorf("rank %d of %d ranks: it must be from 0 to one less", s.Rank, s.WorldSize)
	case s.Nodes < 1:
		return fmt.Errorf("a communicator over %d nodes: at least 1 is needed", s.Nodes)
	case s.Device < 0:
		return fmt.Errorf("device %d: it must not be negative", s.Device)
	case s.InitDeadline <= 0 || s.StepDeadline <= 0:
		return fmt.Errorf("init deadline %s and step deadline %s: both must be over zero",
			s.InitDeadline, s.StepDeadline)
	}
	return validateSteps(s)
}

// validateSteps says what keeps a step from being made.
func validateSteps(s rank.Spec) error {
	for i, step := range s.Steps {
		c, d := step.Collective, step.Datatype
		switch step.Kind {
		case rank.StepMeasure:
		case rank.StepPairProbe:
			c, d = rcclx.SendRecv, rcclx.Float32
		default:
			return fmt.Errorf("step %d has the unknown kind %q: use Measure or PairProbe", i, step.Kind)
		}
		if step.Iterations < 1 || step.WarmupIterations < 0 {
			return fmt.Errorf("step %d has %d iterations after %d of warm-up: give at least 1 and 0",
				i, step.Iterations, step.WarmupIterations)
		}
		for _, size := range step.SizesBytes {
			if _, err := rcclx.ShapeOf(c, d, size, s.WorldSize); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
	}
	return nil
}

// worker is the rank's work on its one OS thread.
type worker struct {
	spec   rank.Spec
	lines  <-chan line
	events *eventWriter
	dog    *watchdog
	clock  engine.Clock

	lib    *engine.Library
	info   rcclx.LibraryInfo
	engine *engine.Engine
	id     []byte // of the communicator
}

func (w *worker) run(ctx context.Context) error {
	w.enter(StepLoad, w.spec.InitDeadline)
	if err := w.load(); err != nil {
		return &stepError{StepLoad, err}
	}
	if w.spec.WorldSize == 0 {
		return nil
	}
	w.enter(StepPreconditions, w.spec.InitDeadline)
	if err := w.prepare(); err != nil {
		return &stepError{StepPreconditions, err}
	}
	id, err := w.rendezvous(ctx)
	if err != nil {
		return &stepError{StepInit, err}
	}
	if err := w.join(id); err != nil {
		return &stepError{StepInit, err}
	}
	for _, step := range w.spec.Steps {
		if err := w.step(step); err != nil {
			return err
		}
	}
	w.enter(StepDestroy, w.spec.StepDeadline)
	if err := w.engine.Close(engineDeadline(w.spec.StepDeadline)); err != nil {
		return &stepError{StepDestroy, err}
	}
	return nil
}

func (w *worker) enter(step string, deadline time.Duration) {
	w.dog.enter(step, watchdogDeadline(deadline))
}

// load opens the library, looks at the device, and reports both before anything is judged.
func (w *worker) load() error {
	var err error
	if w.lib, err = engine.Open(w.spec.LibraryPath, w.spec.RuntimePath); err != nil {
		return err
	}
	devices, err := w.lib.Runtime.DeviceCount()
	if err == nil && w.spec.Device < devices {
		err = w.lib.UseDevice(w.spec.Device)
	}
	w.info = w.lib.Info()
	w.info.SettingsHash = ownSettingsHash(w.info.Gates())
	info := w.info
	w.events.send(rank.Event{Kind: rank.EventLoaded, Library: &info})
	if w.spec.WorldSize == 0 {
		return nil
	}
	switch {
	case err != nil:
		return err
	case w.spec.Device >= devices:
		return &preconditionError{fmt.Sprintf("device %d is asked for, and the runtime sees %d devices: each rank "+
			"needs a GPU of its own; set neither HIP_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES", w.spec.Device, devices)}
	}
	return nil
}

// prepare checks what must hold before ranks join, and allocates the buffers.
func (w *worker) prepare() error {
	if want := w.spec.PCIAddress; want != "" && !strings.EqualFold(want, w.info.PCIAddress) {
		return &preconditionError{fmt.Sprintf("DeviceMismatch: device %d is at PCI address %s, expected %s: "+
			"the device order of the runtime and of the node's facts differ; check HIP_VISIBLE_DEVICES and "+
			"ROCR_VISIBLE_DEVICES", w.spec.Device, w.info.PCIAddress, want)}
	}
	devices, err := w.lib.Runtime.DeviceCount()
	if err != nil {
		return err
	}
	// RCCLX's DDA enables peer access by rank number as device ordinal, and aborts the process where that fails
	// (comms/common/algorithms/AlgoFactory.cu).
	gates := w.info.Gates()
	if w.spec.Variant == rcclx.DDA && gates == rcclx.FlavorRCCLXDev && w.spec.Nodes == 1 && w.spec.WorldSize == 8 &&
		(w.spec.Device != w.spec.Rank || devices < w.spec.WorldSize) {
		return &preconditionError{fmt.Sprintf("DDA of %s needs rank %d on device ordinal %d with all %d devices "+
			"visible; it is on %d of %d devices, and the library would abort: give every rank all GPUs of the node",
			gates, w.spec.Rank, w.spec.Rank, w.spec.WorldSize, w.spec.Device, devices)}
	}
	for i, step := range w.spec.Steps {
		if step.Kind != rank.StepMeasure {
			continue
		}
		if err := w.lib.Supports(step.Collective, step.Datatype, step.Placement, step.Data); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	if w.engine, err = engine.NewEngine(w.lib, w.spec.Rank, w.spec.WorldSize, w.clock); err != nil {
		return err
	}
	return w.engine.Allocate(rcclx.MemoryNeed(gates, w.spec.Variant, w.spec.Settings, w.spec.WorldSize,
		rank.MemoryCalls(w.spec.Steps)))
}

// rendezvous gives the id of the communicator: rank 0 makes it, the others are told.
func (w *worker) rendezvous(ctx context.Context) ([]byte, error) {
	if w.spec.Rank == 0 {
		w.enter(StepInit, w.spec.InitDeadline)
		id, err := w.lib.UniqueID()
		if err == nil {
			w.events.send(rank.Event{Kind: rank.EventUniqueID, UniqueID: id})
		}
		return id, err
	}
	w.dog.stop() // this wait has a deadline of its own
	text, err := nextLine(ctx, w.lines, "the rendezvous", engineDeadline(w.spec.InitDeadline))
	if err != nil {
		return nil, err
	}
	var r rank.Rendezvous
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, &specError{fmt.Errorf("the second line is not a rendezvous: %w", err)}
	}
	return r.UniqueID, nil
}

func (w *worker) join(id []byte) error {
	w.id = id
	w.enter(StepInit, w.spec.InitDeadline)
	w.events.send(rank.Event{Kind: rank.EventInitStart})
	start := w.clock.Now()
	if err := w.engine.Join(id, w.spec.NonBlocking, engineDeadline(w.spec.InitDeadline)); err != nil {
		return err
	}
	w.events.send(rank.Event{Kind: rank.EventInitDone, InitDuration: w.clock.Now().Sub(start)})
	return nil
}

func (w *worker) step(step rank.Step) error {
	for _, size := range step.SizesBytes {
		var err error
		if step.Kind == rank.StepPairProbe {
			err = w.probePairs(step, size)
		} else {
			err = w.measure(step, size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start announces a position before it is run, so that the parent knows where a rank died.
func (w *worker) start(at *rank.Position) {
	w.events.send(rank.Event{Kind: rank.EventStepStart, At: at})
	w.enter(at.String(), w.spec.StepDeadline)
}

func (w *worker) measure(step rank.Step, size int64) error {
	call := rcclx.Call{Collective: step.Collective, Datatype: step.Datatype, Op: "Sum", SizeBytes: size,
		Ranks: w.spec.WorldSize, Nodes: w.spec.Nodes, GFX: rcclx.GFXOf(w.info.DeviceName)}
	path, _ := rcclx.ExpectedPath(w.info.Gates(), w.spec.Variant, w.spec.Settings, call)
	request := engine.MeasureRequest{Collective: step.Collective, Datatype: step.Datatype, Placement: step.Placement,
		SizeBytes: size, WarmupIterations: step.WarmupIterations, Iterations: step.Iterations, Data: step.Data,
		Variant: w.spec.Variant, Path: path, Slowest: w.spec.Nodes > 1, Deadline: engineDeadline(w.spec.StepDeadline)}
	at := &rank.Position{Kind: step.Kind, Collective: step.Collective, Datatype: step.Datatype,
		Placement: step.Placement, SizeBytes: size}
	w.start(at)
	result, err := w.engine.Measure(request)
	if err != nil {
		return &stepError{at.String(), err}
	}
	call.SizeBytes = result.Shape.SizeBytes()
	placement := step.Placement
	if placement == "" {
		placement = rcclx.OutOfPlace
	}
	w.events.send(rank.Event{Kind: rank.EventMeasured, At: at,
		Measurement: &rank.Measurement{Collective: step.Collective,
			Datatype: step.Datatype, Placement: placement, SizeBytes: size, CountElements: result.Shape.CountElements,
			Latency: result.Latency, LaunchNanoseconds: result.LaunchNanoseconds,
			SlowestNanoseconds: result.SlowestNanoseconds, Checks: result.Checks, ExpectedPath: path,
			Hazard: rcclx.Hazard(w.info.Gates(), w.spec.Variant, w.spec.Settings, call)}})
	return nil
}

func (w *worker) probePairs(step rank.Step, size int64) error {
	for round := range w.engine.PairRounds() {
		peer, ok := w.engine.PairPeer(round)
		if !ok {
			continue
		}
		at := &rank.Position{Kind: step.Kind, SizeBytes: size, Peer: peer}
		w.start(at)
		result, err := w.engine.MeasurePair(peer,
			engine.PairRequest{SizeBytes: size, WarmupIterations: step.WarmupIterations,
				Iterations: step.Iterations, Deadline: engineDeadline(w.spec.StepDeadline)})
		if err != nil {
			return &stepError{at.String(), err}
		}
		w.events.send(rank.Event{Kind: rank.EventPairMeasured, At: at, Pair: &rank.PairMeasurement{Peer: peer,
			SizeBytes: size, BandwidthMBps: result.BandwidthMBps, WrongElements: result.Check.WrongElements}})
	}
	return nil
}
