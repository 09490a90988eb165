package simnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeTracker turns single results into a state by the probe's thresholds.
type probeTracker struct {
	success, failure int32
	// needSuccess and needFailure are the thresholds; at least 1.
	needSuccess, needFailure int32
}

func newProbeTracker(p *corev1.Probe) *probeTracker {
	return &probeTracker{needSuccess: max(p.SuccessThreshold, 1), needFailure: max(p.FailureThreshold, 1)}
}

// verdicts of a tracker.
type probeVerdict int

const (
	probeUndecided probeVerdict = iota
	probePassed
	probeFailed
)

func (t *probeTracker) observe(ok bool) probeVerdict {
	if ok {
		t.success, t.failure = t.success+1, 0
		if t.success >= t.needSuccess {
			return probePassed
		}
		return probeUndecided
	}
	t.success, t.failure = 0, t.failure+1
	if t.failure >= t.needFailure {
		return probeFailed
	}
	return probeUndecided
}

// probeTarget resolves a probe's named port.
func probePort(port intstr.IntOrString, c *corev1.Container) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("container %s has no port named %q", c.Name, port.StrVal)
}

// probeOnce carries out a probe; nil means that it passed.
func probeOnce(ctx context.Context, p *corev1.Probe, c *corev1.Container, podIP string,
	execute func(context.Context, []string) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		return probeHTTP(ctx, p.HTTPGet, c, podIP)
	case p.TCPSocket != nil:
		port, err := probePort(p.TCPSocket.Port, c)
		if err != nil {
			return err
		}
		host := podIP
		if p.TCPSocket.Host != "" {
			host = p.TCPSocket.Host
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	case p.Exec != nil:
		return execute(ctx, p.Exec.Command)
	}
	return fmt.Errorf("container %s: this kind of probe is not known to the simulated node", c.Name)
}

func probeHTTP(ctx context.Context, get *corev1.HTTPGetAction, c *corev1.Container, podIP string) error {
	port, err := probePort(get.Port, c)
	if err != nil {
		return err
	}
	host := podIP
	if get.Host != "" {
		host = get.Host
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	url := fmt.Sprintf("%s://%s/%s",
		scheme, net.JoinHostPort(host, strconv.Itoa(port)), strings.TrimPrefix(get.Path, "/"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/simulated")
	for _, h := range get.HTTPHeaders {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	// As the kubelet does: a probe does not check the certificate, and does not follow to another host.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true, Proxy: nil,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	}
	return nil
}
