package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/bench"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/rcclx"
)

// benchFlags are the flags as a user types them.
type benchFlags struct {
	ranks                                                             int
	devices                                                           []int
	collectives, datatypes, placements, variants, data, fp8, env      []string
	sizes, library, runtime, flatMax, treeMax, rankBinary, output, of string
	iterations, warmup                                                int
	initDeadline, stepDeadline, deadline                              time.Duration
	pairProbe, nonBlocking, quiet                                     bool
}

const (
	defaultSizes = "8:128M:4"
	benchLong    = `Measures collectives on the GPUs of this machine as rccl-tests does, without Kubernetes and without mpirun: one rank process
a GPU, each variant of settings in fresh processes on the same GPUs, every result checked. Results go to standard
output, progress and failures to standard error.

Exit codes: 0 all was measured and right; 1 wrong data, a failure, or an interruption, after what was measured is
printed; 2 wrong usage, before anything is measured.`
	benchExample = `  agent bench
  agent bench --ranks 8 --collectives AllReduce --sizes 1K:1G:2 --variants Baseline,DDA
  agent bench --collectives all --datatypes bf16,fp32 --placements both --variants Baseline,DDA -o csv > all.csv
  agent bench --library libnccl.so.2 --runtime libcudart.so --sizes 8:1G:2     # on NVIDIA GPUs`
)

// newBenchCommand measures on this machine.
func newBenchCommand() *cobra.Command {
	var f benchFlags
	command := &cobra.Command{
		Use:     "bench",
		Short:   "Measure collectives on this machine's GPUs, as a person would with rccl-tests",
		Long:    benchLong,
		Example: benchExample,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("%q is no flag: %s --help lists them", args[0], command.CommandPath()))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := f.config()
			p := reportPrinter{}
			if err == nil {
				err = p.parse(f.output, f.of)
			}
			if err != nil {
				return usageError(err)
			}
			host := preflight.PodHost{Root: os.Getenv("SIMROCM_ROOT")}
			b := &bench.Bench{Config: c,
				Teams: &supervise.Supervisor{Launcher: launcher(f.rankBinary), Clock: clock.RealClock{}}, Host: host,
				LockDir: host.LockDir(), Clock: clock.RealClock{}, Environ: os.Environ()}
			if !f.quiet {
				b.Progress = newProgress(command.ErrOrStderr())
			}
			return runBench(command.Context(), b, p, command)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	f.register(command)
	addReportFlags(command, &f.output, &f.of)
	return command
}

