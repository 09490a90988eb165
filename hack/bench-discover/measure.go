package main

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// run is one measured run of a process, what it waited for included.
type run struct {
	wall, processor time.Duration
	peakKiB         int64
}

// command is what is measured.
type command struct {
	name string
	args []string
	env  []string
	// okCodes are the exit codes that count as success beside 0.
	okCodes []int
	runs    []run
	output  string
}

// once runs the command. Its error has the end of what the command printed.
func (c *command) once() error {
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env = c.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	wall := time.Since(began)
	c.output = out.String()
	if cmd.ProcessState == nil {
		return fmt.Errorf("%s did not start: %w", c.name, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 && !slices.Contains(c.okCodes, code) {
		tail := errs.Bytes()
		return fmt.Errorf("%s ended with exit code %d: %s", c.name, code, tail[max(0, len(tail)-400):])
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return fmt.Errorf("%s: the system told no resource usage", c.name)
	}
	c.runs = append(c.runs, run{wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss})
	return nil
}

// median of the numbers that of gives for each run; NaN without a run.
func median(runs []run, of func(run) float64) float64 {
	list := make([]float64, len(runs))
	for i, r := range runs {
		list[i] = of(r)
	}
	return middle(list)
}

func middle(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func wallMS(r run) float64      { return r.wall.Seconds() * 1000 }
func processorMS(r run) float64 { return r.processor.Seconds() * 1000 }
func peakMiB(r run) float64     { return float64(r.peakKiB) / 1024 }

// ratio is the median, over the rounds, of b's figure over a's in the same round: drift of the machine meets both.
func ratio(a, b []run, of func(run) float64) float64 {
	list := make([]float64, min(len(a), len(b)))
	for i := range list {
		list[i] = of(b[i]) / of(a[i])
	}
	return middle(list)
}
