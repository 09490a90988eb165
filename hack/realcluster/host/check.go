package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are what the nodes run, with the Debian packages that have them.
var programs = []struct{ name, debian string }{
	{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {"ip", "iproute2"}, {"iptables", "iptables"},
	{"conntrack", "conntrack"}, {"unshare", "util-linux"}, {"mount", "mount"},
}

// InTheWayError is a reason that says nothing about the machine: another cluster runs on it, or one was not ended.
type InTheWayError struct{ error }

// Check says why this machine cannot run the cluster: nil where it can. It tries what it can try without leaving
// anything.
func Check(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root: containerd, network namespaces and mounts")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			return fmt.Errorf("%s was not found in PATH: apt-get install --no-install-recommends %s", p.name, p.debian)
		}
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !strings.Contains(string(filesystems), "\toverlay\n") {
		return errors.New("the kernel has no overlay file system (modprobe overlay), which containerd keeps images in")
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if err := checkGroups(hierarchies(string(mounts))); err != nil {
		return err
	}
	// In namespaces of its own, so that nothing is left: a mount, a bridge, a cable, and the translation of addresses.
	const attempt = `mount --make-rprivate / && mount -t tmpfs none /mnt && ip link add name cg-try type bridge &&
ip link add cg-try-0 type veth peer name cg-try-1 && iptables -t nat -A POSTROUTING -m comment --comment try -j MASQUERADE`
	if err := command(ctx, "unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "sh",
		"-c", attempt); err != nil {
		return fmt.Errorf("namespaces, mounts, bridges or iptables are not allowed here: %w", err)
	}
	if err := checkForward(ctx); err != nil {
		return err
	}
	found, err := machineRoutes()
	if err != nil {
		return err
	}
	if mark, err := bridgeAlias(bridgeName); err == nil {
		return InTheWayError{fmt.Errorf("the interface %s is there already (%q): another cluster runs, or one was "+
			"not ended: `realcluster down --state-dir DIR` with the directory it names, else `ip link delete %s`",
			bridgeName, mark, bridgeName)}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c := conflict(found, nodeNetwork, podNetwork, serviceNetwork); c != "" {
		return errors.New(c)
	}
	return nil
}

// checkGroups says what control groups lack.
func checkGroups(all []Hierarchy) error {
	have := map[string]bool{}
	for _, h := range all {
		for _, c := range h.Controllers {
			have[c] = true
		}
		if h.Unified {
			data, err := os.ReadFile(filepath.Join(h.Mount, "cgroup.controllers"))
			if err != nil {
				return err
			}
			for _, c := range strings.Fields(string(data)) {
				have[c] = true
				have["cpuacct"] = have["cpuacct"] || c == "cpu"
				have["devices"], have["freezer"] = true, true // version 2 has them without a controller
			}
		}
	}
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices"} {
		if !have[c] {
			return fmt.Errorf("there is no control group hierarchy with %q: the kubelet needs one (mount it below "+
				"/sys/fs/cgroup)", c)
		}
	}
	return nil
}

// bridgeFilter says whether frames over a bridge go through the machine's own rules for packets; without the file they
// do not.
const bridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// checkForward says that the nodes could not reach each other: their frames cross a bridge of the machine.
func checkForward(ctx context.Context) error {
	filter, err := os.ReadFile(bridgeFilter)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandDeadline)
	defer cancel()
	rules, err := exec.CommandContext(ctx, "iptables", "--list-rules", "FORWARD").Output()
	if err != nil {
		return fmt.Errorf("iptables --list-rules FORWARD: %w", err)
	}
	if why := forwardRefuses(string(filter), string(rules)); why != "" {
		return errors.New(why)
	}
	return nil
}

// forwardRefuses says why frames between nodes would be dropped, from the setting above and the rules as iptables
// prints them. Docker sets such a policy.
func forwardRefuses(filter, rules string) string {
	if trimLine(filter) != "1" {
		return ""
	}
	if strings.Contains(rules, fmt.Sprintf("-A FORWARD -i %s -o %s -j ACCEPT\n", bridgeName, bridgeName)) {
		return "" // a person has allowed them
	}
	for line := range strings.Lines(rules) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "-P" && words[1] == "FORWARD" && words[2] != "ACCEPT" {
			return fmt.Sprintf("the nodes could not reach each other: frames over a bridge go through the "+
				"machine's rules (%s is 1), and iptables' chain FORWARD has the policy %s, as Docker sets it. "+
				"Expected: ACCEPT, or a rule that accepts what comes from %s and goes there: iptables -I FORWARD -i "+
				"%s -o %s -j ACCEPT", bridgeFilter, words[2], bridgeName, bridgeName, bridgeName)
		}
	}
	return ""
}