func (f *benchFlags) register(command *cobra.Command) {
	flags := command.Flags()
	flags.IntVar(&f.ranks, "ranks", 0,
		"ranks of the communicator; none means one for each GPU, or for each of --devices")
	flags.IntSliceVar(&f.devices, "devices", nil, "ordinals of the GPUs, by rank; none means 0 and up")
	flags.StringSliceVar(&f.collectives, "collectives", []string{string(rcclx.AllReduce)},
		"AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllv, Broadcast, Reduce, SendRecv, or all")
	flags.StringSliceVar(&f.datatypes, "datatypes", []string{string(rcclx.BFloat16)},
		"Float32, BFloat16, Float16, Float64, Float8E4M3, Float8E5M2, Int32 or Int8")
	flags.StringSliceVar(&f.placements, "placements", []string{string(rcclx.OutOfPlace)},
		"OutOfPlace, InPlace, or both")
	flags.StringVar(&f.sizes, "sizes", defaultSizes,
		"message sizes: a list (8,1K,1M), a range by factor (1K:1G:2) or by step (1M:16M:+1M)")
	flags.StringSliceVar(&f.variants, "variants", []string{string(rcclx.Baseline)},
		"Baseline, DDA, LowPrecision, or all")
	flags.StringSliceVar(&f.data, "data", nil, "data to check with, the first is also timed: Exact, Rounding, "+
		"Gradients, Activations; none means what suits the variant")
	flags.IntVar(&f.iterations, "iterations", 20, "calls that are measured at each size")
	flags.IntVar(&f.warmup, "warmup", 5, "calls before them that are not")
	flags.StringVar(&f.library, "library", "", "library to load; none means librccl.so.1 by the loader's search")
	flags.StringVar(&f.runtime, "runtime", "", "GPU runtime to load; none means libamdhip64.so by the loader's search")
	flags.StringArrayVar(&f.env, "env", nil, "variable for the ranks, NAME=VALUE; may be given more than once")
	flags.StringVar(&f.flatMax, "dda-flat-max", "",
		"largest AllReduce for DDA's flat (one-shot) path; none means the library's default")
	flags.StringVar(&f.treeMax, "dda-tree-max", "",
		"largest AllReduce for DDA's tree (two-shot) path; none means the library's default")
	flags.StringSliceVar(&f.fp8, "low-precision-collectives", nil,
		"collectives that LowPrecision switches FP8 on for; none means all four that have it")
	flags.DurationVar(&f.initDeadline, "init-deadline", 2*time.Minute, "longest forming of a communicator")
	flags.DurationVar(&f.stepDeadline, "step-deadline", 2*time.Minute,
		"longest measurement of one size, checks included")
	flags.DurationVar(&f.deadline, "deadline", time.Hour, "longest time for everything; 0 means no limit")
	flags.BoolVar(&f.pairProbe, "pair-probe", false, "also measure send and receive between all pairs of ranks")
	flags.BoolVar(&f.nonBlocking, "non-blocking", false,
		"form communicators without blocking, where the library can (2.14 and later)")
	flags.StringVar(&f.rankBinary, "rank-binary", "", "program of a rank; none means rank beside the agent")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress on standard error")
}

// launcher starts the program of --rank-binary, or the one beside the agent.
func launcher(rankBinary string) supervise.Launcher {
	if rankBinary == "" {
		return supervise.Launcher{}
	}
	return supervise.Launcher{Command: []string{rankBinary}}
}

// config reads the flags.
func (f *benchFlags) config() (c bench.Config, err error) {
	node, err := os.Hostname()
	if err != nil {
		return c, fmt.Errorf("find this machine's name: %w", err)
	}
	c = bench.Config{Node: node, Ranks: f.ranks, Devices: f.devices, Iterations: f.iterations,
		WarmupIterations: f.warmup, LibraryPath: f.library, RuntimePath: f.runtime, InitDeadline: f.initDeadline,
		StepDeadline: f.stepDeadline, Deadline: f.deadline, PairProbe: f.pairProbe, NonBlocking: f.nonBlocking}
	if c.Collectives, err = list("--collectives", f.collectives, "all", rcclx.AllCollectives(),
		rcclx.ParseCollective); err != nil {
		return c, err
	}
	if c.Datatypes, err = list("--datatypes", f.datatypes, "", nil, rcclx.ParseDatatype); err != nil {
		return c, err
	}
	if c.Placements, err = list("--placements", f.placements, "both",
		[]rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace}, rcclx.ParsePlacement); err != nil {
		return c, err
	}
	if c.Variants, err = list("--variants", f.variants, "all",
		[]rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision}, parseVariant); err != nil {
		return c, err
	}
	if c.Data, err = list("--data", f.data, "all", allData, parseData); err != nil {
		return c, err
	}
	if c.LowPrecision.Collectives, err = list("--low-precision-collectives", f.fp8, "all", rcclx.Collectives(),
		rcclx.ParseCollective); err != nil {
		return c, err
	}
	for _, collective := range c.LowPrecision.Collectives {
		if !slices.Contains(rcclx.Collectives(), collective) {
			return c, fmt.Errorf("--low-precision-collectives: %s has no FP8 transport: use AllReduce, AllGather, "+
				"ReduceScatter or AllToAll", collective)
		}
	}
	if c.SizesBytes, err = rcclx.ParseSizes(f.sizes); err != nil {
		return c, fmt.Errorf("--sizes: %w", err)
	}
	if c.DDA.AllReduceFlatMaxBytes, err = optionalSize("--dda-flat-max", f.flatMax); err != nil {
		return c, err
	}
	if c.DDA.AllReduceTreeMaxBytes, err = optionalSize("--dda-tree-max", f.treeMax); err != nil {
		return c, err
	}
	c.Env, err = parseEnv(f.env)
	return c, err
}

