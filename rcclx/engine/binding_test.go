package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	if err := e.Allocate(rcclx.NewMemory(bytes, bytes, 0)); err != nil {
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
	if info.Flavor != rcclx.FlavorSimulated || !info.Simulated() || info.Gates() != rcclx.FlavorRCCLXDev ||
		len(info.BuildHash) != 16 || info.Path != filepath.Join(simulated.dir, "librccl.so.1") ||
		info.VersionString() == "" || info.RuntimeVersionCode == 0 {
		t.Errorf("Info = %+v", info)
	}
}

func TestMeasureOverOneRank(t *testing.T) {
	e := engine(t, 1<<20)
	for _, c := range rcclx.Collectives() {
		request := MeasureRequest{Collective: c, Datatype: rcclx.Float16, SizeBytes: 1 << 20, WarmupIterations: 1,
			Iterations: 3, Variant: rcclx.Baseline, Deadline: time.Minute}
		result, err := e.Measure(request)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if result.Checks[0].CheckedElements != 1<<19 || result.Checks[0].WrongElements != 0 ||
			result.Latency.MedianNanoseconds <= 0 {
			t.Errorf("%s: %+v", c, result)
		}
	}
}

func TestMeasureRejectsWhatDoesNotFit(t *testing.T) {
	e := engine(t, 4096)
	for _, size := range []int64{8192, 1} {
		_, err := e.Measure(MeasureRequest{Collective: rcclx.AllReduce, Datatype: rcclx.Float32, SizeBytes: size,
			Iterations: 1, Deadline: time.Minute})
		var request *RequestError
		if !errors.As(err, &request) {
			t.Errorf("%d bytes: %v, want a RequestError", size, err)
		}
	}
	var memory *InsufficientMemoryError
	if err := e.Allocate(rcclx.NewMemory(1<<50, 0, 0)); !errors.As(err, &memory) || memory.FreeBytes <= 0 ||
		memory.NeededBytes != 1<<50+shiftBytes {
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
	comm := &communicator{lib: &Library{Runtime: &Runtime{eventQuery: notReady}}, clock: clock}
	err := comm.waitEvent(1, "AllReduce BFloat16 65536 B", comm.limit(5*time.Second))
	var deadline *DeadlineError
	if !errors.As(err, &deadline) || deadline.Deadline != 5*time.Second ||
		!strings.Contains(err.Error(), "AllReduce BFloat16 65536 B") {
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
		errorString: func(int32) string { return "remote process exited" },
		lastError:   func(uintptr) string { return "" }}
	comm := &communicator{lib: lib, handle: 1, clock: &steppedClock{now: time.Unix(0, 0)}}
	err := comm.waitEvent(1, "x", comm.limit(time.Minute))
	var call *CallError
	if !errors.As(err, &call) || call.Code != 6 || !strings.Contains(err.Error(), "remote process exited") {
		t.Errorf("waitEvent = %v, want the library's error", err)
	}
}

// A library that is older than needed is told from one whose version is none and from one that lacks a symbol.
func TestOpenRefusesVersions(t *testing.T) {
	for code, want := range map[int]string{21212: "version 2.12.12; version 2.13.0 or later",
		2804: "version 2.8.4; version", 2000: "version 2.0.0; version", 1999: "gave 1999", 3: "gave 3", 0: "gave 0",
		-5: "gave -5", 100000: "gave 100000", 2147483647: "gave 2147483647"} {
		source, library := filepath.Join(t.TempDir(), "old.c"), filepath.Join(t.TempDir(), "librccl.so.1")
		if err := os.WriteFile(source, fmt.Appendf(nil, "int ncclGetVersion(int *v) { *v = %d; return 0; }\n", code),
			0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		_, err := Open(library, "")
		var old *LibraryTooOldError
		var bad *BadVersionError
		if isOld := code >= 2000 && code <= 21212; errors.As(err, &old) != isOld || errors.As(err, &bad) == isOld ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("version %d: Open = %v, want %q", code, err, want)
		}
	}
}

// What the library or the device cannot do is refused before any call.
func TestSupports(t *testing.T) {
	nccl := func(version, capability int) *Library {
		return &Library{info: rcclx.LibraryInfo{Flavor: rcclx.FlavorNCCL, VersionCode: version},
			fp8: fp8OCP, computeCapability: capability,
			collectives: map[rcclx.Collective]uintptr{rcclx.AllReduce: 1, rcclx.AllGather: 1}}
	}
	for _, tt := range []struct {
		library    *Library
		collective rcclx.Collective
		datatype   rcclx.Datatype
		want       string
	}{
		{nccl(22809, 90), rcclx.AllReduce, rcclx.Float8E4M3, ""},
		{nccl(22809, 90), rcclx.AllToAllv, rcclx.Float8E4M3, ""},
		{nccl(22809, 90), rcclx.SendRecv, rcclx.Int8, ""},
		{nccl(22304, 90), rcclx.AllReduce, rcclx.Float8E4M3, "from version 2.24.0"},
		{nccl(22809, 80), rcclx.AllReduce, rcclx.Float8E5M2, "compute capability 9.0"},
		{nccl(22809, 80), rcclx.AllGather, rcclx.Float8E5M2, ""},
		{nccl(22809, 90), rcclx.AllReduce, "Uint8", "Uint8"},
		{nccl(22809, 90), rcclx.Broadcast, rcclx.Float32, "ncclBroadcast, which Broadcast needs"},
		{nccl(22809, 90), rcclx.Reduce, rcclx.Float32, "ncclReduce, which Reduce needs"},
		{&Library{info: rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLXDev, VersionCode: 22803, DeviceName: "AMD Radeon"},
			collectives: map[rcclx.Collective]uintptr{rcclx.AllReduce: 1}},
			rcclx.AllReduce, rcclx.Float8E4M3, `"AMD Radeon"`},
	} {
		err := tt.library.Supports(tt.collective, tt.datatype, rcclx.OutOfPlace, []rcclx.Data{rcclx.DataExact})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of %s on %+v: %v, want %q", tt.collective, tt.datatype, tt.library.info, err, tt.want)
		}
		if err == nil {
			continue
		}
		var request *RequestError
		var symbol *SymbolMissingError
		if !errors.As(err, &request) && !errors.As(err, &symbol) {
			t.Errorf("%s of %s: %T, want an error of its own kind", tt.collective, tt.datatype, err)
		}
	}
}

