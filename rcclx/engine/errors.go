package engine

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// LibraryMissingError says that a shared library, or one that it needs, could not be loaded.
type LibraryMissingError struct {
	File string
	Err  error
}

func (e *LibraryMissingError) Error() string {
	return fmt.Sprintf("cannot load %s: %v", e.File, e.Err)
}

// Unwrap gives the loader's error.
func (e *LibraryMissingError) Unwrap() error { return e.Err }

// SymbolMissingError says that a library lacks a function that the engine calls.
type SymbolMissingError struct {
	Symbol, File string
	// Collective that needs the function; empty where all do.
	Collective rcclx.Collective
}

func (e *SymbolMissingError) Error() string {
	if e.Collective != "" {
		return fmt.Sprintf("%s has no symbol %s, which %s needs: leave %s out, or use a complete build of the library",
			e.File, e.Symbol, e.Collective, e.Collective)
	}
	return fmt.Sprintf("%s has no symbol %s: it is a partial or foreign build; use a complete build of the library",
		e.File, e.Symbol)
}

// LibraryTooOldError says that a library is older than the engine needs.
type LibraryTooOldError struct{ File, Found, Needed string }

func (e *LibraryTooOldError) Error() string {
	return fmt.Sprintf("%s is version %s; version %s or later is needed", e.File, e.Found, e.Needed)
}

// BadVersionError says that a library's version is no version.
type BadVersionError struct {
	File string
	Code int
}

func (e *BadVersionError) Error() string {
	return fmt.Sprintf("ncclGetVersion of %s gave %d, which is no version (2.13.0 would be %d): the file is damaged "+
		"or not a communication library; install it anew", e.File, e.Code, minVersionCode)
}

// InsufficientMemoryError says that a device has too little free memory for a run, before anything is allocated.
type InsufficientMemoryError struct {
	// NeededBytes is BufferBytes for the messages plus LibraryBytes that the library allocates for the variant.
	NeededBytes, BufferBytes, LibraryBytes, FreeBytes int64
}

func (e *InsufficientMemoryError) Error() string {
	return fmt.Sprintf("%d bytes of device memory are needed (%d for messages, %d by the library for "+
		"this variant) and %d are free: end what else uses the GPU, or lower the largest message size",
		e.NeededBytes, e.BufferBytes, e.LibraryBytes, e.FreeBytes)
}

// CallError says that a call into the library or the runtime failed.
type CallError struct {
	// Call is the function, Code its result, Text the library's own words.
	Call string
	Code int
	Text string
}

func (e *CallError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s failed with code %d", e.Call, e.Code)
	}
	return fmt.Sprintf("%s failed with code %d: %s", e.Call, e.Code, e.Text)
}

// DeadlineError says that a wait passed its deadline.
type DeadlineError struct {
	// Waiting says for what, Deadline how long was waited.
	Waiting  string
	Deadline time.Duration
	// Detail says what else is known; it may be empty.
	Detail string
}

func (e *DeadlineError) Error() string {
	text := fmt.Sprintf("%s was not done within %s", e.Waiting, e.Deadline)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// RequestError says that a measurement was asked for that is not possible.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *RequestError) Unwrap() error { return e.Err }
