package discover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// RootFS is an FS over a directory. Links resolve inside it: an absolute link in a host's tree that is mounted into a
// pod must lead to the host's file, not to the pod's.
type RootFS struct {
	dir     *os.File
	inRoot  bool // the kernel resolves inside the root (openat2, Linux 5.6); else it is done by hand
	buffers *sync.Pool
}

// maxLinks bounds the symbolic links of one name, as the kernel does.
const maxLinks = 40

// OpenRoot opens a directory as a host's root. An error means that the directory itself cannot be opened.
func OpenRoot(dir string) (*RootFS, error) {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	r := &RootFS{dir: d, buffers: &sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}}
	// A seccomp profile may answer EPERM or ENOSYS for a system call that it does not know.
	if fd, err := openat2(int(d.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY); err == nil {
		_ = unix.Close(fd)
		r.inRoot = true
	}
	return r, nil
}

// Sub opens a directory of the root as a root of its own, so that the kernel walks its path once for many files. Links
// that lead out of it do not resolve there.
func (r *RootFS) Sub(dir string) (SubFS, error) {
	fd, err := r.open(dir, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &RootFS{dir: os.NewFile(uintptr(fd), dir), inRoot: r.inRoot, buffers: r.buffers}, nil
}

// ID implements SubFS.
func (r *RootFS) ID() (DirID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.dir.Fd()), &st); err != nil {
		return DirID{}, err
	}
	return DirID{Device: st.Dev, Inode: st.Ino, ChangedNanoseconds: st.Ctim.Nano()}, nil
}

// Close releases the root.
func (r *RootFS) Close() error { return r.dir.Close() }

func openat2(dirFD int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dirFD, name, &how)
		// EAGAIN: the kernel could not prove that ".." stayed inside, since something was renamed meanwhile.
		if (errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)) && tries < 8 {
			continue
		}
		return fd, err
	}
}

// open opens a name below the root. O_NONBLOCK keeps a FIFO or device from blocking.
func (r *RootFS) open(name string, flags int) (int, error) {
	flags |= unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if r.inRoot {
		return openat2(int(r.dir.Fd()), name, uint64(flags))
	}
	resolved, err := r.resolve(name)
	if err != nil {
		return -1, err
	}
	for {
		fd, err := unix.Openat(int(r.dir.Fd()), resolved, flags|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// resolve follows links by hand; ".." never climbs above the root.
func (r *RootFS) resolve(name string) (string, error) {
	rest := strings.Split(name, "/")
	done := "."
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		target, err := readlinkat(int(r.dir.Fd()), next)
		if err != nil { // EINVAL: not a link; any other error shows again when the name is opened
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			done = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

func readlinkat(dirFD int, name string) (string, error) {
	var buf [4096]byte
	n, err := unix.Readlinkat(dirFD, name, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// ReadFile implements FS.
func (r *RootFS) ReadFile(name string) ([]byte, error) {
	fd, err := r.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	pooled := r.buffers.Get().(*[]byte)
	defer r.buffers.Put(pooled)
	buf := *pooled
	used := 0
	for {
		if used == len(buf) {
			if used > MaxFileBytes {
				return nil, ErrTooLarge
			}
			grown := make([]byte, min(2*len(buf), MaxFileBytes+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := unix.Read(fd, buf[used:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return append([]byte(nil), buf[:used]...), nil
		}
		used += n
		// A short read is the end of a regular file; sysfs gives a file's whole text at once (fs/seq_file.c,
		// single_open).
		if used < len(buf) {
			return append([]byte(nil), buf[:used]...), nil
		}
	}
}

// ReadDir implements FS.
func (r *RootFS) ReadDir(name string) ([]string, error) {
	fd, err := r.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 16<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// ReadLink implements FS.
func (r *RootFS) ReadLink(name string) (string, error) {
	fd, err := r.open(path.Dir(name), unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return readlinkat(fd, path.Base(name))
}

// Open implements streamFS.
func (r *RootFS) Open(name string) (io.ReadCloser, error) {
	fd, err := r.open(name, 0)
	if err != nil {
		return nil, err
	}
	return &fdReader{fd: fd}, nil
}

// fdReader reads a descriptor that does not block; os.File would wait for a FIFO's writer.
type fdReader struct{ fd int }

func (f *fdReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(f.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (f *fdReader) Close() error { return unix.Close(f.fd) }
