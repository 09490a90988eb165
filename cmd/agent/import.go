package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/results/perftests"
	"rcclx.io/commgroup-operator/rcclx"
)

// usageError is an error in what a user asked for: exit code 2.
func usageError(err error) error { return &exitError{code: 2, message: err.Error()} }

// newImportCommand reads the output of rccl-tests and nccl-tests.
func newImportCommand() *cobra.Command {
	var from, collective, output, statistic string
	command := &cobra.Command{
		Use:   "import FILE...",
		Short: "Read the output of rccl-tests or nccl-tests, text or JSON, into agent bench's form",
		Long: "Reads what rccl-tests and nccl-tests print, their files (rccl-tests -Z json and -Z csv, -J of both), " +
			"and what agent bench\n" +
			"wrote as JSON; - is standard input. Prefixes of launchers and logs are removed, logs between the lines " +
			"are skipped. What is\n" +
			"left out, and why, is said in warnings.\n" +
			"Exits with 0 where every run is whole and has no wrong element, with 1 where not, where the program " +
			"itself counts a value out\n" +
			"of bounds or fails its bandwidth check, or where a file has no run, with 2 for wrong usage.",
		Example: `  agent import all_reduce.txt
  mpirun -np 8 all_reduce_perf -b 8 -e 1G -f 2 | agent import - -o csv
  agent import old.log --collective AllReduce -o json`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(fmt.Errorf("give at least one file, or - for standard input: %s", command.UseLine()))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			o := perftests.Options{}
			var err error
			if o.Format, err = perftests.ParseFormat(from); err != nil {
				return usageError(fmt.Errorf("--from: %w", err))
			}
			if collective != "" {
				if o.Collective, err = rcclx.ParseCollective(collective); err != nil {
					return usageError(fmt.Errorf("--collective: %w", err))
				}
			}
			p := reportPrinter{list: true}
			if err := p.parse(output, statistic); err != nil {
				return usageError(err)
			}
			return importFiles(command.Context(), args, o, p, command.InOrStdin(), command.OutOrStdout(),
				command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", string(perftests.Auto), "format of the files: auto, text, json or csv")
	flags.StringVar(&collective, "collective", "",
		"collective of text that does not name its program, as older rccl-tests do not")
	addReportFlags(command, &output, &statistic)
	return command
}

func addReportFlags(command *cobra.Command, output, statistic *string) {
	command.Flags().StringVarP(output, "output", "o", "table", "table, json or csv")
	command.Flags().StringVar(statistic, "statistic", string(results.Median),
		"latency that the table's time and bandwidths are of: median, min, max, p95 or mean")
}

// reportPrinter prints reports in the form asked for.
type reportPrinter struct {
	output    string
	statistic results.Statistic
	// list prints JSON as a list, however many reports there are.
	list bool
}

func (p *reportPrinter) parse(output, statistic string) error {
	switch output {
	case "table", "json", "csv":
		p.output = output
	default:
		return fmt.Errorf("-o %q is not known: use table, json or csv", output)
	}
	var err error
	if p.statistic, err = results.ParseStatistic(statistic); err != nil {
		return fmt.Errorf("--statistic: %w", err)
	}
	return nil
}

func (p reportPrinter) print(out io.Writer, reports ...results.Report) error {
	switch {
	case p.output == "csv":
		return results.WriteCSV(out, reports...)
	case p.output == "json" && (p.list || len(reports) != 1):
		return results.WriteJSON(out, reports)
	case p.output == "json":
		return results.WriteJSON(out, reports[0])
	}
	return results.WriteTable(out, results.TableOptions{Statistic: p.statistic}, reports...)
}

// unsaid is what a user must know of a report and the form printed does not say: CSV has rows for results alone.
func (p reportPrinter) unsaid(r results.Report) []string {
	if p.output != "csv" {
		return nil
	}
	texts := slices.Clone(r.Warnings)
	if len(r.Pairs) > 0 {
		texts = append(texts, "pairs are not in CSV: use -o json or -o table")
	}
	return texts
}

// importFiles reads all files, prints what they hold, and then fails where one holds nothing or a run is not good. When
// ctx ends, what was read until then is printed, and the rest is not waited for.
func importFiles(ctx context.Context, names []string, o perftests.Options, p reportPrinter, stdin io.Reader,
	stdout, stderr io.Writer) error {
	reports := []results.Report{}
	var bad []string
	for _, name := range names {
		read, err := importFile(ctx, name, o, stdin)
		if err != nil {
			bad = append(bad, err.Error())
		}
		reports = append(reports, read...)
		if ctx.Err() != nil {
			break
		}
	}
	if len(reports) > 0 || p.output != "table" {
		if err := p.print(stdout, reports...); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	for _, r := range reports {
		for _, text := range p.unsaid(r) {
			_, _ = fmt.Fprintf(stderr, "Warning: %s\n", results.Printable(r.Input+": "+text))
		}
		if r.Failure != nil {
			bad = append(bad, r.Input+": "+r.Failure.Message)
		}
		if text := notGood(r); text != "" {
			bad = append(bad, fmt.Sprintf("%s: %s", r.Input, text))
		}
	}
	if len(bad) > 0 {
		for i, text := range bad { // names and messages of a file are anybody's
			bad[i] = results.Printable(strings.Join(strings.Fields(text), " "))
		}
		return &exitError{code: 1, message: strings.Join(bad, "\n       ")}
	}
	return nil
}

func plural(n int64, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// notGood says what is wrong with a run's results, beside its failure; empty where nothing is.
func notGood(r results.Report) string {
	if len(r.Results)+len(r.Pairs) == 0 {
		if r.Failure != nil {
			return ""
		}
		return "no result was taken"
	}
	var wrong, of int64
	first := ""
	add := func(n int64, what string) {
		if n <= 0 {
			return
		}
		if first == "" {
			first = what
		}
		wrong += n
		of++
	}
	for _, x := range r.Results {
		add(x.Unexplained(), strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s %d B",
			x.Variant, x.Collective, x.Datatype, x.Op, x.Placement, x.SizeBytes)), " "))
	}
	for _, x := range r.Pairs {
		add(x.WrongElements, fmt.Sprintf("send and receive between ranks %d and %d", x.RankA, x.RankB))
	}
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("wrong data: %s in %s, expected none; the first is %s",
		plural(wrong, "element"), plural(of, "result"), first)
}

func importFile(ctx context.Context, name string, o perftests.Options, stdin io.Reader) ([]results.Report, error) {
	title, open := name, func() (io.ReadCloser, error) { return os.Open(name) }
	if name == "-" {
		title, open = "standard input", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }
	}
	input := endWith(ctx, open)
	defer func() { _ = input.Close() }()
	reports, err := perftests.Parse(title, input, o)
	if ctx.Err() != nil {
		return reports, fmt.Errorf("%s: interrupted before its end was read: what stands before is kept", title)
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path // it names the file, too
	}
	return reports, err
}

// endWith gives what open opens up to its end, or up to where it was read when ctx ended. Opening and reading of a pipe
// or terminal cannot be called off, so another goroutine does them; one that waits is left behind at the process's end.
func endWith(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.Close() })
	go func() {
		f, err := open()
		if err == nil {
			defer func() { _ = f.Close() }()
			_, err = io.Copy(w, f)
		}
		_ = w.CloseWithError(err)
	}()
	return r
}
