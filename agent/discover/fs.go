// Package discover reads what a Linux host's sysfs, procfs and ROCm tree tell of its AMD GPUs: models, partitions, the
// xGMI mesh, driver and ROCm versions, and what is wrong or could not be read, and why. It only reads, it never opens
// a device, and it never reads xgmi_error (reading clears it on MI200 and older, MI300 answers EINVAL).
package discover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxFileBytes is the most that is read of one file.
const MaxFileBytes = 64 << 10

// FS is the file system of a host, rooted at one directory. Names are slash-separated and relative to the root; the
// implementation resolves symbolic links inside the root, also absolute ones. Errors wrap a syscall.Errno or fs.Err*.
type FS interface {
	// ReadFile returns a file's content; more than MaxFileBytes is ErrTooLarge.
	ReadFile(name string) ([]byte, error)
	// ReadDir returns the names in a directory, in any order.
	ReadDir(name string) ([]string, error)
	// ReadLink returns the target of the symbolic link that name's last element is.
	ReadLink(name string) (string, error)
}

// SubFS is a directory of an FS that was opened as a root of its own.
type SubFS interface {
	FS
	// ID of the directory.
	ID() (DirID, error)
	Close() error
}

// subdirs is an FS that can open a directory for many files. It is a matter of speed only.
type subdirs interface {
	Sub(dir string) (SubFS, error)
}

// streamFS is an FS that can read a file piece by piece; a file of any size can be searched so.
type streamFS interface {
	// Open opens a file for reading.
	Open(name string) (io.ReadCloser, error)
}

// ErrTooLarge says that a file is larger than MaxFileBytes.
var ErrTooLarge = errors.New("file is larger than 64 KiB")

// Class says why something could not be read. None of them ever stands for zero.
type Class string

// The classes.
const (
	ClassMissing     Class = "Missing"     // ENOENT, ENOTDIR: this kernel or model has no such file
	ClassForbidden   Class = "Forbidden"   // EPERM, EACCES: hidden by the container's device cgroup, or a GPU in reset
	ClassUnsupported Class = "Unsupported" // EINVAL, EOPNOTSUPP, ENODEV: the chip or firmware does not answer
	ClassBusy        Class = "Busy"        // EBUSY, EAGAIN, "Query currently inaccessible": a GPU in reset
	ClassMalformed   Class = "Malformed"   // read, but not in the format that the kernel writes
	ClassTimeout     Class = "Timeout"     // the read did not return in time
	ClassFailed      Class = "Failed"      // any other error
)

// ReadError is one thing that could not be read.
type ReadError struct {
	// Path relative to the root.
	Path  string `json:"path"`
	Class Class  `json:"class"`
	Err   error  `json:"-"`
}

// Error names the path, the class and the cause.
func (e *ReadError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Path, e.Class, e.Err) }

// Unwrap gives the cause.
func (e *ReadError) Unwrap() error { return e.Err }

var errEmpty = errors.New("file is empty")

// errBusyText is what ras/*_err_count says while a GPU is in reset (amdgpu_ras.c).
var errBusyText = errors.New("kernel says: Query currently inaccessible")

// errTimeout is a read that did not return in time.
type errTimeout struct{ detail string }

func (e errTimeout) Error() string { return e.detail }

// errFormat is content that is not as the kernel writes it.
type errFormat struct{ detail string }

func (e errFormat) Error() string { return e.detail }

func malformedf(format string, args ...any) error { return errFormat{fmt.Sprintf(format, args...)} }

// Classify says why a read failed; "" for nil.
func Classify(err error) Class {
	var (
		timeout errTimeout
		format  errFormat
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &timeout):
		return ClassTimeout
	case errors.As(err, &format), errors.Is(err, errEmpty), errors.Is(err, ErrTooLarge):
		return ClassMalformed
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return ClassMissing
	case errors.Is(err, fs.ErrPermission):
		return ClassForbidden
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENODEV),
		errors.Is(err, syscall.ENXIO):
		return ClassUnsupported
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EAGAIN), errors.Is(err, errBusyText):
		return ClassBusy
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ClassTimeout
	}
	return ClassFailed
}
