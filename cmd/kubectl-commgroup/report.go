package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/htmlreport"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

func newReportCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "report NAME",
		Short: "Write one HTML file that shows all of a CommGroup offline: culprit and next step first, then plots " +
			"and the xGMI picture",
		Example: "  kubectl commgroup report mi300x                       # writes " +
			"./commgroup-NAMESPACE-mi300x.html\n" +
			"  kubectl commgroup report mi300x --html pool.html\n" +
			"  kubectl commgroup report mi300x --html - | ssh desk 'cat > pool.html'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			return reportTo(cmd.Context(), c, cmd.OutOrStdout(), namespace, args[0], file, time.Now())
		},
	}
	cmd.Flags().StringVar(&file, "html", "",
		`file to write, "-" for standard output (default: commgroup-NAMESPACE-NAME.html in the present folder)`)
	return cmd
}

// reportTo writes a group's report to a file, or to out where the file is "-".
func reportTo(ctx context.Context, c client.Client, out io.Writer, namespace, name, file string, now time.Time) error {
	group, nodes, err := load(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	unread, err := report.ReadNodes(ctx, c, nodes)
	if err != nil {
		return err
	}
	in := htmlreport.Input{Group: group, Nodes: nodes, Unread: unread, Now: now, Version: version}
	if file == "-" {
		return htmlreport.Write(out, in)
	}
	file = cmp.Or(file, fmt.Sprintf("commgroup-%s-%s.html", namespace, name))
	if err := writeWhole(file, func(w io.Writer) error { return htmlreport.Write(w, in) }); err != nil {
		return fmt.Errorf("writing the report: %w; name another file with --html", err)
	}
	if _, err = fmt.Fprintf(out, "wrote %s: open it in a browser, it needs no network\n", file); err != nil {
		return err
	}
	return report.Note(out, unread)
}

// pageSize of lists: 12,500 CommTasks in one answer would be 100 MB for the API server.
const pageSize = 500

// loadPaged reads a group and its members, these page by page.
func loadPaged(ctx context.Context, c client.Client, namespace, name string) (*state.Group, []report.Member, error) {
	group, err := state.Load(ctx, c, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return nil, nil, fmt.Errorf("reading CommGroup %s/%s: %w", namespace, name, err)
	}
	var nodes []report.Member
	for token := ""; ; {
		var list v1alpha1.CommTaskList
		if err := c.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(name)},
			client.Limit(pageSize), client.Continue(token)); err != nil {
			return nil, nil, fmt.Errorf("listing the CommTasks of %s/%s: %w", namespace, name, err)
		}
		for i := range list.Items {
			list.Items[i].ManagedFields = nil // half of the memory of a large group
		}
		nodes = append(nodes, report.Members(list.Items)...)
		if token = list.Continue; token == "" {
			return group, nodes, nil
		}
	}
}

// writeWhole writes a file that is there whole or not at all: a report cut short would look like one with nothing
// wrong.
func writeWhole(file string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+strings.TrimPrefix(filepath.Base(file), ".")+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
