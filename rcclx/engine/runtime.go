package engine

import (
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
	getName, getProperties                                      uintptr
	errorString                                                 func(code int32) string
}

const (
	runtimeOutOfMemory = 2
	runtimeNotReady    = 600

	copyHostToDevice = 1 // hipMemcpyKind
	copyDeviceToHost = 2

	streamNonBlocking = 1
	// propertiesBytes holds cudaDeviceProp of every release, whose first 256 bytes are the name.
	propertiesBytes = 8192
	nameBytes       = 256
)

// openRuntime loads the runtime. One that the communication library has brought along comes first: a second copy of
// the runtime would have devices and memory of its own.
func openRuntime(f rcclx.Flavor, path string) (*Runtime, error) {
	prefix, candidates := "hip", []string{"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"}
	if f == rcclx.FlavorNCCL {
		prefix, candidates = "cuda", []string{"libcudart.so", "libcudart.so.13", "libcudart.so.12"}
	}
	if path != "" {
		candidates = []string{path}
	} else if mapped := mappedLibrary(candidates[0]); mapped != "" {
		candidates = []string{mapped}
	}
	var firstErr error
	for _, candidate := range candidates {
		handle, err := load(candidate)
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		return bindRuntime(symbolTable{handle: handle, file: candidate}, prefix)
	}
	return nil, firstErr
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
	// The name is for people only; CUDA's runtime gives it as the first field of the properties.
	r.getName = s.find(prefix + "DeviceGetName")
	if r.getProperties = s.find(prefix + "GetDeviceProperties_v2"); r.getProperties == 0 && prefix == "cuda" {
		r.getProperties = s.find("cudaGetDeviceProperties")
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
	err := r.call("DeviceGetPCIBusId", r.getPCIBusID, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), uintptr(device))
	return strings.ToLower(cString(text)), err
}

// Name of a device; empty where the runtime does not tell.
func (r *Runtime) Name(device int) string {
	text := make([]byte, propertiesBytes)
	var err error
	switch {
	case r.getName != 0:
		err = r.call("DeviceGetName", r.getName, uintptr(unsafe.Pointer(&text[0])), nameBytes, uintptr(device))
	case r.getProperties != 0:
		err = r.call("GetDeviceProperties", r.getProperties, uintptr(unsafe.Pointer(&text[0])), uintptr(device))
	}
	if err != nil {
		return ""
	}
	return cString(text[:nameBytes])
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
	err := r.call("MemcpyAsync", r.memcpyAsync, to, uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)), copyHostToDevice, stream)
	runtime.KeepAlive(from)
	return err
}

func (r *Runtime) toHost(to []byte, from, stream uintptr) error {
	err := r.call("MemcpyAsync", r.memcpyAsync, uintptr(unsafe.Pointer(&to[0])), from, uintptr(len(to)), copyDeviceToHost, stream)
	runtime.KeepAlive(to)
	return err
}

func (r *Runtime) fill(to devicePointer, value byte, sizeBytes int64, stream uintptr) error {
	return r.call("MemsetAsync", r.memsetAsync, uintptr(to), uintptr(value), uintptr(sizeBytes), stream)
}
