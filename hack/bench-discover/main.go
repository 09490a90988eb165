// Command bench-discover measures agent discover as a whole process and holds it, in time and in content, against
// rocm-smi --showtopo on the same simulated nodes. compare.sh beside it installs what it needs.
//
// It mounts the nodes' trees over /sys, and so needs root and runs in a mount namespace of its own: it starts itself
// again in one, and refuses to mount anything where it is not in one. Nothing outside of it changes, and it ends with
// the process.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// outsideVariable holds the name of the mount namespace that the first process is in.
const outsideVariable = "BENCH_DISCOVER_OUTSIDE"

type options struct {
	agent   string
	rounds  int
	rocmSMI []string
}

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-discover:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	var o options
	flags := flag.NewFlagSet("bench-discover", flag.ContinueOnError)
	flags.StringVar(&o.agent, "agent", "bin/agent", "the agent to measure (make build)")
	flags.IntVar(&o.rounds, "rounds", 15, "measured runs of each command, in turns")
	flags.Func("rocm-smi", "a rocm-smi to hold it against; may be repeated; rocm-smi of the PATH by default",
		func(path string) error {
			o.rocmSMI = append(o.rocmSMI, path)
			return nil
		})
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if o.rounds < 1 || flags.NArg() > 0 {
		return errors.New("--rounds must be 1 or more, and there are no other arguments")
	}
	if o.rocmSMI == nil {
		o.rocmSMI = []string{"rocm-smi"}
	}
	var err error
	if o.agent, err = filepath.Abs(o.agent); err != nil {
		return err
	}
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	outside := os.Getenv(outsideVariable)
	if outside == "" {
		return again(args, here)
	}
	if outside == here {
		return fmt.Errorf("still in the mount namespace %s that it started in: nothing is mounted", here)
	}
	return o.measure(os.Stdout)
}

// again runs this program in a mount namespace of its own. The Go runtime makes all mounts in it private first.
func again(args []string, namespace string) error {
	if os.Geteuid() != 0 {
		return errors.New("it must mount trees over /sys in a mount namespace of its own: run it as root")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), outsideVariable+"="+namespace)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the child gets its signal when the thread that made it ends
	return cmd.Run()
}

func (o *options) measure(w io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-discover")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unix.Mount("bench-discover", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", dir, err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	fmt.Fprintf(w, "Simulated trees on tmpfs, %d rounds in turns after one that is not counted; medians. "+
		"The peak of a process counts from this program's\nown %.0f MiB up (a child begins with its parent's).\n",
		o.rounds, ownPeakMiB())
	for i := range systems {
		if err := o.system(w, &systems[i], filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return fmt.Errorf("%s: %w", systems[i].name, err)
		}
	}
	return nil
}

func ownPeakMiB() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return float64(usage.Maxrss) / 1024
}

// system measures and compares on one tree.
func (o *options) system(w io.Writer, s *system, dir string) error {
	if err := s.write(dir); err != nil {
		return err
	}
	if err := unix.Mount(filepath.Join(dir, "sys"), "/sys", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the tree over /sys: %w", err)
	}
	defer func() { _ = unix.Unmount("/sys", unix.MNT_DETACH) }()
	fmt.Fprintf(w, "\n== %s\n", s.name)
	// Exit code 3: the node has a problem, as some of these have.
	ours := &command{name: "agent discover -o json", args: []string{o.agent, "discover", "--root", dir, "-o", "json"},
		okCodes: []int{3, 4}}
	table := &command{name: "agent discover", args: []string{o.agent, "discover", "--root", dir}, okCodes: []int{3, 4}}
	nothing := &command{name: "agent --help (start alone)", args: []string{o.agent, "--help"}}
	all := []*command{table, ours, nothing}
	for _, path := range o.rocmSMI {
		all = append(all, &command{name: path + " --showtopo", args: []string{path, "--showtopo"}})
	}
	rounds := 0
	if s.timed {
		rounds = o.rounds
	}
	for round := range rounds + 1 {
		for _, c := range all {
			if err := c.once(); err != nil {
				return err
			}
			if round == 0 {
				c.runs = nil
			}
		}
	}
	if s.timed {
		fmt.Fprintf(w, "%-44s %9s %9s %9s %s\n",
			"", "wall ms", "cpu ms", "peak MiB", "wall and cpu, times those of agent discover")
		for _, c := range all {
			fmt.Fprintf(w, "%-44s %9.1f %9.1f %9.1f %.1f  %.1f\n",
				shorten(c.name), median(c.runs, wallMS), median(c.runs, processorMS),
				median(c.runs, peakMiB), ratio(table.runs, c.runs, wallMS), ratio(table.runs, c.runs, processorMS))
		}
	}
	var f facts
	if err := json.Unmarshal([]byte(ours.output), &f); err != nil {
		return fmt.Errorf("facts of agent discover: %w", err)
	}
	order, err := cards(dir)
	if err != nil {
		return err
	}
	for _, c := range all[3:] {
		if err := content(w, c, &f, order); err != nil {
			return err
		}
	}
	return nil
}

// shorten keeps the end of a long name.
func shorten(name string) string {
	const most = 44
	if len(name) <= most {
		return name
	}
	return "…" + name[len(name)-most+1:]
}

// content says where the tables of a rocm-smi and ours differ.
func content(w io.Writer, c *command, f *facts, order []string) error {
	theirs, err := parseTopology(c.output)
	if err != nil {
		fmt.Fprintf(w, "%s: no topology (%v)\n", c.name, err)
		return nil
	}
	devices := 0
	for i := range f.GPUs {
		devices += len(f.GPUs[i].Nodes)
	}
	shown := len(theirs.Weight)
	if shown != devices && shown != len(order) {
		fmt.Fprintf(w, "%s shows %d devices, ours %d: not comparable\n", c.name, shown, devices)
		return nil
	}
	ours, err := f.topology(order, shown == devices)
	if err != nil {
		return err
	}
	if len(ours.Weight) != shown {
		fmt.Fprintf(w, "%s shows %d devices, ours has %d at its cards: not comparable\n",
			c.name, shown, len(ours.Weight))
		return nil
	}
	fmt.Fprintf(w, "%s shows %d of %d devices; differences:", c.name, shown, devices)
	var parts []string
	for _, d := range compare(ours, theirs) {
		text := fmt.Sprintf(" %s %d of %d", d.table, d.different, d.cells)
		if d.example != "" {
			text += " (" + d.example + ")"
		}
		parts = append(parts, text)
	}
	fmt.Fprintln(w, strings.Join(parts, ";"))
	return nil
}
