package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeRoot puts the node's root together and makes it this process's: the machine's programs read-only, own /var, /run
// and /tmp, the simulated /sys and /opt. Nothing else of the machine's files can be reached from the node afterwards.
// The process must be in a mount namespace of its own.
func MakeRoot(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the node's mounts private: %w", err)
	}
	// Mount points that the tree does not have; what is mounted there is read-only.
	if err := os.MkdirAll(filepath.Join(c.Tree, lockDir), 0o755); err != nil {
		return err
	}
	r := root{dir: c.Root}
	r.do("the node's root", func() error { return unix.Mount("realcluster", c.Root, "tmpfs", 0, "mode=755") })
	r.programs()
	for _, m := range []struct {
		from, to string
		write    bool
	}{
		{c.Var, "/var", true}, {c.Logs, InnerLogs, true}, {c.Settings, InnerSettings, false},
		{c.Binaries, InnerBinaries, false},
		{c.CNI, "/realcluster/cni", false}, {c.Tree, InnerTree, false}, {c.Fabric, InnerFabric, true},
	} {
		r.bind(m.from, m.to, m.write)
	}
	// Where runs on one node meet; a container finds it below its simulated root, and may write there only.
	r.tmpfs(InnerTree+lockDir, 0o1777)
	opt := filepath.Join(c.Tree, "opt")
	if _, err := os.Stat(opt); err == nil {
		r.bind(opt, "/opt", false)
	} else {
		r.folder("/opt", 0o755)
	}
	r.bind("/dev", "/dev", true)
	r.tmpfs("/dev/shm", 0o1777)
	r.tmpfs("/run", 0o755)
	r.tmpfs("/tmp", 0o1777)
	r.folder("/root", 0o700)
	r.folder("/proc", 0o555)
	r.do("/proc", func() error {
		return unix.Mount("proc", r.at("/proc"), "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "")
	})
	r.kernelSettings()
	r.sys(c)
	if r.err != nil {
		return r.err
	}
	return r.enter()
}

// root is the node's root being put together. After the first error the rest is left out.
type root struct {
	dir string
	err error
}

func (r *root) at(inner string) string { return filepath.Join(r.dir, inner) }

func (r *root) do(what string, f func() error) {
	if r.err != nil {
		return
	}
	if err := f(); err != nil {
		r.err = fmt.Errorf("%s of the node: %w", what, err)
	}
}

func (r *root) folder(inner string, mode fs.FileMode) {
	r.do(inner, func() error {
		if err := os.MkdirAll(r.at(inner), 0o755); err != nil {
			return err
		}
		return os.Chmod(r.at(inner), mode) // not what the umask makes of it
	})
}

func (r *root) tmpfs(inner string, mode uint32) {
	r.do(inner, func() error {
		if err := os.MkdirAll(r.at(inner), 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", r.at(inner), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=%o", mode))
	})
}

// bind shows a folder of the machine, with what is mounted below it.
func (r *root) bind(from, inner string, write bool) {
	r.do(inner, func() error {
		if err := os.MkdirAll(r.at(inner), 0o755); err != nil {
			return err
		}
		return bindMount(from, r.at(inner), write)
	})
}

func bindMount(from, to string, write bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s at %s: %w", from, to, err)
	}
	if write {
		return nil
	}
	return readOnly(to, true)
}

// readOnly sets or takes the flag of a mount and of all below it.
func readOnly(dir string, set bool) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if !set {
		attr = unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make %s read-only (%v): %w", dir, set, err)
	}
	return nil
}

// programs shows the folders of the machine that hold programs, libraries and their settings.
func (r *root) programs() {
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc"} {
		machine := "/" + name
		info, err := os.Lstat(machine)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			r.do(machine, func() error { return err })
		case info.Mode()&fs.ModeSymlink != 0:
			r.do(machine, func() error {
				target, err := os.Readlink(machine)
				if err != nil {
					return err
				}
				return os.Symlink(target, r.at(machine))
			})
		default:
			r.bind(machine, machine, false)
		}
	}
}

// sys shows the tree's /sys with the machine's other parts beside it, read-only but for the control groups.
func (r *root) sys(c Config) {
	tree := filepath.Join(c.Tree, "sys")
	r.do("/sys", func() error {
		ops, err := planSys(os.DirFS(tree), os.DirFS("/sys"))
		if err != nil {
			return err
		}
		mounts, err := prepareSys(tree, ops)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(r.at("/sys"), 0o555); err != nil {
			return err
		}
		if err := bindMount(tree, r.at("/sys"), true); err != nil {
			return err
		}
		for _, name := range mounts {
			if err := bindMount(filepath.Join("/sys", name), filepath.Join(r.at("/sys"), name), true); err != nil {
				return err
			}
		}
		if err := readOnly(r.at("/sys"), true); err != nil {
			return err
		}
		return readOnly(r.at("/sys/fs/cgroup"), false)
	})
}

// enter makes the new root the process's and lets go of the old one, with all its mounts.
func (r *root) enter() error {
	if err := unix.Chdir(r.dir); err != nil {
		return err
	}
	// With both names the same, the old root lies on top of the new one and is then taken off.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the node's root %s: %w", r.dir, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the machine's root: %w", err)
	}
	return unix.Chdir("/")
}
