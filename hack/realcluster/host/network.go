package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
)

const (
	commandDeadline = 30 * time.Second
	// loadDeadline is what a node gets to unpack an image, with the others on one disk.
	loadDeadline = 5 * time.Minute
)

func trimLine(s string) string { return strings.TrimRight(s, "\n") }

// command runs a program; the error has what it printed.
func command(ctx context.Context, program string, args ...string) error {
	return commandWithin(ctx, commandDeadline, program, args...)
}

func commandWithin(ctx context.Context, deadline time.Duration, program string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("it did not end within %s", deadline))
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func ip(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if err := command(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// routes reads the networks of /proc/net/route; the default route is none of them.
func routes(table string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for i, line := range slices.Collect(strings.Lines(table)) {
		fields := strings.Fields(line)
		if i == 0 || len(fields) == 0 {
			continue
		}
		if len(fields) < 8 {
			return nil, fmt.Errorf("line %d of /proc/net/route has %d columns, expected at least 8: %q",
				i+1, len(fields), line)
		}
		destination, err1 := littleEndian(fields[1])
		mask, err2 := littleEndian(fields[7])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("line %d of /proc/net/route: %w", i+1, err)
		}
		bits := 0
		for _, b := range mask.AsSlice() {
			for ; b&0x80 != 0; b <<= 1 {
				bits++
			}
		}
		if bits > 0 {
			out = append(out, netip.PrefixFrom(destination, bits))
		}
	}
	return out, nil
}

// littleEndian reads an address as the kernel prints it on such machines: 0100007F is 127.0.0.1.
func littleEndian(text string) (netip.Addr, error) {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) != 8 {
		return netip.Addr{}, fmt.Errorf("address %q is not eight hexadecimal digits", text)
	}
	return netip.AddrFrom4([4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}), nil
}

// machineRoutes are the networks that the machine has routes to.
func machineRoutes() ([]netip.Prefix, error) {
	table, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, err
	}
	return routes(string(table))
}

// conflict names a route of the machine that these networks would hide.
func conflict(machine []netip.Prefix, networks ...string) string {
	for _, ours := range networks {
		for _, theirs := range machine {
			if theirs.Overlaps(netip.MustParsePrefix(ours)) {
				return fmt.Sprintf("this machine has a route to %s, and the cluster would use %s", theirs, ours)
			}
		}
	}
	return ""
}

// makeBridge makes the nodes' network. The bridge is marked at once, so that a later command knows whose it is.
func makeBridge(ctx context.Context, state cluster.State, p Plan) error {
	if mark, err := bridgeAlias(p.Bridge); err == nil {
		return fmt.Errorf("the interface %s is there already (%q): if it is another cluster's, end that with "+
			"`realcluster down --state-dir`, else remove it with `ip link delete %s`", p.Bridge, mark, p.Bridge)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return ip(ctx,
		[]string{"link", "add", "name", p.Bridge, "type", "bridge"},
		[]string{"link", "set", p.Bridge, "alias", alias(state)},
		[]string{"address", "add", fmt.Sprintf("%s/%d", p.Gateway, p.Bits), "dev", p.Bridge},
		[]string{"link", "set", p.Bridge, "up"})
}

// plugIn gives a node its cable and the machine a route to the node's pods.
func plugIn(ctx context.Context, p Plan, n NodePlan, pid int) error {
	return ip(ctx,
		[]string{"link", "add", n.Veth, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)},
		[]string{"link", "set", n.Veth, "master", p.Bridge, "up"},
		[]string{"route", "add", n.PodSubnet.String(), "via", n.IP.String()})
}

// removeNetwork removes the bridge, which takes the routes along, and cables whose node's end is not gone yet. A bridge
// that another cluster made stays.
func removeNetwork(ctx context.Context, state cluster.State, p Plan) error {
	mark, err := bridgeAlias(p.Bridge)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case mark != alias(state):
		return nil
	}
	var failed []error
	for _, n := range p.Nodes {
		// A cable goes with its node's network, which the kernel takes down on its own time.
		if _, err := os.Stat("/sys/class/net/" + n.Veth); err == nil {
			if err := ip(ctx, []string{"link", "delete", n.Veth}); err != nil && exists("/sys/class/net/"+n.Veth) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(append(failed, ip(ctx, []string{"link", "delete", p.Bridge}))...)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
