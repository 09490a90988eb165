package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/rcclx"
)

// explanation is what agent explain answers.
type explanation struct {
	Flavor   rcclx.Flavor      `json:"flavor"`
	Call     rcclx.Call        `json:"call"`
	Asked    rcclx.Settings    `json:"asked"`
	Ranges   []rcclx.Range     `json:"ranges"`
	Settings []rcclx.Effective `json:"settings"`
	// Variables are the rows of the table for this flavor, Environment all that a job sets, a user's own included.
	Variables   []rcclx.SettingVariable `json:"variables"`
	Environment []rcclx.EnvVar          `json:"environment"`
	Remarks     []string                `json:"remarks,omitempty"`
}

// explainFlags are the command's flags as they were typed.
type explainFlags struct {
	flavor, collective, datatype, op, gfx, dda, lowPrecision, output string
	ddaFlatMax, ddaTreeMax                                           string
	lowPrecisionCollectives, env                                     []string
	ranks, nodes                                                     int
}

// newExplainCommand says which path calls take inside a library flavor, and why.
func newExplainCommand() *cobra.Command {
	var typed explainFlags
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say which path a collective takes inside a library flavor by message size, why, and why not another",
		Example: `  agent explain --flavor rcclx-dev --collective AllReduce --datatype bf16 --ranks 8
  agent explain --flavor rcclx-dev --collective all_gather --low-precision Preferred -o json
  agent explain --flavor rcclx-dev --env RCCL_DDA_ENABLE=1`,
		Args:         noArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if typed.output != "table" && typed.output != "json" {
				return usageError(fmt.Errorf("-o %q is not known: use table or json", typed.output))
			}
			answer, err := typed.explain()
			if err != nil {
				return usageError(err) // it answers from tables: only what was asked can be wrong
			}
			if typed.output == "json" {
				encoder := json.NewEncoder(command.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(answer)
			}
			return answer.print(command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&typed.flavor, "flavor", string(rcclx.FlavorRCCLXDev),
		"library flavor: rccl, rccl-dda, rcclx-dev, rcclx-stable or nccl")
	flags.StringVar(&typed.collective, "collective", string(rcclx.AllReduce),
		"AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllv, Broadcast, Reduce or SendRecv")
	flags.StringVar(&typed.datatype, "datatype", string(rcclx.BFloat16),
		"fp64, fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int32 or int8")
	flags.StringVar(&typed.op, "op", "Sum", "reduction: Sum, Prod, Max, Min or Avg")
	flags.IntVar(&typed.ranks, "ranks", 8, "ranks of the communicator")
	flags.IntVar(&typed.nodes, "nodes", 1, "nodes that the communicator reaches over")
	flags.StringVar(&typed.gfx, "gfx", "",
		"architecture of the GPUs, as in gfx942 (MI300X) or gfx950 (MI350X); some limits depend on it")
	flags.StringVar(&typed.dda, "dda", string(rcclx.ModePreferred), "spec.dda.mode: Disabled, Preferred or Required")
	flags.StringVar(&typed.ddaFlatMax, "dda-flat-max", "",
		"spec.dda.allReduceFlatMaxBytes, as in 64K; empty for the library's own")
	flags.StringVar(&typed.ddaTreeMax, "dda-tree-max", "",
		"spec.dda.allReduceTreeMaxBytes, as in 64M; empty for the library's own")
	flags.StringVar(&typed.lowPrecision, "low-precision", string(rcclx.ModeDisabled),
		"spec.lowPrecision.mode: Disabled, Preferred or Required")
	flags.StringSliceVar(&typed.lowPrecisionCollectives, "low-precision-collectives", nil,
		"spec.lowPrecision.collectives; none means all four")
	flags.StringArrayVar(&typed.env, "env", nil, "a variable of your own, NAME=VALUE; may be given more than once")
	flags.StringVarP(&typed.output, "output", "o", "table", "table or json")
	return command
}

func (x explainFlags) explain() (explanation, error) {
	f, err := rcclx.ParseFlavor(x.flavor)
	if err != nil {
		return explanation{}, err
	}
	call, err := x.call()
	if err != nil {
		return explanation{}, err
	}
	settings, err := x.settings()
	if err != nil {
		return explanation{}, err
	}
	ranges, err := rcclx.Explain(f, settings, call)
	if err != nil {
		return explanation{}, err
	}
	scope := rcclx.Scope{Ranks: call.Ranks, Nodes: call.Nodes, GFX: call.GFX,
		Collectives: []rcclx.Collective{call.Collective}, Datatypes: []rcclx.Datatype{call.Datatype}}
	answer := explanation{Flavor: f, Call: call, Asked: settings, Ranges: ranges,
		Settings: rcclx.Effectives(f, settings, scope), Variables: rcclx.SettingVariables(f, settings),
		Environment: rcclx.JobEnvironment(f, settings), Remarks: rcclx.Remarks(f)}
	if since := rcclx.DatatypeSince(f, call.Datatype); since > 0 {
		answer.Remarks = append(answer.Remarks,
			fmt.Sprintf("Remark: library flavor %s has %s elements from version %s.",
				f, call.Datatype, rcclx.VersionString(since)))
	}
	return answer, nil
}

// gfxName is how an architecture's name looks: gfx, the major version, then minor and stepping as in gfx90a.
var gfxName = regexp.MustCompile(`^gfx[0-9][0-9a-z]+$`)

func (x explainFlags) call() (rcclx.Call, error) {
	c, err := rcclx.ParseCollective(x.collective)
	if err != nil {
		return rcclx.Call{}, err
	}
	d, err := rcclx.ParseDatatype(x.datatype)
	if err != nil {
		return rcclx.Call{}, err
	}
	ops := []string{"Sum", "Prod", "Max", "Min", "Avg"}
	i := slices.IndexFunc(ops, func(op string) bool { return strings.EqualFold(op, x.op) })
	if i < 0 {
		return rcclx.Call{}, fmt.Errorf("--op %q is not known: use Sum, Prod, Max, Min or Avg", x.op)
	}
	gfx := strings.ToLower(x.gfx)
	if gfx != "" && !gfxName.MatchString(gfx) {
		return rcclx.Call{}, fmt.Errorf("--gfx %q is no architecture: give it as agent discover shows it, "+
			"as in gfx942 (MI300X) or gfx950 (MI350X)", x.gfx)
	}
	return rcclx.Call{Collective: c, Datatype: d, Op: ops[i], Ranks: x.ranks, Nodes: x.nodes, GFX: gfx}, nil
}

func (x explainFlags) settings() (rcclx.Settings, error) {
	var s rcclx.Settings
	var err error
	if s.DDA.Mode, err = parseMode("--dda", x.dda); err != nil {
		return s, err
	}
	if s.DDA.AllReduceFlatMaxBytes, err = parseLimit("--dda-flat-max", x.ddaFlatMax); err != nil {
		return s, err
	}
	if s.DDA.AllReduceTreeMaxBytes, err = parseLimit("--dda-tree-max", x.ddaTreeMax); err != nil {
		return s, err
	}
	if s.LowPrecision.Mode, err = parseMode("--low-precision", x.lowPrecision); err != nil {
		return s, err
	}
	for _, name := range x.lowPrecisionCollectives {
		c, err := rcclx.ParseCollective(name)
		if err != nil || !slices.Contains(rcclx.Collectives(), c) {
			return s, fmt.Errorf("--low-precision-collectives %q is not one that FP8 has: use AllReduce, AllGather, "+
				"ReduceScatter or AllToAll", name)
		}
		s.LowPrecision.Collectives = append(s.LowPrecision.Collectives, c)
	}
	s.Env, err = parseEnv(x.env)
	return s, err
}

func parseMode(flag, text string) (rcclx.Mode, error) {
	for _, m := range []rcclx.Mode{rcclx.ModeDisabled, rcclx.ModePreferred, rcclx.ModeRequired} {
		if strings.EqualFold(text, string(m)) {
			return m, nil
		}
	}
	return "", fmt.Errorf("%s %q is not known: use Disabled, Preferred or Required", flag, text)
}

func parseLimit(flag, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	limit, err := rcclx.ParseSizeBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &limit, nil
}
