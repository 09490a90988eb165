// Package procs remembers processes so that a later command ends exactly those that were started, and never another one
// that happens to have got the same number.
package procs

import (
	"bytes"
	"encoding/json"
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

// Record is what identifies a started process: the number alone does not, because the kernel uses numbers again.
type Record struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// StartTicks since boot, field 22 of /proc/PID/stat.
	StartTicks uint64 `json:"startTicks"`
	// Argv0 as /proc/PID/cmdline begins; empty means that it is not compared (a container may set its own).
	Argv0 string `json:"argv0,omitempty"`
	// Mark is an environment entry NAME=VALUE that only this process and what it starts carry; empty means that there
	// is none. It finds those that left the session.
	Mark string `json:"mark,omitempty"`
}

// Stat is the part of /proc/PID/stat that is used here.
type Stat struct {
	PID        int
	State      byte
	PPID       int
	Session    int
	StartTicks uint64
}

// ParseStat reads a line of /proc/PID/stat. The command's name is in parentheses and may hold any character, so the
// fields are counted from the last closing one.
func ParseStat(line string) (Stat, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("stat line %q has no command in parentheses", line)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
	if err != nil {
		return Stat{}, fmt.Errorf("stat line: process number: %w", err)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("stat line of process %d has %d fields after the command, expected at least 20",
			pid, len(fields))
	}
	s := Stat{PID: pid, State: fields[0][0]}
	if s.PPID, err = strconv.Atoi(fields[1]); err != nil {
		return Stat{}, fmt.Errorf("stat line of process %d: parent: %w", pid, err)
	}
	if s.Session, err = strconv.Atoi(fields[3]); err != nil {
		return Stat{}, fmt.Errorf("stat line of process %d: session: %w", pid, err)
	}
	if s.StartTicks, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("stat line of process %d: start time: %w", pid, err)
	}
	return s, nil
}

// ReadStat reads /proc/PID/stat; the error is fs.ErrNotExist when there is no such process.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(string(data))
}

// All reads the stat of every process there is.
func All() ([]Stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Stat
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := ReadStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// New makes the record of a process that was just started.
func New(name string, pid int, argv0 string) (Record, error) {
	s, err := ReadStat(pid)
	if err != nil {
		return Record{}, fmt.Errorf("process %d (%s): %w", pid, name, err)
	}
	return Record{Name: name, PID: pid, StartTicks: s.StartTicks, Argv0: argv0}, nil
}

// Alive says whether the process that the record stands for still runs.
func (r Record) Alive() bool {
	s, err := ReadStat(r.PID)
	if err != nil || s.StartTicks != r.StartTicks || s.State == 'Z' || s.State == 'X' {
		return false
	}
	if r.Argv0 == "" {
		return true
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID))
	if err != nil {
		return false
	}
	argv0, _, _ := bytes.Cut(cmdline, []byte{0})
	return string(argv0) == r.Argv0
}

// Save writes the record to DIR/NAME.json.
func (r Record) Save(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, r.Name+".json")
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// Load reads the records in a directory; a directory that is not there holds none.
func Load(dir string) ([]Record, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		records = append(records, r)
	}
	return records, nil
}

// Members lists the processes that belong to the record's process: its session, and its descendants. A container's main
// process leads a session of its own, and children that form process groups stay in the session.
func Members(r Record, all []Stat, carries func(pid int, mark string) bool) []Stat {
	byPID := make(map[int]Stat, len(all))
	for _, s := range all {
		byPID[s.PID] = s
	}
	leader, leaderThere := byPID[r.PID]
	if leaderThere && leader.StartTicks != r.StartTicks {
		// The number went to another process, which the kernel allows only once the old session is empty. What left the
		// session is still found by the mark.
		r.PID = -1
	}
	var members []Stat
	for _, s := range all {
		if s.StartTicks < r.StartTicks {
			continue
		}
		if s.Session == r.PID || descends(s, r.PID, byPID) || carries(s.PID, r.Mark) {
			members = append(members, s)
		}
	}
	return members
}

func descends(s Stat, ancestor int, byPID map[int]Stat) bool {
	for range len(byPID) {
		if s.PID == ancestor {
			return true
		}
		parent, ok := byPID[s.PPID]
		if !ok || s.PPID == 0 {
			return false
		}
		s = parent
	}
	return false
}

func carriesMark(pid int, mark string) bool {
	if mark == "" {
		return false
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if string(entry) == mark {
			return true
		}
	}
	return false
}

// KillMembers sends SIGKILL to every process of the record's session until none is left or the deadline passes.
func KillMembers(r Record, deadline time.Duration) error {
	end := time.Now().Add(deadline)
	for {
		all, err := All()
		if err != nil {
			return err
		}
		left := 0
		for _, s := range Members(r, all, carriesMark) {
			if s.State == 'Z' || s.State == 'X' {
				continue
			}
			left++
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of %s: %w", s.PID, r.Name, err)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes of %s are still there %s after SIGKILL", left, r.Name, deadline)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Terminate sends SIGTERM to the process, waits for the grace period, and then ends it and all that belongs to it.
func Terminate(r Record, grace time.Duration) error {
	if r.Alive() {
		if err := syscall.Kill(r.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("terminate %s (process %d): %w", r.Name, r.PID, err)
		}
		for end := time.Now().Add(grace); r.Alive() && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return KillMembers(r, 10*time.Second)
}
