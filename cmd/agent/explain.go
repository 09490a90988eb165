package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/rcclx"
)

// explanation is what agent explain answers.
type explanation struct {
	Flavor      rcclx.Flavor      `json:"flavor"`
	Call        rcclx.Call        `json:"call"`
	Environment []rcclx.EnvVar    `json:"environment"`
	Ranges      []rcclx.Range     `json:"ranges"`
	Settings    []rcclx.Effective `json:"settings"`
	Remarks     []string          `json:"remarks,omitempty"`
}

// newExplainCommand says which path calls take inside a library flavor, and why.
func newExplainCommand() *cobra.Command {
	var flavor, collective, datatype, op, dda, lowPrecision, output string
	var lowPrecisionCollectives, env []string
	var ranks, nodes int
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say which path a collective takes inside a library flavor by message size, and why",
		Example: `  agent explain --flavor rcclx-dev --collective AllReduce --datatype BFloat16 --ranks 8
  agent explain --flavor rcclx-dev --collective AllGather --low-precision Preferred -o json
  agent explain --flavor rcclx-dev --env RCCL_DDA_ENABLE=1`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			f, err := rcclx.ParseFlavor(flavor)
			if err != nil {
				return err
			}
			settings := rcclx.Settings{}
			if settings.DDA.Mode, err = parseMode("--dda", dda); err != nil {
				return err
			}
			if settings.LowPrecision.Mode, err = parseMode("--low-precision", lowPrecision); err != nil {
				return err
			}
			for _, name := range lowPrecisionCollectives {
				if !slices.Contains(rcclx.Collectives(), rcclx.Collective(name)) {
					return fmt.Errorf("--low-precision-collectives %q is not known: use AllReduce, AllGather, ReduceScatter or AllToAll", name)
				}
				settings.LowPrecision.Collectives = append(settings.LowPrecision.Collectives, rcclx.Collective(name))
			}
			for _, pair := range env {
				name, value, ok := strings.Cut(pair, "=")
				if !ok || name == "" {
					return fmt.Errorf("--env %q is not NAME=VALUE", pair)
				}
				settings.Env = append(settings.Env, rcclx.EnvVar{Name: name, Value: value})
			}
			call := rcclx.Call{Collective: rcclx.Collective(collective), Datatype: rcclx.Datatype(datatype), Op: op, Ranks: ranks, Nodes: nodes}
			answer, err := explain(f, settings, call)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				encoder := json.NewEncoder(command.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(answer)
			case "table":
				return answer.print(command.OutOrStdout())
			}
			return fmt.Errorf("-o %q is not known: use table or json", output)
		},
	}
	flags := command.Flags()
	flags.StringVar(&flavor, "flavor", string(rcclx.FlavorRCCLXDev), "library flavor: rccl, rccl-dda, rcclx-dev, rcclx-stable or nccl")
	flags.StringVar(&collective, "collective", string(rcclx.AllReduce), "AllReduce, AllGather, ReduceScatter or AllToAll")
	flags.StringVar(&datatype, "datatype", string(rcclx.BFloat16), "Float32, Float16 or BFloat16")
	flags.StringVar(&op, "op", "Sum", "reduction: Sum, Prod, Max, Min or Avg")
	flags.IntVar(&ranks, "ranks", 8, "ranks of the communicator")
	flags.IntVar(&nodes, "nodes", 1, "nodes that the communicator reaches over")
	flags.StringVar(&dda, "dda", string(rcclx.ModePreferred), "spec.dda.mode: Disabled, Preferred or Required")
	flags.StringVar(&lowPrecision, "low-precision", string(rcclx.ModeDisabled), "spec.lowPrecision.mode: Disabled, Preferred or Required")
	flags.StringSliceVar(&lowPrecisionCollectives, "low-precision-collectives", nil, "spec.lowPrecision.collectives; none means all four")
	flags.StringArrayVar(&env, "env", nil, "a variable of your own, NAME=VALUE; may be given more than once")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	return command
}

func parseMode(flag, text string) (rcclx.Mode, error) {
	m := rcclx.Mode(text)
	if slices.Contains([]rcclx.Mode{rcclx.ModeDisabled, rcclx.ModePreferred, rcclx.ModeRequired}, m) {
		return m, nil
	}
	return "", fmt.Errorf("%s %q is not known: use Disabled, Preferred or Required", flag, text)
}

func explain(f rcclx.Flavor, settings rcclx.Settings, call rcclx.Call) (explanation, error) {
	ranges, err := rcclx.Explain(f, settings, call)
	if err != nil {
		return explanation{}, err
	}
	scope := rcclx.Scope{Ranks: call.Ranks, Nodes: call.Nodes, Collectives: []rcclx.Collective{call.Collective}, Datatypes: []rcclx.Datatype{call.Datatype}}
	return explanation{Flavor: f, Call: call, Environment: rcclx.JobEnvironment(f, settings), Ranges: ranges,
		Settings: rcclx.Effectives(f, settings, scope), Remarks: rcclx.Remarks(f)}, nil
}

func (e explanation) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	p("%s %s on %d ranks over %d node(s), library flavor %s\n\n", e.Call.Collective, e.Call.Datatype, e.Call.Ranks, e.Call.Nodes, e.Flavor)
	p("FROM BYTES\tTO BYTES\tPATH\tWHY\n")
	for _, r := range e.Ranges {
		to := "-"
		if r.MaxBytes != nil {
			to = fmt.Sprint(*r.MaxBytes)
		}
		p("%d\t%s\t%s\t%s\n", r.MinBytes, to, r.Path, r.Reason)
	}
	p("\nSETTING\tREQUESTED\tEFFECTIVE\tREASON\tMESSAGE\n")
	for _, s := range e.Settings {
		p("%s\t%s\t%s\t%s\t%s\n", s.Name, s.Requested, s.State, s.Reason, s.Message)
	}
	p("\nENVIRONMENT\n")
	for _, v := range e.Environment {
		p("%s=%s\n", v.Name, v.Value)
	}
	for _, remark := range e.Remarks {
		p("\n%s\n", remark)
	}
	return w.Flush()
}
