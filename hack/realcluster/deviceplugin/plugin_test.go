package deviceplugin

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const testDeadline = 20 * time.Second

// kubelet is the kubelet's side of the registration.
type kubelet struct {
	api.UnimplementedRegistrationServer
	registered chan *api.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

func startKubelet(t *testing.T, dir string, k *kubelet) *grpc.Server {
	t.Helper()
	path := filepath.Join(dir, kubeletSocket)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, k)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s
}

func await(t *testing.T, k *kubelet) *api.RegisterRequest {
	t.Helper()
	select {
	case r := <-k.registered:
		return r
	case <-time.After(testDeadline):
		t.Fatalf("the plugin did not register within %s", testDeadline)
		return nil
	}
}

func TestPlugin(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugin") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &kubelet{registered: make(chan *api.RegisterRequest, 4)}
	first := startKubelet(t, dir, k)
	p := New(Config{Dir: dir, Resource: "amd.com/gpu", Devices: []string{"a", "b"}, Log: slog.New(slog.DiscardHandler),
		Allocate: func(ids []string) Allocation {
			return Allocation{Env: map[string]string{"FIRST": ids[0]}, Mounts: []Mount{{Host: "/h", Container: "/c"}}}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	r := await(t, k)
	if r.ResourceName != "amd.com/gpu" || r.Version != api.Version || r.Endpoint != socketName {
		t.Errorf("registered as %v", r)
	}

	// A kubelet that starts again has a new socket.
	first.Stop()
	startKubelet(t, dir, k)
	await(t, k)
	// It often has the number of the one that was removed.
	if err := os.Chtimes(filepath.Join(dir, kubeletSocket), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	await(t, k)

	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, socketName),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := api.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil || len(list.Devices) != 2 || list.Devices[0].Health != api.Healthy {
		t.Errorf("devices %v, %v", list, err)
	}
	answer, err := client.Allocate(ctx,
		&api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"b"}}}})
	if err != nil || len(answer.ContainerResponses) != 1 || answer.ContainerResponses[0].Envs["FIRST"] != "b" ||
		answer.ContainerResponses[0].Mounts[0].HostPath != "/h" {
		t.Errorf("allocated %v, %v", answer, err)
	}
	if _, err := client.Allocate(ctx, &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"c"}}}}); err == nil {
		t.Error("a device that is not there was allocated")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
