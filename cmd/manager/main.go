// Command manager reconciles CommGroups.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
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
	agentPullPolicy         string
	namespaces              []string
	metricsCertDir          string
	privilegedNamespaces    []string
	runPriorityClass        string
	maxConcurrent           int
	kubeAPIQPS              float32
	logLevel                string
	observeOptions
}

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "manager",
		Version: version,
		Short: "Reconciles CommGroups: plans, runs and judges RCCLX communicators, and publishes " +
			"proven settings",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.metricsPort, "metrics-port", 8443, "port of the metrics (HTTPS, with authentication and "+
		"authorization), on $POD_IP where it is set; 0 turns them off")
	f.IntVar(&o.healthPort, "health-port", 8081,
		"port of /healthz and /readyz, on $POD_IP where it is set; 0 turns them off")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "let one of several managers lead")
	f.StringVar(&o.operatorNamespace, "operator-namespace", os.Getenv("POD_NAMESPACE"),
		"namespace of the leader's lease, which serves no CommGroup; default $POD_NAMESPACE")
	f.StringVar(&o.agentImage, "agent-image", "", "image that holds /agent (required)")
	f.StringVar(&o.agentPullPolicy, "agent-image-pull-policy", "",
		"when the kubelet pulls the agent's image: Always, IfNotPresent or Never; empty leaves it to the kubelet")
	f.StringSliceVar(&o.namespaces, "namespaces", nil,
		"the only namespaces whose CommGroups are served, separated by commas; empty means all")
	f.StringVar(&o.metricsCertDir, "metrics-cert-dir", "", "folder of the metrics' certificate, with tls.crt and "+
		"tls.key; empty makes one at each start and signs it itself")
	f.StringVar(&o.defaultRuntimeImage, "default-runtime-image", "", "image of the ranks for CommGroups that name none")
	f.StringSliceVar(&o.privilegedNamespaces, "privileged-namespaces", nil,
		"namespaces whose CommGroups may use the nodes' own network (network.mode Host) and mark nodes (gating.mode "+
			"Enforce), separated by commas; default none")
	f.StringVar(&o.runPriorityClass, "run-priority-class", "",
		"PriorityClass of run pods whose CommGroup names none; empty leaves it to the cluster's default")
	f.IntVar(&o.maxConcurrent, "max-concurrent-reconciles", 4, "CommGroups worked on at once")
	f.Float32Var(&o.kubeAPIQPS, "kube-api-qps", -1,
		"requests per second to the API server; -1 leaves it to the server's own fairness")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info or error")
	o.addFlags(f)
	return cmd
}

func (o *options) validate() error {
	var errs []error
	if o.operatorNamespace == "" {
		errs = append(errs, errors.New("no operator namespace: set --operator-namespace or POD_NAMESPACE"))
	}
	if o.agentImage == "" {
		errs = append(errs,
			errors.New("no agent image: set --agent-image to the image commgroup-agent of the manager's version"))
	}
	if o.maxConcurrent < 1 {
		errs = append(errs, fmt.Errorf("--max-concurrent-reconciles is %d: it must be at least 1", o.maxConcurrent))
	}
	switch corev1.PullPolicy(o.agentPullPolicy) {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		errs = append(errs,
			fmt.Errorf("--agent-image-pull-policy is %q: expected Always, IfNotPresent or Never", o.agentPullPolicy))
	}
	errs = append(errs, controllers.CheckNamespaces(o.operatorNamespace, o.namespaces, o.privilegedNamespaces))
	return errors.Join(errs...)
}

// bindAddress binds to the pod's own address where it is known, IPv6 included; "0" turns a server off.
func bindAddress(port int) string {
	if port == 0 {
		return "0"
	}
	return net.JoinHostPort(os.Getenv("POD_IP"), strconv.Itoa(port))
}

