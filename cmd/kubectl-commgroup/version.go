package main

import (
	"fmt"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

func newVersionCommand(o *options) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Versions of this program and of the API that the cluster serves",
		Example: "  kubectl commgroup version\n  kubectl commgroup version --client",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := &report.Terminal{Writer: cmd.OutOrStdout()}
			if _, err := fmt.Fprintf(w, "kubectl commgroup %s (%s, %s/%s), API %s, schema %d\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, v1alpha1.GroupVersion,
				v1alpha1.SchemaRevision); err != nil || clientOnly {
				return err
			}
			c, _, err := o.connect()
			if err != nil {
				return err
			}
			for _, name := range []string{"commgroups", "commruns", "commtasks", "commnodes"} {
				crd := &metav1.PartialObjectMetadata{}
				crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
					Kind: "CustomResourceDefinition"})
				full := name + "." + v1alpha1.GroupVersion.Group
				if err := c.Get(cmd.Context(), client.ObjectKey{Name: full}, crd); err != nil {
					return fmt.Errorf("reading the cluster's CRD %s: %w; install the operator's chart, or ask who "+
						"may read CustomResourceDefinitions (--client leaves the cluster out)", full, err)
				}
				if _, err := fmt.Fprintf(w, "cluster: %s schema %s\n",
					full, schemaWords(crd.Annotations[v1alpha1.AnnotationSchemaRevision])); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only this program's own version")
	return cmd
}

// schemaWords says how the cluster's schema stands to this program's.
func schemaWords(revision string) string {
	n, err := strconv.Atoi(revision)
	switch {
	case err != nil:
		return "unknown: its CRD is from before schemas were counted, or was not made by the chart"
	case n < v1alpha1.SchemaRevision:
		return revision +
			": older than this program's, so that some fields may be missing; upgrade the operator's chart"
	case n > v1alpha1.SchemaRevision:
		return revision +
			": newer than this program's, so that it does not show every field; use a newer kubectl commgroup"
	}
	return revision
}
