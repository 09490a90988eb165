package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

// nodeGrace is what a node's first process gets to end by itself; all else of the node ends with it.
const nodeGrace = 3 * time.Second

// Down ends and removes what the plan in the state directory names, then the control plane and the directory. It can be
// called again after a failure, and a directory that is not there is no error.
func Down(ctx context.Context, state cluster.State, log func(format string, args ...any)) error {
	plan, err := LoadPlan(state)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cluster.Down(state, log)
	case err != nil:
		return err
	}
	records, err := procs.Load(state.RunDir())
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range plan.Nodes {
		for _, r := range records {
			if r.Name != nodeRecord(n) {
				continue
			}
			was := r.Alive()
			if err := procs.Terminate(r, nodeGrace); err != nil {
				failed = append(failed, err)
			} else if was {
				log("%s ended (process %d)", n.Name, r.PID)
			}
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err // groups and cables of a node that runs cannot be removed
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for _, n := range plan.Nodes {
		failed = append(failed, removeGroup(hierarchies(string(mounts)), n.Cgroup))
	}
	failed = append(failed, takeBack(plan.SwitchedOn), removeNetwork(ctx, state, plan))
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("not everything could be removed, so %s is kept: %w", state.Dir, err)
	}
	if err := cluster.Down(state, log); err != nil {
		return err
	}
	left, err := leftovers(state, plan)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the cluster is gone, but this is left of it: %s", strings.Join(left, "; "))
	}
	return err
}

// leftovers lists what is on the machine of a plan's cluster: after Down it is empty.
func leftovers(state cluster.State, plan Plan) ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var left []string
	note := func(path string) {
		if exists(path) {
			left = append(left, path)
		}
	}
	for _, n := range plan.Nodes {
		for _, h := range hierarchies(string(mounts)) {
			note(h.Mount + n.Cgroup)
		}
		note("/sys/class/net/" + n.Veth)
	}
	note("/sys/class/net/" + plan.Bridge)
	if plan.Fabric != "" {
		note(plan.Fabric)
	}
	note(state.Dir)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, state.Dir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	found, err := machineRoutes()
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		for _, n := range plan.Nodes {
			if r == n.PodSubnet || r.Contains(n.IP) {
				left = append(left, "route to "+r.String())
			}
		}
	}
	all, err := procs.All()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err == nil && p.PID != os.Getpid() && strings.Contains(string(cmdline), state.Dir+"/") {
			left = append(left, fmt.Sprintf("process %d: %s", p.PID, strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
		// The nodes' own processes do not name the directory, but their groups do.
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		for _, n := range plan.Nodes {
			if err == nil && strings.Contains(string(groups), ":"+n.Cgroup+"/") {
				left = append(left, fmt.Sprintf("process %d in %s", p.PID, n.Cgroup))
			}
		}
	}
	return left, nil
}
