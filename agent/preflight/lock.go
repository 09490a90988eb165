package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Holder is who holds a GPU's lock, as it stands in the lock's file.
type Holder struct {
	// ProcessID in the holder's own pid namespace; Lock fills in this process's where it is 0.
	ProcessID int `json:"pid"`
	// Run is the run's id, or what else names it.
	Run   string    `json:"run"`
	Start time.Time `json:"start"`
}

func (h Holder) String() string {
	if h == (Holder{}) {
		return "a run that left nothing of itself in the lock's file"
	}
	name := "a run without a name"
	if h.Run != "" {
		name = fmt.Sprintf("run %q", h.Run)
	}
	var known []string
	if h.ProcessID != 0 {
		known = append(known, fmt.Sprintf("process %d", h.ProcessID))
	}
	if !h.Start.IsZero() {
		known = append(known, "since "+h.Start.Format(time.RFC3339))
	}
	if len(known) == 0 {
		return name
	}
	return name + " (" + strings.Join(known, ", ") + ")"
}

const (
	lockFileMode   = 0o666 // every user's runs must meet
	maxHolderBytes = 4096
	maxLockTries   = 16
)

// DefaultLockDir is a folder that every user of the machine can write to, and the same one for all of them: /run/lock,
// else /tmp, else what TMPDIR says.
func DefaultLockDir() string {
	for _, dir := range []string{"/run/lock", "/tmp"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && info.Mode().Perm()&0o002 != 0 {
			return dir
		}
	}
	return os.TempDir()
}

// Lock takes the lock of every GPU in pci, the addresses of ranks 0, 1 and so on, so that no second run of agent run or
// agent bench on this machine uses it. release gives them back; where the process dies, the kernel does. A finding that
// failed says which run holds a GPU; one that is unknown says why no lock could be had, and the run may go on without.
// Locks in a folder that two pods do not share keep nothing apart; there the device plugin gives each GPU to one pod.
func Lock(dir string, pci []string, holder Holder) (release func(), finding *Finding) {
	var held []*os.File
	release = func() {
		for _, f := range held {
			_ = f.Close()
		}
		held = nil
	}
	if holder.ProcessID == 0 {
		holder.ProcessID = os.Getpid()
	}
	addresses := slices.Sorted(slices.Values(pci)) // one order for all, so that two runs do not each get half
	for i, address := range addresses {
		if i > 0 && address == addresses[i-1] {
			continue // partitions of one GPU
		}
		f, other, err := lockGPU(dir, address, holder)
		switch {
		case err != nil:
			if finding == nil {
				x := found(GPUBusy, Unknown, slices.Index(pci, address),
					"GPU %s could not be locked against a second run: %v", address, err)
				finding = &x
			}
		case other != nil:
			release()
			x := found(GPUBusy, Failed, slices.Index(pci, address), "GPU %s is in use by %s", address, other)
			return func() {}, &x
		default:
			held = append(held, f)
		}
	}
	return release, finding
}

// lockGPU takes one GPU's lock, or says who has it.
func lockGPU(dir, address string, holder Holder) (*os.File, *Holder, error) {
	if dir == "" {
		return nil, nil, errors.New("no folder for locks was named")
	}
	if !validAddress(address) {
		return nil, nil, fmt.Errorf("%q is no PCI address", address)
	}
	path := filepath.Join(dir, "rcclx-"+kernelAddress(address)+".lock")
	for range maxLockTries {
		f, err := openLock(path)
		if err != nil {
			return nil, nil, err
		}
		err = flock(f)
		if errors.Is(err, unix.EWOULDBLOCK) {
			other := readHolder(f)
			_ = f.Close()
			return nil, &other, nil
		}
		if err != nil {
			_ = f.Close()
			return nil, nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !stillThere(f, path) { // a cleaner took the name away: a lock on it would keep nobody out
			_ = f.Close()
			continue
		}
		writeHolder(f, holder)
		return f, nil, nil
	}
	return nil, nil, fmt.Errorf("%s was removed again and again", path)
}

// openLock opens the file, or makes it. It follows no link, since in a folder that everyone writes to it may be
// anyone's. An existing file is opened without O_CREAT, which the kernel forbids for other users' files there
// (fs.protected_regular).
func openLock(path string) (*os.File, error) {
	const flags = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	for range maxLockTries {
		f, err := os.OpenFile(path, os.O_RDWR|flags, 0)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
			f, err = os.OpenFile(path, os.O_RDONLY|flags, 0) // enough for the lock
		}
		if errors.Is(err, os.ErrNotExist) {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|flags, lockFileMode)
			if errors.Is(err, os.ErrExist) {
				continue
			}
			if err == nil {
				_ = f.Chmod(lockFileMode) // past the umask
			}
		}
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			_ = f.Close()
			return nil, fmt.Errorf("%s is not a regular file", path)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s comes and goes", path)
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor fits an int
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func stillThere(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, now)
}

func readHolder(f *os.File) Holder {
	data := make([]byte, maxHolderBytes)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Holder{}
	}
	return parseHolder(data[:n])
}

// parseHolder reads what a lock's file says of its holder; nothing where it says nothing that makes sense.
func parseHolder(data []byte) Holder {
	var h Holder
	if err := json.Unmarshal(data, &h); err != nil || h.ProcessID < 0 {
		return Holder{}
	}
	h.Run = strings.ToValidUTF8(h.Run[:min(len(h.Run), 128)], "")
	return h
}

// writeHolder says who has the lock. A file that this user cannot write stays as it is: the lock holds all the same.
func writeHolder(f *os.File, h Holder) {
	data, err := json.Marshal(h)
	if err != nil || f.Truncate(0) != nil {
		return
	}
	_, _ = f.WriteAt(append(data, '\n'), 0)
}

// validAddress keeps anything but a PCI address out of a file's name.
func validAddress(address string) bool {
	if address == "" || len(address) > 32 {
		return false
	}
	for _, c := range strings.ToLower(address) {
		if !strings.ContainsRune("0123456789abcdef:.", c) {
			return false
		}
	}
	return strings.Contains(address, ":")
}
