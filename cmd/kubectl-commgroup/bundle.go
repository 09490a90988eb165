package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/supportbundle"
)

func newBundleCommand(o *options) *cobra.Command {
	var file string
	var bundle supportbundle.Options
	cmd := &cobra.Command{
		Use: "support-bundle NAME",
		Short: "Gather what a supporter needs into one archive: objects, logs, events and the HTML " +
			"report, and no secrets",
		Long: "Gather what a supporter needs into one archive: objects, logs, events and the HTML report.\n\n" +
			"No Secret is read; values of environment variables other than the library's, " +
			"the ROCm runtime's and the operator's are taken out, and so is what looks like a token or password. " +
			"Names of nodes, namespaces and images are in it: look through it before you pass it on.\n\n" +
			"Exit codes: 0 everything was gathered, 1 the archive was written and lacks what is listed, " +
			"2 there is no archive.",
		Example: "  kubectl commgroup support-bundle mi300x\n  kubectl commgroup support-bundle mi300x -o " +
			"pool.tar.gz --timeout 10m",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, namespace, err := o.restConfig()
			if err != nil {
				return err
			}
			cluster.QPS, cluster.Burst = 50, 100 // the default of 5 a second makes minutes of a large group
			kube, err := kubernetes.NewForConfig(cluster)
			if err != nil {
				return fmt.Errorf("connecting to %s: %w", cluster.Host, err)
			}
			groups, _, err := o.connect()
			if err != nil {
				return err
			}
			bundle.Namespace, bundle.Name, bundle.Version, bundle.Now = namespace, args[0], version, time.Now()
			bundle.Progress = func(line string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), "  "+line) }
			return writeBundle(cmd.Context(), supportbundle.Clients{Kube: kube, Groups: groups}, bundle, file,
				&report.Terminal{Writer: cmd.OutOrStdout()})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "output", "o", "",
		"file to write (default: commgroup-NAMESPACE-NAME-TIME.tar.gz in the present folder)")
	flags.DurationVar(&bundle.Deadline, "timeout", 3*time.Minute,
		"for the whole bundle; what is not there by then is listed as missing")
	flags.DurationVar(&bundle.ItemDeadline, "item-timeout", 20*time.Second, "for each part")
	flags.IntVar(&bundle.LogBytes, "log-bytes", 1<<20, "of the end of each container's log")
	flags.IntVar(&bundle.MaxPods, "max-pods", 40, "pods of each kind whose logs are taken, those that failed first")
	flags.IntVar(&bundle.MaxNodes, "max-nodes", 256, "nodes whose objects are taken, the worst first")
	flags.StringVar(&bundle.SystemNamespace, "system-namespace", "commgroup-system",
		"where the manager runs, if you may not list Deployments of all namespaces")
	return cmd
}

// writeBundle gathers and writes; what is missing is listed, and ends the command with exit code 1.
func writeBundle(ctx context.Context, c supportbundle.Clients, o supportbundle.Options, file string,
	out io.Writer) error {
	b, err := supportbundle.Collect(ctx, c, o)
	if err != nil {
		return err
	}
	folder := fmt.Sprintf("commgroup-%s-%s-%s", o.Namespace, o.Name, o.Now.UTC().Format("20060102T150405Z"))
	file = cmp.Or(file, folder+".tar.gz")
	if err := writeWhole(file, func(w io.Writer) error { return b.Write(w, folder, o.Now) }); err != nil {
		return fmt.Errorf("writing the bundle: %w; name another file with -o", err)
	}
	if _, err := fmt.Fprintf(out, "wrote %s with %d files: begin with summary.md and report.html in it\n",
		file, len(b.Files)); err != nil {
		return err
	}
	if len(b.Missing) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "%d parts are missing:\n", len(b.Missing)); err != nil {
		return err
	}
	for _, m := range b.Missing {
		if _, err := fmt.Fprintf(out, "  %s (%s): %s\n", m.Path, m.What, m.Why); err != nil {
			return err
		}
	}
	return errNotReady
}
