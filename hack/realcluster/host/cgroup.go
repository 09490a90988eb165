package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupDeadline = 20 * time.Second
	// nodeWeight is a node's share of processor time, in the unit of cpu.shares: as much as eight processes of the
	// machine, since so many ranks run on a node. One group would have the share of one process, and starve on a
	// machine with other work.
	nodeWeight = 8 * 1024
	// unifiedWeight is the same in version 2, whose default is 100.
	unifiedWeight = 800
)

// Hierarchy is where a control group file system is mounted.
type Hierarchy struct {
	Mount string
	// Unified is version 2; Controllers are those of a version 1 hierarchy.
	Unified     bool
	Controllers []string
}

// hierarchies reads them from the text of /proc/self/mounts. Where a name comes twice, the first one counts.
func hierarchies(mounts string) []Hierarchy {
	var out []Hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			out = append(out, Hierarchy{Mount: fields[1], Unified: true})
		case "cgroup":
			h := Hierarchy{Mount: fields[1]}
			for _, option := range strings.Split(fields[3], ",") {
				if known := []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids",
					"hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc"}; contains(known, option) {
					h.Controllers = append(h.Controllers, option)
				}
			}
			out = append(out, h)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// makeGroup makes a node's group in every hierarchy, so that the kubelet finds it.
func makeGroup(all []Hierarchy, group string) error {
	for _, h := range all {
		dir := filepath.Join(h.Mount, group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make the node's control group: %w: if it is left from a cluster that is gone, "+
				"remove it with `realcluster down`", err)
		}
		if h.Unified {
			if err := delegate(h.Mount, dir); err != nil {
				return err
			}
			if err := weigh(filepath.Join(dir, "cpu.weight"), unifiedWeight); err != nil {
				return err
			}
			continue
		}
		if contains(h.Controllers, "cpu") {
			if err := weigh(filepath.Join(dir, "cpu.shares"), nodeWeight); err != nil {
				return err
			}
		}
		if contains(h.Controllers, "cpuset") {
			// A new group of version 1 has no processors, and nothing could be put into it.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				data, err := os.ReadFile(filepath.Join(h.Mount, file))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), data, 0o644)
				}
				if err != nil {
					return fmt.Errorf("give the node's control group its processors: %w", err)
				}
			}
		}
	}
	return nil
}

// weigh sets a share; a group without the controller has no such file.
func weigh(file string, weight int) error {
	if !exists(file) {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(weight)), 0o644)
}

// delegate lets a group of version 2 have every controller that the root has.
func delegate(mount, dir string) error {
	data, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var words []string
	for _, name := range strings.Fields(string(data)) {
		words = append(words, "+"+name)
	}
	if len(words) == 0 {
		return nil // the controllers are version 1's
	}
	for _, at := range []string{mount, dir} {
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte(strings.Join(words, " ")),
			0o644); err != nil {
			return fmt.Errorf("give %s its controllers: %w", at, err)
		}
	}
	return nil
}

// notGiven lists the controllers that a version 2 root group has and does not give to the groups below it, by mount.
func notGiven(all []Hierarchy) (map[string][]string, error) {
	out := map[string][]string{}
	for _, h := range all {
		if !h.Unified {
			continue
		}
		have, err1 := os.ReadFile(filepath.Join(h.Mount, "cgroup.controllers"))
		given, err2 := os.ReadFile(filepath.Join(h.Mount, "cgroup.subtree_control"))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(string(have)) {
			if !contains(strings.Fields(string(given)), name) {
				out[h.Mount] = append(out[h.Mount], name)
			}
		}
	}
	return out, nil
}

// takeBack switches them off again. What another group uses meanwhile stays on.
func takeBack(controllers map[string][]string) error {
	var failed []error
	for mount, names := range controllers {
		for _, name := range names {
			err := os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("-"+name), 0o644)
			if err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, fmt.Errorf("take controller %s back: %w", name, err))
			}
		}
	}
	return errors.Join(failed...)
}

// removeGroup removes a node's group and those below it from every hierarchy; the processes must have ended.
func removeGroup(all []Hierarchy, group string) error {
	var failed []error
	for _, h := range all {
		top := filepath.Join(h.Mount, group)
		var dirs []string
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for i := len(dirs) - 1; i >= 0; i-- { // the deepest first
			if err := removeOne(dirs[i]); err != nil {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// removeOne waits while the kernel still takes down the last processes.
func removeOne(dir string) error {
	deadline := time.Now().Add(cgroupDeadline)
	for {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s (%s processes in it): %w", dir, processesIn(dir), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func processesIn(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return "?"
	}
	return strconv.Itoa(len(strings.Fields(string(data))))
}