func run(ctx context.Context, o options) error {
	if err := errors.Join(o.validate(), limitMemory()); err != nil {
		return err
	}
	level, err := zapcore.ParseLevel(o.logLevel)
	if err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	ctrl.SetLogger(zap.New(zap.JSONEncoder(), zap.Level(level)))

	now := serverclock.New(clock.RealClock{})
	restConfig, err := o.connection(now)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	direct, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	access, err := o.awaitAPI(ctx, direct)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(restConfig, o.managerOptions(scheme, access))
	if err != nil {
		return err
	}
	reconciler := controllers.New(controllers.Dependencies{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Recorder:  mgr.GetEventRecorder("commgroup-manager"),
		Clock:     now,
		Access:    access,
		Config:    o.config(),
	})
	if err := reconciler.SetupWithManager(mgr, o.maxConcurrent); err != nil {
		return err
	}
	if err := untilAnswered(ctx, "prepare the cache", pauseAtStart, func(ctx context.Context) error {
		return prepareCache(ctx, mgr.GetCache())
	}); err != nil {
		return err
	}
	if err := o.observe(mgr, ctrlmetrics.Registry); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if errors.Is(err, controllers.ErrReadableAgain) {
		ctrl.Log.Info("Ending, to serve them from the next start on", "cause", err.Error())
		return nil
	}
	return err
}

// awaitAPI waits for the API server, and checks what this manager finds there: the CRDs, and its rights in the served
// namespaces.
func (o *options) awaitAPI(ctx context.Context, direct client.Client) (access *controllers.Access, err error) {
	end, err := probesWhileWaiting(ctx, bindAddress(o.healthPort))
	if err != nil {
		return nil, err
	}
	defer end()
	if err := untilAnswered(ctx, "read the installed CRDs", pauseAtStart, func(ctx context.Context) error {
		return checkSchemas(ctx, direct, v1alpha1.SchemaRevision)
	}); err != nil {
		return nil, err
	}
	err = untilAnswered(ctx, "read the rights in the served namespaces", pauseAtStart, func(ctx context.Context) error {
		if access, err = controllers.NewAccess(ctx, direct, ctrl.Log.WithName("access"),
			o.namespaces); unanswered(err) {
			return fmt.Errorf("%w: %w", errUnanswered, err)
		}
		return err
	})
	return access, err
}

// connection is how the manager reaches the API server, whose clock goes before its own.
func (o *options) connection(now *serverclock.Clock) (*rest.Config, error) {
	c, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	c.QPS = o.kubeAPIQPS
	if o.kubeAPIQPS > 0 {
		c.Burst = int(2 * o.kubeAPIQPS)
	}
	c.UserAgent = "commgroup-manager"
	c.Wrap(now.Wrap)
	return c, nil
}

func (o *options) managerOptions(scheme *runtime.Scheme, access *controllers.Access) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme,
		Cache:  access.CacheOptions(o.operatorNamespace),
		Metrics: metricsserver.Options{
			BindAddress: bindAddress(o.metricsPort), SecureServing: true, CertDir: o.metricsCertDir,
			FilterProvider: filters.WithAuthenticationAndAuthorization, TLSOpts: []func(*tls.Config){withoutHTTP2},
		},
		PprofBindAddress:        o.pprofAddress(),
		HealthProbeBindAddress:  bindAddress(o.healthPort),
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        v1alpha1.ManagerLease,
		LeaderElectionNamespace: o.operatorNamespace,
		// The process ends when the manager does, so the lease can be handed over at once.
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{RecoverPanic: ptr.To(true)},
	}
}

// config is what the reconciler needs of the flags.
func (o *options) config() controllers.Config {
	return controllers.Config{
		AgentImage:           o.agentImage,
		AgentPullPolicy:      corev1.PullPolicy(o.agentPullPolicy),
		Namespaces:           o.namespaces,
		DefaultRuntimeImage:  o.defaultRuntimeImage,
		PrivilegedNamespaces: o.privilegedNamespaces,
		RunPriorityClass:     o.runPriorityClass,
	}
}
