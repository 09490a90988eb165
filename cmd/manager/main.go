// Command manager reconciles CommGroups.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
	"rcclx.io/commgroup-operator/internal/serverclock"
)

// version is set by the build.
var version = "dev"

type options struct {
	metricsPort, healthPort int
	leaderElect             bool
	operatorNamespace       string
	agentImage              string
	defaultRuntimeImage     string
	privilegedNamespaces    []string
	runPriorityClass        string
	maxConcurrent           int
	kubeAPIQPS              float32
	logLevel                string
}

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "manager",
		Version:       version,
		Short:         "Reconciles CommGroups: plans, runs and judges RCCLX communicators, and publishes proven settings",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return run(o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.metricsPort, "metrics-port", 8443, "port of the metrics (HTTPS, with authentication and authorization), on $POD_IP where it is set; 0 turns them off")
	f.IntVar(&o.healthPort, "health-port", 8081, "port of /healthz and /readyz, on $POD_IP where it is set; 0 turns them off")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "let one of several managers lead")
	f.StringVar(&o.operatorNamespace, "operator-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the monitors and of the leader's lease; default $POD_NAMESPACE")
	f.StringVar(&o.agentImage, "agent-image", "", "image that holds /agent (required)")
	f.StringVar(&o.defaultRuntimeImage, "default-runtime-image", "", "image of the ranks for CommGroups that name none")
	f.StringSliceVar(&o.privilegedNamespaces, "privileged-namespaces", nil, "namespaces whose CommGroups may use the nodes' own network (network.mode Host) and mark nodes (gating.mode Enforce), separated by commas; default none")
	f.StringVar(&o.runPriorityClass, "run-priority-class", "", "PriorityClass of run pods whose CommGroup names none; empty leaves it to the cluster's default")
	f.IntVar(&o.maxConcurrent, "max-concurrent-reconciles", 4, "CommGroups worked on at once")
	f.Float32Var(&o.kubeAPIQPS, "kube-api-qps", -1, "requests per second to the API server; -1 leaves it to the server's own fairness")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info or error")
	return cmd
}

func (o *options) validate() error {
	var errs []error
	if o.operatorNamespace == "" {
		errs = append(errs, errors.New("no operator namespace: set --operator-namespace or POD_NAMESPACE"))
	}
	if o.agentImage == "" {
		errs = append(errs, errors.New("no agent image: set --agent-image to the image commgroup-agent of the manager's version"))
	}
	if o.maxConcurrent < 1 {
		errs = append(errs, fmt.Errorf("--max-concurrent-reconciles is %d: it must be at least 1", o.maxConcurrent))
	}
	return errors.Join(errs...)
}

// bindAddress binds to the pod's own address where it is known, IPv6 included; "0" turns a server off.
func bindAddress(port int) string {
	if port == 0 {
		return "0"
	}
	return net.JoinHostPort(os.Getenv("POD_IP"), strconv.Itoa(port))
}

func run(o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	level, err := zapcore.ParseLevel(o.logLevel)
	if err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	ctrl.SetLogger(zap.New(zap.JSONEncoder(), zap.Level(level)))

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	restConfig.QPS = o.kubeAPIQPS
	if o.kubeAPIQPS > 0 {
		restConfig.Burst = int(2 * o.kubeAPIQPS)
	}
	restConfig.UserAgent = "commgroup-manager"
	now := serverclock.New(clock.RealClock{})
	restConfig.Wrap(now.Wrap)

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Cache:  controllers.CacheOptions(o.operatorNamespace),
		Metrics: metricsserver.Options{
			BindAddress: bindAddress(o.metricsPort), SecureServing: true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:  bindAddress(o.healthPort),
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        "commgroup-manager.rcclx.io",
		LeaderElectionNamespace: o.operatorNamespace,
		// The process ends when the manager does, so the lease can be handed over at once.
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{RecoverPanic: ptr.To(true)},
	})
	if err != nil {
		return err
	}
	reconciler := &controllers.CommGroupReconciler{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Recorder:  mgr.GetEventRecorder("commgroup-manager"),
		Clock:     now,
		Config: controllers.Config{
			OperatorNamespace:    o.operatorNamespace,
			AgentImage:           o.agentImage,
			DefaultRuntimeImage:  o.defaultRuntimeImage,
			PrivilegedNamespaces: o.privilegedNamespaces,
			RunPriorityClass:     o.runPriorityClass,
		},
	}
	if err := reconciler.SetupWithManager(mgr, o.maxConcurrent); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
