package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// UniqueIDBytes is the size of ncclUniqueId (nccl.h).
const UniqueIDBytes = 128

// minVersionCode is 2.13.0: the first with ncclGetLastError; bfloat16 came with 2.10, send and receive with 2.7.
const minVersionCode = 21300

// Codes that can be versions: 2.0.0, in the form that versions up to 2.8 have, to 9.99.99.
const (
	leastVersionCode = 2000
	mostVersionCode  = 99999
)

// uniqueID is ncclUniqueId, which ncclCommInitRank takes by value.
type uniqueID struct{ internal [UniqueIDBytes]byte }

// Results of the library (nccl.h, ncclResult_t).
const (
	resultSuccess         = 0
	resultInvalidArgument = 4
	resultInvalidUsage    = 5
	resultInProgress      = 7
)

// nccl.h, ncclRedOp_t and ncclDataType_t.
const (
	redOpSum  = 0
	redOpMax  = 2
	kindInt64 = 4
)

// Library is a loaded communication library with its runtime. Its methods are for one locked OS thread, since the
// runtime keeps the current device for each thread.
type Library struct {
	info rcclx.LibraryInfo
	// Runtime holds the device functions.
	Runtime *Runtime

	// Of the device in use: its FP8 encoding, AMD's name of its architecture, and CUDA's compute capability (90 is
	// 9.0).
	fp8               fp8Encoding
	architecture      string
	computeCapability int

	getUniqueID, commFinalize, commDestroy, commAbort, getAsyncError uintptr
	send, recv, groupStart, groupEnd                                 uintptr
	// collectives holds the functions that the library has; of those that it lacks, Supports tells.
	collectives  map[rcclx.Collective]uintptr
	commInitRank func(comm *uintptr, ranks int32, id uniqueID, rank int32) int32
	// nil before 2.14
	commInitRankConfig func(comm *uintptr, ranks int32, id uniqueID, rank int32, config *config) int32
	errorString        func(result int32) string
	lastError          func(comm uintptr) string
}

// Info says what was loaded, and, after UseDevice, on which device.
func (l *Library) Info() rcclx.LibraryInfo { return l.info }

// Open loads a communication library and the device runtime that it uses. Empty paths mean librccl.so.1 and
// libamdhip64.so by the loader's search. It fails with LibraryMissingError, SymbolMissingError, LibraryTooOldError or
// BadVersionError.
func Open(libraryPath, runtimePath string) (*Library, error) {
	if libraryPath == "" {
		libraryPath = "librccl.so.1"
	}
	handle, err := load(libraryPath)
	if err != nil {
		return nil, err
	}
	l := &Library{info: rcclx.LibraryInfo{Path: libraryPath}}
	symbols := symbolTable{handle: handle, file: libraryPath}
	getVersion := symbols.need("ncclGetVersion")
	if symbols.err != nil {
		return nil, symbols.err
	}
	if path := mappedFile(getVersion); path != "" {
		l.info.Path, symbols.file = path, path
	}
	if l.info.VersionCode, err = version(getVersion, l.info.Path); err != nil {
		return nil, err
	}
	literals, err := l.readFile()
	if err != nil {
		return nil, &LibraryMissingError{File: l.info.Path, Err: err}
	}
	l.info.Flavor = rcclx.DetectFlavor(symbols.has, literals)
	if l.info.Flavor == rcclx.FlavorSimulated {
		if l.info.Imitates, err = imitates(&symbols); err != nil {
			return nil, err
		}
	}
	l.resolve(&symbols)
	if symbols.err != nil {
		return nil, symbols.err
	}
	if l.Runtime, err = openRuntime(l.info.Flavor, l.info.Path, runtimePath); err != nil {
		return nil, err
	}
	l.info.RuntimeVersionCode = l.Runtime.versionCode
	return l, nil
}

// version asks a library for its version, and refuses numbers that cannot be one.
func version(getVersion uintptr, file string) (int, error) {
	var code int32
	result, _, _ := purego.SyscallN(getVersion, uintptr(unsafe.Pointer(&code)))
	switch {
	case int32(result) != resultSuccess:
		return 0, &CallError{Call: "ncclGetVersion", Code: int(int32(result))}
	case code < leastVersionCode || code > mostVersionCode:
		return 0, &BadVersionError{File: file, Code: int(code)}
	case code < minVersionCode:
		return 0, &LibraryTooOldError{File: file, Found: rcclx.VersionString(int(code)),
			Needed: rcclx.VersionString(minVersionCode)}
	}
	return int(code), nil
}

