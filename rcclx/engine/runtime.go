package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// Runtime is the device runtime of AMD (HIP) or NVIDIA (CUDA). Both have the same functions under two prefixes, with
// the same arguments and the same codes for success (0), out of memory (2) and not ready (600)
// (hip_runtime_api.h, driver_types.h).
type Runtime struct {
	file        string
	prefix      string
	versionCode int

	getDeviceCount, setDevice, getPCIBusID, memGetInfo          uintptr
	malloc, free, memcpyAsync, memsetAsync                      uintptr
	streamCreate, streamDestroy                                 uintptr
	eventCreate, eventRecord, eventQuery, eventElapsed, destroy uintptr
	getName, getProperties, getAttribute, eventCreateWithFlags  uintptr
	errorString                                                 func(code int32) string
}

const (
	runtimeOutOfMemory = 2
	runtimeNotReady    = 600
	// runtimeInsufficientDriver: the driver is older than the runtime (driver_types.h, cudaErrorInsufficientDriver).
	runtimeInsufficientDriver = 35

	copyHostToDevice = 1 // hipMemcpyKind
	copyDeviceToHost = 2

	streamNonBlocking       = 1
	eventDisableSystemFence = 0x20000000 // hip_runtime_api.h, hipEventDisableSystemFence
	// propertiesBytes holds cudaDeviceProp and hipDeviceProp_t of every release (1032 and 1472 bytes by now), whose
	// first 256 bytes are the name.
	propertiesBytes = 8192
	nameBytes       = 256

	// cudaDeviceAttr (driver_types.h).
	attributeComputeCapabilityMajor = 75
	attributeComputeCapabilityMinor = 76
)