var allData = []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients, rcclx.DataActivations}

func parseData(text string) (rcclx.Data, error) { return oneOf(text, allData) }

func parseVariant(text string) (rcclx.Variant, error) {
	switch strings.ToLower(text) {
	case "fp8", "low-precision", "low_precision":
		return rcclx.LowPrecision, nil
	}
	return oneOf(text, []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision})
}

func oneOf[T ~string](text string, all []T) (T, error) {
	for _, v := range all {
		if strings.EqualFold(text, string(v)) {
			return v, nil
		}
	}
	return "", fmt.Errorf("%q is not known: use one of %v", text, all)
}

// list reads the words of a flag, of which one may stand for all; what is named twice counts once.
func list[T comparable](flag string, words []string, allWord string, all []T,
	parse func(string) (T, error)) ([]T, error) {
	var out []T
	for _, word := range words {
		if allWord != "" && strings.EqualFold(word, allWord) {
			return all, nil
		}
		v, err := parse(word)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out, nil
}

func optionalSize(flag, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := rcclx.ParseSizeBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &n, nil
}

func parseEnv(pairs []string) ([]rcclx.EnvVar, error) {
	var out []rcclx.EnvVar
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.ContainsAny(pair, "\x00") {
			return nil, fmt.Errorf("--env %q is not NAME=VALUE", pair)
		}
		out = append(out, rcclx.EnvVar{Name: name, Value: value})
	}
	return out, nil
}

// runBench measures, prints what was measured, and then fails where not all of it is good.
func runBench(ctx context.Context, b *bench.Bench, p reportPrinter, command *cobra.Command) error {
	report, err := b.Run(ctx)
	if ender, ok := b.Progress.(interface{ End() }); ok {
		ender.End()
	}
	if use := (*bench.UsageError)(nil); errors.As(err, &use) {
		return usageError(err)
	}
	if err != nil {
		return err
	}
	if err := p.print(command.OutOrStdout(), report); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	stderr := command.ErrOrStderr()
	for _, text := range p.unsaid(report) {
		_, _ = fmt.Fprintln(stderr, "Warning:", text)
	}
	if p.output == "csv" { // the other forms say it
		if report.Simulated {
			_, _ = fmt.Fprintln(stderr, "SIMULATED: no GPU was measured; every time comes from a model")
		}
	}
	return p.verdict(report, command)
}

// verdict is the error that gives the exit code. It says why the run failed where the form printed did not.
func (p reportPrinter) verdict(report results.Report, command *cobra.Command) error {
	if f := report.Failure; f != nil {
		write := f.WriteFailure
		if p.output == "table" {
			write = f.WriteFailureDetails
		}
		_ = write(command.ErrOrStderr())
		if f.Code == rank.CodeBadSpec {
			return &exitError{code: 2}
		}
		return &exitError{code: 1}
	}
	if !report.Good() {
		return &exitError{code: 1, message: notGood(report) + "; " + onWrongData(report)}
	}
	return nil
}

// onWrongData says what to do about wrong elements.
func onWrongData(report results.Report) string {
	baseline, measuredBaseline := false, false
	for _, r := range report.Results {
		measuredBaseline = measuredBaseline || r.Variant == rcclx.Baseline
		baseline = baseline || r.Variant == rcclx.Baseline && r.Unexplained() > 0
	}
	inPairs := slices.ContainsFunc(report.Pairs, func(p results.Pair) bool { return p.WrongElements > 0 })
	if measuredBaseline && !baseline && !inPairs {
		return "Baseline is right, so it is the variant's way: do not use it here"
	}
	return "run no jobs on these GPUs, and measure halves of them with --devices to see which one it follows"
}
