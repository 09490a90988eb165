package worker

import (
	"errors"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx/engine"
)

// Steps of a rank's life beside its measurements, as they stand in Error.Step.
const (
	StepLoad          = "load"
	StepPreconditions = "preconditions"
	StepInit          = "init"
	StepDestroy       = "destroy"
)

// stepError is an error with the step that it happened in.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// preconditionError is an error about what was found before the communicator was formed.
type preconditionError struct{ message string }

func (e *preconditionError) Error() string { return e.message }

// specError is an error in what the parent sent.
type specError struct{ err error }

func (e *specError) Error() string { return e.err.Error() }
func (e *specError) Unwrap() error { return e.err }

// describe turns an error into what the parent is told, which knows the node and the rank: the code by the error's
// type.
func describe(step string, err error) *rank.Error {
	e := &rank.Error{Code: code(step, err), Step: step, Message: err.Error()}
	if deadline := (*engine.DeadlineError)(nil); e.Code == rank.CodeRankHung && errors.As(err, &deadline) {
		e.Limit = deadline.Deadline
	}
	return e
}

func code(step string, err error) string {
	var (
		missing      *engine.LibraryMissingError
		symbol       *engine.SymbolMissingError
		old          *engine.LibraryTooOldError
		memory       *engine.InsufficientMemoryError
		deadline     *engine.DeadlineError
		request      *engine.RequestError
		precondition *preconditionError
		bad          *specError
	)
	switch {
	case errors.As(err, &missing):
		return rank.CodeLibraryMissing
	case errors.As(err, &symbol):
		return rank.CodeSymbolMissing
	case errors.As(err, &old):
		return rank.CodeLibraryTooOld
	case errors.As(err, &memory):
		return rank.CodeInsufficientMemory
	case errors.As(err, &deadline):
		return rank.CodeRankHung
	case errors.As(err, &request), errors.As(err, &bad):
		return rank.CodeBadSpec
	case errors.As(err, &precondition):
		return rank.CodePreconditionFailed
	}
	switch step {
	case StepLoad, StepPreconditions:
		return rank.CodePreconditionFailed
	case StepInit:
		return rank.CodeInitFailed
	}
	return rank.CodeCollectiveFailed
}