// Buffers beyond 4 GiB: every byte is written once, at its own address.
func TestWriteBeyond32Bits(t *testing.T) {
	const base, size = uintptr(1) << 40, int64(5<<30 + 6)
	var next, last uintptr = base, 0
	wrong := 0
	copied := purego.NewCallback(func(to, _, bytes, kind, _ uintptr) uintptr {
		if to != next || kind != copyHostToDevice {
			wrong++
		}
		next, last = to+bytes, to
		return 0
	})
	success := purego.NewCallback(func(uintptr) uintptr { return 0 })
	lib := &Library{Runtime: &Runtime{memcpyAsync: copied, eventRecord: success, eventQuery: success}}
	comm := &communicator{lib: lib, clock: &steppedClock{}}
	b := &buffers{comm: comm}
	p := newPattern(elementFor(t, rcclx.BFloat16, fp8OCP), rcclx.DataExact, 2, 0)
	if err := b.write(base, p.inputTile(0), 77, size, comm.limit(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if wrong != 0 || next != base+uintptr(size) || last < base+1<<32 {
		t.Errorf("%d copies at wrong addresses; the last one ended at %#x, want %#x", wrong, next, base+uintptr(size))
	}
}

func TestIDAddress(t *testing.T) {
	v4 := []byte{2, 0, 0x1f, 0x90, 10, 1, 2, 3}
	v6 := []byte{10, 0, 0x1f, 0x90, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}
	magic := []byte{0xef, 0xbe, 0xad, 0xde, 1, 2, 3, 4}
	for _, tt := range []struct {
		name    string
		version int
		parts   [][]byte
		want    string
	}{
		{"IPv4", 22809, [][]byte{magic, v4}, "10.1.2.3:8080"},
		{"IPv6", 22809, [][]byte{magic, v6}, "[fd00::7]:8080"},
		{"2.16 brought the magic number", 21602, [][]byte{magic, v4}, "10.1.2.3:8080"},
		{"2.15 has none", 21505, [][]byte{v4}, "10.1.2.3:8080"},
		{"2.13 has none", 21304, [][]byte{v6}, "[fd00::7]:8080"},
		{"none", 22809, nil, ""},
		{"none in 2.13", 21304, nil, ""},
	} {
		id := make([]byte, UniqueIDBytes)
		copy(id, slices.Concat(tt.parts...))
		if address, ok := idAddress(id, tt.version); ok != (tt.want != "") || ok && address.String() != tt.want {
			t.Errorf("%s: %s, %v, want %q", tt.name, address, ok, tt.want)
		}
		lib := &Library{info: rcclx.LibraryInfo{VersionCode: tt.version},
			lastError: func(uintptr) string { return "Connection refused" }}
		text := lib.StuckInit(0, 1, 2, id)
		if strings.Contains(text, "the id names") != (tt.want != "") || !strings.Contains(text, tt.want) ||
			!strings.Contains(text, "Connection refused") {
			t.Errorf("%s: StuckInit = %q", tt.name, text)
		}
	}
	for _, id := range [][]byte{nil, []byte("not an id")} {
		if address, ok := idAddress(id, 22809); ok {
			t.Errorf("%q gave %s", id, address)
		}
	}
}

// A library of before 2.14 cannot form a communicator without blocking, so it forms one that blocks. A later one
// without the function is a partial build.
func TestNonBlockingNeedsVersion214(t *testing.T) {
	for _, tt := range []struct {
		version int
		missing bool
	}{{21304, false}, {21400, true}, {22707, true}} {
		blocked := 0
		lib := &Library{info: rcclx.LibraryInfo{VersionCode: tt.version, Path: "librccl.so.1"},
			commInitRank: func(*uintptr, int32, uniqueID, int32) int32 { blocked++; return resultSuccess }}
		comm := &communicator{lib: lib, ranks: 2, clock: &steppedClock{}}
		err := comm.form(make([]byte, UniqueIDBytes), true, time.Minute)
		var missing *SymbolMissingError
		if errors.As(err, &missing) != tt.missing || !tt.missing && (err != nil || blocked != 1 || comm.nonBlocking) {
			t.Errorf("version %d: %v, %d blocking calls, non-blocking %v", tt.version, err, blocked, comm.nonBlocking)
		}
	}
}

// The size of ncclConfig_t is the size of its version's (nccl.h): 2.17 has 40 bytes, 2.18 has 48.
func TestConfigIsThatOfItsVersion(t *testing.T) {
	if c := nonBlockingConfig(); c.size != 48 || c.version != 21800 || c.magic != 0xcafebeef || c.blocking != 0 {
		t.Errorf("config %+v", c)
	}
}

// What the library calls an invalid argument is told with the rank and the world size that it was given.
func TestInitErrorsNameTheRank(t *testing.T) {
	lib := &Library{lastError: func(uintptr) string {
		return ""
	}, info: rcclx.LibraryInfo{DeviceName: "GPU", PCIAddress: "0000:05:00.0"}}
	comm := &communicator{lib: lib, rank: 9, ranks: 8, clock: &steppedClock{}}
	for code, want := range map[int]string{resultInvalidArgument: "rank 9 of 8 ranks",
		resultInvalidUsage: "device GPU at 0000:05:00.0", 6: "rank 9 of 8 waits for"} {
		if err := comm.explainInit(&CallError{Call: "ncclCommInitRank", Code: code}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("code %d: %v, want %q", code, err, want)
		}
	}
	if err := comm.explainInit(nil, nil); err != nil {
		t.Errorf("success became %v", err)
	}
}

// The properties' layout differs between releases; the architecture's name is found wherever it is.
func TestDeviceNames(t *testing.T) {
	for text, want := range map[string]string{"gfx942:sramecc+:xnack-": "gfx942", "gfx90a": "gfx90a",
		"gfx1201": "gfx1201", "none": ""} {
		properties := purego.NewCallback(func(to *[2048]byte, _ uintptr) uintptr {
			copy(to[:], "AMD Instinct")
			copy(to[1160:], text)
			return 0
		})
		r := &Runtime{prefix: "hip", getProperties: properties}
		if name, architecture := r.name(0); name != "AMD Instinct" || architecture != want {
			t.Errorf("%q: name %q, architecture %q", text, name, architecture)
		}
	}
	attribute := purego.NewCallback(func(to *int32, what, _ uintptr) uintptr {
		*to = map[uintptr]int32{75: 10, 76: 3}[what]
		return 0
	})
	if got := (&Runtime{prefix: "cuda", getAttribute: attribute}).computeCapability(0); got != 103 {
		t.Errorf("compute capability %d, want 103", got)
	}
}

// NCCL's own folder leads to CUDA's runtime where both were installed as Python packages.
func TestRuntimeCandidates(t *testing.T) {
	all := cudaCandidates("/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2")
	for _, want := range []string{"libcudart.so", "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13",
		"/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
		"/usr/local/cuda/lib64/libcudart.so"} {
		if !slices.Contains(all, want) {
			t.Errorf("%v lacks %s", all, want)
		}
	}
}

// The cost of one call through the binding, against a function of the library that does next to nothing.
func BenchmarkCallThroughSyscallN(b *testing.B) {
	address := benchmarked(b)
	var version int32
	b.ReportAllocs()
	for b.Loop() {
		if result, _, _ := purego.SyscallN(address, uintptr(unsafe.Pointer(&version))); result != 0 {
			b.Fatal(result)
		}
	}
}

// The same call through a registered function, for comparison: reflection costs more.
func BenchmarkCallThroughRegisterFunc(b *testing.B) {
	address := benchmarked(b)
	var get func(version *int32) int32
	purego.RegisterFunc(&get, address)
	var version int32
	b.ReportAllocs()
	for b.Loop() {
		if result := get(&version); result != 0 {
			b.Fatal(result)
		}
	}
}

// A whole launch, seven arguments and the library's own part included, without what the device does.
func BenchmarkLaunchAllReduce(b *testing.B) {
	e := engine(b, 4096)
	launch := e.comm.prepare(rcclx.AllReduce, 7, 4, 2, uintptr(e.buffers.send.address), uintptr(e.buffers.recv.address))
	b.ReportAllocs()
	for b.Loop() {
		if _, result := launch(0, 0); result != resultSuccess {
			b.Fatal(result)
		}
	}
	if err := e.comm.wait("the calls", e.comm.limit(time.Minute)); err != nil {
		b.Fatal(err)
	}
}

func benchmarked(b *testing.B) (getVersion uintptr) {
	b.Helper()
	lib := openSimulated(b)
	handle, err := load(lib.info.Path)
	if err != nil {
		b.Fatal(err)
	}
	symbols := symbolTable{handle: handle, file: lib.info.Path}
	return symbols.need("ncclGetVersion")
}
