// Package deviceplugin offers simulated devices to a kubelet over its device plugin API, v1beta1.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socketName       = "simulated-gpu.sock"
	kubeletSocket    = "kubelet.sock"
	registerDeadline = 10 * time.Second
	lookInterval     = time.Second
)

// Mount is a folder of the node that a container gets, writable.
type Mount struct{ Host, Container string }

// Allocation is what a container with devices gets.
type Allocation struct {
	Env    map[string]string
	Mounts []Mount
}

// Config of a plugin.
type Config struct {
	// Dir is the kubelet's folder of plugins.
	Dir      string
	Resource string
	// Devices are their names; all are healthy.
	Devices []string
	// Allocate says what the container that gets some of them is given.
	Allocate func(ids []string) Allocation
	Log      *slog.Logger
}

// Plugin is a device plugin.
type Plugin struct {
	api.UnimplementedDevicePluginServer
	config Config
}

// New makes a plugin.
func New(c Config) *Plugin { return &Plugin{config: c} }

// Run serves until the context ends. It registers whenever a kubelet's socket is new: a kubelet that restarts removes
// all plugins' sockets, and expects them to come back.
func (p *Plugin) Run(ctx context.Context) error {
	if err := os.MkdirAll(p.config.Dir, 0o750); err != nil {
		return err
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var registered fs.FileInfo
	stop := func() {}
	defer func() { stop() }()
	for {
		now, err := os.Stat(filepath.Join(p.config.Dir, kubeletSocket))
		if err == nil && (registered == nil || !sameSocket(now, registered)) {
			stop()
			if stop, err = p.serve(); err != nil {
				return err
			}
			if err := p.register(ctx); err != nil {
				// The kubelet may have made its socket and not be ready yet; the next look tries again.
				p.config.Log.Info("not registered yet", "resource", p.config.Resource, "error", err)
			} else {
				p.config.Log.Info("registered", "resource", p.config.Resource, "devices", len(p.config.Devices))
				registered = now
			}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sameSocket looks at the time, too: a new file often gets the number of the one that was removed.
func sameSocket(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

func (p *Plugin) serve() (stop func(), err error) {
	path := filepath.Join(p.config.Dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return func() {}, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return func() {}, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() {
		if err := server.Serve(listener); err != nil {
			p.config.Log.Error("the plugin's server ended", "error", err)
		}
	}()
	return server.Stop, nil
}

func (p *Plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.config.Dir, kubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socketName, ResourceName: p.config.Resource,
		Options: &api.DevicePluginOptions{},
	})
	return err
}

// GetDevicePluginOptions implements the API: no optional call is wanted.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements the API: all devices, which stay as they are.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var response api.ListAndWatchResponse
	for _, id := range p.config.Devices {
		response.Devices = append(response.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(&response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate implements the API.
func (p *Plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	var response api.AllocateResponse
	for _, c := range r.GetContainerRequests() {
		ids := c.GetDevicesIds()
		for _, id := range ids {
			if !slices.Contains(p.config.Devices, id) {
				return nil, fmt.Errorf("device %q is not one of this node's %d", id, len(p.config.Devices))
			}
		}
		a := p.config.Allocate(ids)
		container := &api.ContainerAllocateResponse{Envs: maps.Clone(a.Env)}
		for _, m := range a.Mounts {
			container.Mounts = append(container.Mounts, &api.Mount{HostPath: m.Host, ContainerPath: m.Container})
		}
		response.ContainerResponses = append(response.ContainerResponses, container)
	}
	return &response, nil
}