func imitates(symbols *symbolTable) (rcclx.Flavor, error) {
	var name func() string
	purego.RegisterFunc(&name, symbols.need(rcclx.SymbolSimulatorImitates))
	if symbols.err != nil {
		return rcclx.FlavorUnknown, symbols.err
	}
	f, err := rcclx.ParseFlavor(name())
	if err != nil {
		return rcclx.FlavorUnknown, fmt.Errorf("%s of %s: %w", rcclx.SymbolSimulatorImitates, symbols.file, err)
	}
	return f, nil
}

func (l *Library) resolve(s *symbolTable) {
	l.getUniqueID = s.need("ncclGetUniqueId")
	l.commDestroy = s.need("ncclCommDestroy")
	l.commAbort = s.need("ncclCommAbort")
	l.getAsyncError = s.need("ncclCommGetAsyncError")
	l.send = s.need("ncclSend")
	l.recv = s.need("ncclRecv")
	l.groupStart = s.need("ncclGroupStart")
	l.groupEnd = s.need("ncclGroupEnd")
	l.commFinalize = s.find("ncclCommFinalize") // from 2.14 on
	l.collectives = map[rcclx.Collective]uintptr{
		rcclx.AllReduce:     s.need("ncclAllReduce"),
		rcclx.AllGather:     s.need("ncclAllGather"),
		rcclx.ReduceScatter: s.need("ncclReduceScatter"),
		rcclx.Broadcast:     s.find("ncclBroadcast"),
		rcclx.Reduce:        s.find("ncclReduce"),
		// The second spelling is the only one up to 2.27 of AMD's library. NVIDIA's has no AllToAll before 2.28, and no
		// AllToAllv at all.
		rcclx.AllToAll:  s.findAny("ncclAlltoAll", "ncclAllToAll"),
		rcclx.AllToAllv: s.findAny("ncclAlltoAllv", "ncclAllToAllv"),
	}
	s.register(&l.commInitRank, "ncclCommInitRank")
	s.register(&l.errorString, "ncclGetErrorString")
	s.register(&l.lastError, "ncclGetLastError")
	if s.has("ncclCommInitRankConfig") {
		s.register(&l.commInitRankConfig, "ncclCommInitRankConfig")
	}
}

// readFile hashes the loaded file and scans it for the literals that tell the flavors apart.
func (l *Library) readFile() (rcclx.Literals, error) {
	file, err := os.Open(filepath.Clean(l.info.Path))
	if err != nil {
		return rcclx.Literals{}, err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	if err != nil {
		return rcclx.Literals{}, fmt.Errorf("read %s: %w", l.info.Path, err)
	}
	l.info.BuildHash = hex.EncodeToString(hash.Sum(nil))[:16]
	return rcclx.ScanLibraryFile(file, size)
}

// UseDevice makes a device current for the calling OS thread and notes what it is, which Info then has.
func (l *Library) UseDevice(device int) error {
	r := l.Runtime
	if err := r.SetDevice(device); err != nil {
		return err
	}
	var err error
	if l.info.PCIAddress, err = r.PCIAddress(device); err != nil {
		return err
	}
	l.info.DeviceName, l.architecture = r.name(device)
	l.computeCapability = r.computeCapability(device)
	l.fp8 = fp8Of(l.info.Flavor, l.architecture, l.info.DeviceName)
	l.info.FreeMemoryBytes, l.info.TotalMemoryBytes, err = r.Memory()
	return err
}

// UniqueID makes the id that binds the ranks of one communicator; rank 0 hands it to the others.
func (l *Library) UniqueID() ([]byte, error) {
	var id uniqueID
	result, _, _ := purego.SyscallN(l.getUniqueID, uintptr(unsafe.Pointer(&id)))
	if err := l.check("ncclGetUniqueId", 0, int32(result)); err != nil {
		return nil, err
	}
	return id.internal[:], nil
}

func (l *Library) check(call string, comm uintptr, result int32) error {
	if result == resultSuccess {
		return nil
	}
	text := l.errorString(result)
	if detail := l.lastError(comm); detail != "" {
		text += ": " + detail
	}
	return &CallError{Call: call, Code: int(result), Text: text}
}
