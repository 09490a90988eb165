package engine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/internal/simlib"
	"rcclx.io/commgroup-operator/rcclx"
)

var simulated struct {
	once    sync.Once
	dir     string
	library *Library
	err     error
}

// openSimulated loads the simulated library into this process, once; the library's own defaults apply.
func openSimulated(t testing.TB) *Library {
	t.Helper()
	simulated.once.Do(func() {
		if simulated.dir, simulated.err = simlib.Dir(); simulated.err != nil {
			return
		}
		// C code reads the environment that the process began with or that libc was told of; tell libc.
		// DDA has one rank a process; several here are threads.
		simulated.err = errors.Join(setenv("HSA_NO_SCRATCH_RECLAIM", "1"), setenv("RCCL_DDA_NRANKS", "0"))
		if simulated.err == nil {
			simulated.library, simulated.err = Open(filepath.Join(simulated.dir, "librccl.so.1"), "")
		}
	})
	if simulated.err != nil {
		t.Fatal(simulated.err)
	}
	return simulated.library
}

func setenv(name, value string) error {
	address, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return err
	}
	var set func(name, value string, overwrite int32) int32
	purego.RegisterFunc(&set, address)
	if set(name, value, 1) != 0 {
		return errors.New("setenv failed")
	}
	return nil
}

// engine joins a communicator of one rank in this process.
func engine(t testing.TB, bytes int64) *Engine {
	t.Helper()
	lib := openSimulated(t)
	runtime.LockOSThread()
	if err := lib.UseDevice(0); err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(lib, 0, 1, SystemClock{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Allocate(bytes, bytes, 0); err != nil {
		t.Fatal(err)
	}
	id, err := lib.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Join(id, false, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(time.Minute); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	return e
}

func TestOpenSaysWhatWasLoaded(t *testing.T) {
	info := openSimulated(t).Info()
	if info.Flavor != rcclx.FlavorSimulated || !info.Simulated() || info.Gates() != rcclx.FlavorRCCLXDev || len(info.BuildHash) != 16 ||
		info.Path != filepath.Join(simulated.dir, "librccl.so.1") || info.VersionString() == "" || info.RuntimeVersionCode == 0 {
		t.Errorf("Info = %+v", info)
	}
}

func TestMeasureOverOneRank(t *testing.T) {
	e := engine(t, 1<<20)
	for _, c := range rcclx.Collectives() {
		request := MeasureRequest{Collective: c, Datatype: rcclx.Float16, SizeBytes: 1 << 20, WarmupIterations: 1, Iterations: 3, Variant: rcclx.Baseline, Deadline: time.Minute}
		result, err := e.Measure(request)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if result.Checks[0].CheckedElements != 1<<19 || result.Checks[0].WrongElements != 0 || result.Latency.MedianNanoseconds <= 0 {
			t.Errorf("%s: %+v", c, result)
		}
	}
}

func TestMeasureRejectsWhatDoesNotFit(t *testing.T) {
	e := engine(t, 4096)
	for _, size := range []int64{8192, 1} {
		_, err := e.Measure(MeasureRequest{Collective: rcclx.AllReduce, Datatype: rcclx.Float32, SizeBytes: size, Iterations: 1, Deadline: time.Minute})
		var request *RequestError
		if !errors.As(err, &request) {
			t.Errorf("%d bytes: %v, want a RequestError", size, err)
		}
	}
	var memory *InsufficientMemoryError
	if err := e.Allocate(1<<50, 0, 0); !errors.As(err, &memory) || memory.FreeBytes <= 0 || memory.NeededBytes != 1<<50+shiftBytes {
		t.Errorf("allocating 1 PiB: %v, want an InsufficientMemoryError with numbers", err)
	}
	if err := e.Join([]byte{1}, false, time.Second); err == nil {
		t.Error("a short unique id was taken")
	}
}

// steppedClock goes on by the time slept, so that a deadline passes without waiting.
type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time        { return c.now }
func (c *steppedClock) Sleep(d time.Duration) { c.now = c.now.Add(d) }

// An event that never happens must end in a deadline error, with the wait's own words.
func TestWaitHasADeadline(t *testing.T) {
	notReady := purego.NewCallback(func(uintptr) uintptr { return runtimeNotReady })
	clock := &steppedClock{now: time.Unix(0, 0)}
	e := &Engine{lib: &Library{Runtime: &Runtime{eventQuery: notReady}}, clock: clock}
	err := e.waitEvent(1, "AllReduce BFloat16 65536 B", e.limit(5*time.Second))
	var deadline *DeadlineError
	if !errors.As(err, &deadline) || deadline.Deadline != 5*time.Second || !strings.Contains(err.Error(), "AllReduce BFloat16 65536 B") {
		t.Errorf("waitEvent = %v, want a DeadlineError that names the step", err)
	}
	if waited := clock.now.Sub(time.Unix(0, 0)); waited > 6*time.Second {
		t.Errorf("waited %s of 5 s", waited)
	}
}

// The communicator's asynchronous error ends a wait at once.
func TestWaitSeesTheAsynchronousError(t *testing.T) {
	notReady := purego.NewCallback(func(uintptr) uintptr { return runtimeNotReady })
	remote := purego.NewCallback(func(_ uintptr, result *int32) uintptr { *result = 6; return 0 })
	lib := &Library{Runtime: &Runtime{eventQuery: notReady}, getAsyncError: remote,
		errorString: func(int32) string { return "remote process exited" }, lastError: func(uintptr) string { return "" }}
	e := &Engine{lib: lib, comm: 1, clock: &steppedClock{now: time.Unix(0, 0)}}
	err := e.waitEvent(1, "x", e.limit(time.Minute))
	var call *CallError
	if !errors.As(err, &call) || call.Code != 6 || !strings.Contains(err.Error(), "remote process exited") {
		t.Errorf("waitEvent = %v, want the library's error", err)
	}
}

// A library that is older than needed is told from one that lacks a symbol.
func TestOpenOldLibrary(t *testing.T) {
	source, library := filepath.Join(t.TempDir(), "old.c"), filepath.Join(t.TempDir(), "librccl.so.1")
	if err := os.WriteFile(source, []byte("int ncclGetVersion(int *v) { *v = 21212; return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	_, err := Open(library, "")
	var old *LibraryTooOldError
	if !errors.As(err, &old) || old.Found != "2.12.12" || old.Needed != "2.13.0" {
		t.Errorf("Open = %v, want a LibraryTooOldError with both versions", err)
	}
}

func BenchmarkCallThroughSyscallN(b *testing.B) {
	e := engine(b, 4096)
	for b.Loop() {
		if _, err := e.asyncResult(); err != nil {
			b.Fatal(err)
		}
	}
}

// The same call through a registered function, for comparison: reflection costs more.
func BenchmarkCallThroughRegisterFunc(b *testing.B) {
	e := engine(b, 4096)
	var get func(comm uintptr, result unsafe.Pointer) int32
	purego.RegisterFunc(&get, e.lib.getAsyncError)
	var result int32
	for b.Loop() {
		if get(e.comm, unsafe.Pointer(&result)) != 0 {
			b.Fatal(result)
		}
	}
}
