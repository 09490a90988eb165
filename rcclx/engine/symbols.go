package engine

import (
	"regexp"

	"github.com/ebitengine/purego"
)

// undefinedSymbol finds the name in the loader's message.
var undefinedSymbol = regexp.MustCompile(`undefined symbol: ([A-Za-z0-9_]+)`)

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

// findAny gives the first of several spellings that is there; zero where none is.
func (s *symbolTable) findAny(names ...string) uintptr {
	for _, name := range names {
		if address := s.find(name); address != 0 {
			return address
		}
	}
	return 0
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
