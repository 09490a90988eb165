package engine

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"rcclx.io/commgroup-operator/rcclx"
)

// UniqueIDBytes is the size of ncclUniqueId (nccl.h).
const UniqueIDBytes = 128

// minVersionCode is 2.13.0: the first with ncclGetLastError; bfloat16 came with 2.10, send and receive with 2.7.
const minVersionCode = 21300

// uniqueID is ncclUniqueId, which ncclCommInitRank takes by value.
type uniqueID struct{ internal [UniqueIDBytes]byte }

// Results of the library (nccl.h, ncclResult_t).
const (
	resultSuccess    = 0
	resultInProgress = 7
)

const redOpSum = 0 // nccl.h, ncclRedOp_t

// ncclDatatype is the datatype's number (nccl.h, ncclDataType_t).
func ncclDatatype(d rcclx.Datatype) uintptr {
	switch d {
	case rcclx.Float16:
		return 6
	case rcclx.Float32:
		return 7
	}
	return 9 // Bfloat16
}

// Library is a loaded communication library with its runtime. Its methods are for one locked OS thread, since the
// runtime keeps the current device for each thread.
type Library struct {
	info rcclx.LibraryInfo
	// Runtime holds the device functions.
	Runtime *Runtime

	getUniqueID, commDestroy, commAbort, getAsyncError uintptr
	allReduce, allGather, reduceScatter, allToAll      uintptr
	send, recv, groupStart, groupEnd                   uintptr
	commInitRank                                       func(comm *uintptr, ranks int32, id uniqueID, rank int32) int32
	errorString                                        func(result int32) string
	lastError                                          func(comm uintptr) string
}

// Info says what was loaded.
func (l *Library) Info() rcclx.LibraryInfo { return l.info }

// undefinedSymbol finds the name in the loader's message.
var undefinedSymbol = regexp.MustCompile(`undefined symbol: ([A-Za-z0-9_]+)`)

// Open loads a communication library and the device runtime that it uses. Empty paths mean librccl.so.1 and
// libamdhip64.so by the loader's search. It fails with LibraryMissingError, SymbolMissingError or LibraryTooOldError.
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
	var version int32
	if r, _, _ := purego.SyscallN(getVersion, uintptr(unsafe.Pointer(&version))); int32(r) != resultSuccess {
		return nil, &CallError{Call: "ncclGetVersion", Code: int(int32(r))}
	}
	l.info.VersionCode = int(version)
	if l.info.VersionCode < minVersionCode {
		return nil, &LibraryTooOldError{File: l.info.Path, Found: rcclx.VersionString(l.info.VersionCode), Needed: rcclx.VersionString(minVersionCode)}
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
	if l.Runtime, err = openRuntime(l.info.Flavor, runtimePath); err != nil {
		return nil, err
	}
	l.info.RuntimeVersionCode = l.Runtime.versionCode
	return l, nil
}

func load(path string) (uintptr, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err == nil {
		return handle, nil
	}
	if m := undefinedSymbol.FindStringSubmatch(err.Error()); m != nil {
		return 0, &SymbolMissingError{Symbol: m[1], File: path}
	}
	return 0, &LibraryMissingError{File: path, Err: err}
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
	l.allReduce = s.need("ncclAllReduce")
	l.allGather = s.need("ncclAllGather")
	l.reduceScatter = s.need("ncclReduceScatter")
	l.send = s.need("ncclSend")
	l.recv = s.need("ncclRecv")
	l.groupStart = s.need("ncclGroupStart")
	l.groupEnd = s.need("ncclGroupEnd")
	// ncclAllToAll is the only spelling up to 2.27 of AMD's library; NVIDIA's has neither before 2.28, and there a group
	// of sends and receives is the collective, as in rccl-tests.
	if l.allToAll = s.find("ncclAlltoAll"); l.allToAll == 0 {
		l.allToAll = s.find("ncclAllToAll")
	}
	if l.allToAll == 0 && l.info.Flavor != rcclx.FlavorNCCL {
		s.need("ncclAlltoAll")
	}
	s.register(&l.commInitRank, "ncclCommInitRank")
	s.register(&l.errorString, "ncclGetErrorString")
	s.register(&l.lastError, "ncclGetLastError")
}

// symbolTable finds symbols of one library and keeps the first one that is missing.
type symbolTable struct {
	handle uintptr
	file   string
	err    error
}

func (s *symbolTable) find(name string) uintptr {
	address, err := purego.Dlsym(s.handle, name)
	if err != nil {
		return 0
	}
	return address
}

func (s *symbolTable) has(name string) bool { return s.find(name) != 0 }

func (s *symbolTable) need(name string) uintptr {
	address := s.find(name)
	if address == 0 && s.err == nil {
		s.err = &SymbolMissingError{Symbol: name, File: s.file}
	}
	return address
}

// register binds a Go function to a symbol, for calls by value and for strings; a missing one stays nil.
func (s *symbolTable) register(function any, name string) {
	if address := s.need(name); address != 0 {
		purego.RegisterFunc(function, address)
	}
}

// mapping is one line of /proc/self/maps that names a file.
type mapping struct {
	start, end uint64
	path       string
}

// parseMaps reads the form of /proc/<pid>/maps (proc_pid_maps(5)); lines that name no file are left out.
func parseMaps(r io.Reader) []mapping {
	var all []mapping
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		from, to, ok := strings.Cut(fields[0], "-")
		start, errStart := strconv.ParseUint(from, 16, 64)
		end, errEnd := strconv.ParseUint(to, 16, 64)
		if ok && errStart == nil && errEnd == nil {
			all = append(all, mapping{start, end, strings.Join(fields[5:], " ")})
		}
	}
	return all
}

func ownMaps() []mapping {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	return parseMaps(file)
}

// mappedFile is the file that an address of this process belongs to; empty where /proc cannot tell.
func mappedFile(address uintptr) string {
	for _, m := range ownMaps() {
		if uint64(address) >= m.start && uint64(address) < m.end {
			return m.path
		}
	}
	return ""
}

// mappedLibrary is a file already mapped whose base name starts with prefix; empty where there is none.
func mappedLibrary(prefix string) string {
	for _, m := range ownMaps() {
		if strings.HasPrefix(filepath.Base(m.path), prefix) {
			return m.path
		}
	}
	return ""
}

// readFile hashes the loaded file and scans it for the literals that tell the flavors apart.
func (l *Library) readFile() (rcclx.Literals, error) {
	file, err := os.Open(l.info.Path)
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