// openRuntime loads the runtime. One that the communication library has brought along comes first: a second copy of
// AMD's would have devices and memory of its own. NCCL has CUDA's within itself; another copy of that shares its device
// context.
func openRuntime(f rcclx.Flavor, libraryPath, path string) (*Runtime, error) {
	prefix, candidates := "hip", hipCandidates
	if f == rcclx.FlavorNCCL {
		prefix, candidates = "cuda", cudaCandidates(libraryPath)
	}
	if path != "" {
		candidates = []string{path}
	} else if mapped := mappedLibrary(candidates[0]); mapped != "" {
		candidates = []string{mapped}
	}
	var firstErr error
	for _, candidate := range candidates {
		r, err := openRuntimeFile(candidate, prefix)
		if err == nil {
			return r, nil
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return nil, firstErr
}

var hipCandidates = []string{"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"}

// cudaCandidates are by the loader's search, then beside the library, as NVIDIA's Python packages lay them out
// (nvidia/nccl/lib, nvidia/cuda_runtime/lib for CUDA 12, nvidia/cu13/lib), then where CUDA's own installer puts them.
func cudaCandidates(libraryPath string) []string {
	beside := filepath.Join(filepath.Dir(libraryPath), "..", "..")
	return []string{"libcudart.so", "libcudart.so.13", "libcudart.so.12",
		filepath.Join(beside, "cu13", "lib", "libcudart.so.13"),
		filepath.Join(beside, "cuda_runtime", "lib", "libcudart.so.12"), "/usr/local/cuda/lib64/libcudart.so",
		"/usr/local/cuda/lib64/libcudart.so.13", "/usr/local/cuda/lib64/libcudart.so.12"}
}

// openRuntimeFile loads one candidate. One that is newer than the driver is told from one that fits by its first look
// at devices.
func openRuntimeFile(file, prefix string) (*Runtime, error) {
	handle, err := load(file)
	if err != nil {
		return nil, err
	}
	r, err := bindRuntime(symbolTable{handle: handle, file: file}, prefix)
	if err != nil || prefix != "cuda" {
		return r, err
	}
	_, err = r.DeviceCount()
	var call *CallError
	if errors.As(err, &call) && call.Code == runtimeInsufficientDriver {
		return nil, &LibraryMissingError{File: file, Err: fmt.Errorf("it needs a newer driver: %w", err)}
	}
	return r, nil
}

func bindRuntime(s symbolTable, prefix string) (*Runtime, error) {
	r := &Runtime{file: s.file, prefix: prefix}
	need := func(name string) uintptr { return s.need(prefix + name) }
	runtimeGetVersion := need("RuntimeGetVersion")
	r.getDeviceCount = need("GetDeviceCount")
	r.setDevice = need("SetDevice")
	r.getPCIBusID = need("DeviceGetPCIBusId")
	r.memGetInfo = need("MemGetInfo")
	r.malloc = need("Malloc")
	r.free = need("Free")
	r.memcpyAsync = need("MemcpyAsync")
	r.memsetAsync = need("MemsetAsync")
	r.streamCreate = need("StreamCreateWithFlags")
	r.streamDestroy = need("StreamDestroy")
	r.eventCreate = need("EventCreate")
	r.eventRecord = need("EventRecord")
	r.eventQuery = need("EventQuery")
	r.eventElapsed = need("EventElapsedTime")
	r.destroy = need("EventDestroy")
	// What a device is; none of it is needed to measure. hipGetDeviceProperties is a macro for the name with R0600.
	r.getName = s.find(prefix + "DeviceGetName")
	r.eventCreateWithFlags = s.find(prefix + "EventCreateWithFlags")
	if prefix == "cuda" {
		r.getProperties = s.findAny("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties")
		r.getAttribute = s.find("cudaDeviceGetAttribute")
	} else {
		r.getProperties = s.find("hipGetDevicePropertiesR0600")
	}
	s.register(&r.errorString, prefix+"GetErrorString")
	if s.err != nil {
		return nil, s.err
	}
	var version int32
	if err := r.call("RuntimeGetVersion", runtimeGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	r.versionCode = int(version)
	return r, nil
}

// call runs a function that answers a code, and turns other codes than success into an error.
//
//go:uintptrescapes
func (r *Runtime) call(name string, function uintptr, args ...uintptr) error {
	result, _, _ := purego.SyscallN(function, args...)
	return r.check(name, int32(result))
}

func (r *Runtime) check(name string, code int32) error {
	if code == 0 {
		return nil
	}
	return &CallError{Call: r.prefix + name, Code: int(code), Text: r.errorString(code)}
}

// DeviceCount is the number of devices that this process sees.
func (r *Runtime) DeviceCount() (int, error) {
	var count int32
	err := r.call("GetDeviceCount", r.getDeviceCount, uintptr(unsafe.Pointer(&count)))
	return int(count), err
}

// SetDevice makes a device current for the calling OS thread.
func (r *Runtime) SetDevice(device int) error {
	return r.call("SetDevice", r.setDevice, uintptr(device))
}

// PCIAddress of a device, in the form 0000:05:00.0, in lower case.
func (r *Runtime) PCIAddress(device int) (string, error) {
	text := make([]byte, 64)
	err := r.call("DeviceGetPCIBusId", r.getPCIBusID, uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(text)), uintptr(device))
	return strings.ToLower(cString(text)), err
}

// architectureName is AMD's name of an architecture in the properties, gcnArchName: its place differs between releases,
// its form does not.
var architectureName = regexp.MustCompile(`gfx[0-9a-f]{3,4}[:\x00]`)

// name and architecture of a device; empty where the runtime does not tell.
func (r *Runtime) name(device int) (name, architecture string) {
	text := make([]byte, propertiesBytes)
	if r.getProperties != 0 &&
		r.call("GetDeviceProperties", r.getProperties, uintptr(unsafe.Pointer(&text[0])), uintptr(device)) == nil {
		name = cString(text[:nameBytes])
		if r.prefix == "hip" {
			architecture = strings.TrimRight(string(architectureName.Find(text[nameBytes:])), ":\x00")
		}
	}
	if name == "" && r.getName != 0 &&
		r.call("DeviceGetName", r.getName, uintptr(unsafe.Pointer(&text[0])), nameBytes, uintptr(device)) == nil {
		name = cString(text[:nameBytes])
	}
	return name, architecture
}

// computeCapability of a device of NVIDIA's, as major*10+minor; zero where the runtime does not tell.
func (r *Runtime) computeCapability(device int) int {
	if r.getAttribute == 0 {
		return 0
	}
	var major, minor int32
	if r.call("DeviceGetAttribute", r.getAttribute, uintptr(unsafe.Pointer(&major)), attributeComputeCapabilityMajor,
		uintptr(device)) != nil || r.call("DeviceGetAttribute", r.getAttribute, uintptr(unsafe.Pointer(&minor)),
		attributeComputeCapabilityMinor, uintptr(device)) != nil {
		return 0
	}
	return int(major)*10 + int(minor)
}

func cString(text []byte) string {
	name, _, _ := strings.Cut(string(text), "\x00")
	return name
}

// Memory is the free and total memory of the current device, in bytes.
func (r *Runtime) Memory() (free, total int64, err error) {
	var sizes [2]uint64
	err = r.call("MemGetInfo", r.memGetInfo, uintptr(unsafe.Pointer(&sizes[0])), uintptr(unsafe.Pointer(&sizes[1])))
	return int64(sizes[0]), int64(sizes[1]), err
}

// devicePointer is an address in a device's memory; it is never followed on the host.
type devicePointer uintptr

func (p devicePointer) at(offsetBytes int64) uintptr { return uintptr(p) + uintptr(offsetBytes) }

func (r *Runtime) allocate(sizeBytes int64) (devicePointer, error) {
	var address uintptr
	err := r.call("Malloc", r.malloc, uintptr(unsafe.Pointer(&address)), uintptr(sizeBytes))
	return devicePointer(address), err
}

func (r *Runtime) release(p devicePointer) error { return r.call("Free", r.free, uintptr(p)) }

func (r *Runtime) newStream() (uintptr, error) {
	var stream uintptr
	err := r.call("StreamCreateWithFlags", r.streamCreate, uintptr(unsafe.Pointer(&stream)), streamNonBlocking)
	return stream, err
}

// newTimingEvent makes an event that only times are read from. AMD's default event writes caches back when it is
// recorded, which delays the calls after it; this one does not.
func (r *Runtime) newTimingEvent() (uintptr, error) {
	var event uintptr
	if r.prefix == "hip" && r.eventCreateWithFlags != 0 &&
		r.call("EventCreateWithFlags", r.eventCreateWithFlags, uintptr(unsafe.Pointer(&event)),
			eventDisableSystemFence) == nil {
		return event, nil
	}
	return r.newEvent()
}

func (r *Runtime) newEvent() (uintptr, error) {
	var event uintptr
	err := r.call("EventCreate", r.eventCreate, uintptr(unsafe.Pointer(&event)))
	return event, err
}

func (r *Runtime) record(event, stream uintptr) error {
	return r.call("EventRecord", r.eventRecord, event, stream)
}

// done asks, without waiting, whether an event has happened.
func (r *Runtime) done(event uintptr) (bool, error) {
	result, _, _ := purego.SyscallN(r.eventQuery, event)
	if int32(result) == runtimeNotReady {
		return false, nil
	}
	return true, r.check("EventQuery", int32(result))
}

// elapsedNanoseconds is the device's time between two events that have happened.
func (r *Runtime) elapsedNanoseconds(from, to uintptr) (int64, error) {
	var milliseconds float32
	err := r.call("EventElapsedTime", r.eventElapsed, uintptr(unsafe.Pointer(&milliseconds)), from, to)
	return int64(float64(milliseconds) * 1e6), err
}

// toDevice and toHost queue a copy; the slice must stay alive until the stream has got there.
func (r *Runtime) toDevice(to uintptr, from []byte, stream uintptr) error {
	err := r.call("MemcpyAsync", r.memcpyAsync, to, uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)),
		copyHostToDevice, stream)
	runtime.KeepAlive(from)
	return err
}

func (r *Runtime) toHost(to []byte, from, stream uintptr) error {
	err := r.call("MemcpyAsync", r.memcpyAsync, uintptr(unsafe.Pointer(&to[0])), from, uintptr(len(to)),
		copyDeviceToHost, stream)
	runtime.KeepAlive(to)
	return err
}

func (r *Runtime) fill(to devicePointer, value byte, sizeBytes int64, stream uintptr) error {
	return r.call("MemsetAsync", r.memsetAsync, uintptr(to), uintptr(value), uintptr(sizeBytes), stream)
}
