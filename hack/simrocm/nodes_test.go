package simrocm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// nodeName is the name of the i-th node, in its tree and as NCCL_HOSTID.
func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// across is a job over several nodes, each with a tree of its own and the fault of its number. devices are those that
// each node gives, in rank order.
func across(t *testing.T, nodes int, devices []int, faults map[int]string) job {
	t.Helper()
	roots := make([]string, nodes)
	for i := range nodes {
		roots[i] = root(t, nodeName(i), faults[i])
	}
	per := len(devices)
	return job{ranks: nodes * per, rankEnv: func(r int) []string {
		return []string{"SIMROCM_ROOT=" + roots[r/per], "NCCL_HOSTID=" + nodeName(r/per),
			fmt.Sprintf("TEST_DEVICE=%d", devices[r%per])}
	}}
}

// roots are the trees that were written, by node and fault: nobody changes them, and one has a thousand files.
var roots = map[[2]string]string{}

func root(t *testing.T, node, fault string) string {
	t.Helper()
	if dir, ok := roots[[2]string{node, fault}]; ok {
		return dir
	}
	n := healthy(t, fault)
	n.Name = node
	dir := filepath.Join(library(t), fmt.Sprintf("tree-%d", len(roots)))
	if err := nodetree.Write(dir, *n); err != nil {
		t.Fatal(err)
	}
	roots[[2]string{node, fault}] = dir
	return dir
}

const largeReduce, largeExchange = "ar:f32:33554432:1", "a2a:f32:33554432:1"

// factor is how many times as long as healthy nodes a step takes.
func factor(t *testing.T, nodes int, devices []int, faults map[int]string, step string) float64 {
	t.Helper()
	base := across(t, nodes, devices, nil).run(t, step)
	o := across(t, nodes, devices, faults).run(t, step)
	for rank, code := range append(base.codes, o.codes...) {
		if code != 0 {
			t.Fatalf("rank %d ended with %d:\n%s\n%s", rank, code, base.text, o.text)
		}
	}
	if wrong := o.step(t, step, "wrong"); wrong != 0 {
		t.Errorf("%d wrong elements", wrong)
	}
	return float64(o.step(t, step, "ns")) / float64(base.step(t, step, "ns"))
}

func TestSlowBetweenNodes(t *testing.T) {
	for _, c := range []struct {
		name     string
		nodes    int
		devices  []int
		faults   map[int]string
		step     string
		low, top float64
	}{
		// Two GPUs a node: 46 GB/s within a node bound the healthy AllReduce, and 87.5 GB/s between nodes do not.
		{"a slow NIC", 3, []int{0, 1}, map[int]string{1: "slow-nic:1:20"}, largeReduce, 2.2, 2.7},
		{"a slow NIC of a GPU that takes no part", 3, []int{0, 1}, map[int]string{1: "slow-nic:5:20"},
			largeReduce, 1, 1},
		{"a slow NIC on its rail", 3, []int{1}, map[int]string{1: "slow-nic:1:20"}, largeReduce, 4.5, 5},
		{"a slow NIC and another rail", 3, []int{0}, map[int]string{1: "slow-nic:1:20"}, largeReduce, 1, 1},
		{"a slow NIC within its node", 1, []int{0, 1}, map[int]string{0: "slow-nic:1:20"}, largeReduce, 1, 1},
		{"a slow NIC in an exchange", 2, []int{0, 1}, map[int]string{1: "slow-nic:1:20"}, largeExchange, 2.3, 5},
		{"a node's whole network", 3, []int{0}, map[int]string{2: "slow-node-net:50"}, largeReduce, 1.9, 2.1},
		{"a pair, both there", 3, []int{0}, map[int]string{0: "slow-pair-nodes:node-2:25"}, largeReduce, 3.7, 4.1},
		{"a pair, one there", 2, []int{0}, map[int]string{0: "slow-pair-nodes:node-2:25"}, largeReduce, 1, 1},
		{"a pair in Send and Receive", 2, []int{0}, map[int]string{0: "slow-pair-nodes:node-1:25"},
			"pair:0-1:33554432:1", 3.7, 4.1},
		{"a pair seen by other nodes' messages", 3, []int{0}, map[int]string{0: "slow-pair-nodes:node-2:25"},
			"pair:0-1:33554432:1", 1, 1},
		{"TCP on one node", 3, []int{0}, map[int]string{1: "no-rdma"}, largeReduce, 13, 15},
		{"TCP and a slow NIC elsewhere", 3, []int{0}, map[int]string{1: "no-rdma", 2: "slow-nic:0:90"},
			largeReduce, 13, 15},
		{"two faults of one node", 2, []int{0}, map[int]string{0: "slow-node-net:50, slow-pair-nodes:node-1:50"},
			largeReduce, 3.7, 4.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := factor(t, c.nodes, c.devices, c.faults, c.step); got < c.low || got > c.top {
				t.Errorf("%s takes %.2f times as long as on healthy nodes, want %.1f to %.1f",
					c.step, got, c.low, c.top)
			}
		})
	}
}

func TestBrokenBetweenNodes(t *testing.T) {
	const step = "ar:f32:65536:1"
	devices := []int{0, 1}
	for _, c := range []struct {
		name   string
		nodes  int
		faults map[int]string
		codes  map[int]int // of the nodes' ranks; others 0
		wrong  bool
	}{
		{"hang-across alone", 1, map[int]string{0: "hang-across"}, nil, false},
		{"hang-across", 2, map[int]string{1: "hang-across"}, map[int]int{0: 3, 1: 3}, false},
		{"hang-pair-nodes without the other", 2, map[int]string{1: "hang-pair-nodes:node-2"}, nil, false},
		{"hang-pair-nodes", 3, map[int]string{1: "hang-pair-nodes:node-2"}, map[int]int{0: 3, 1: 3, 2: 3}, false},
		{"die-across alone", 1, map[int]string{0: "die-across"}, nil, false},
		{"die-across", 2, map[int]string{1: "die-across"}, map[int]int{0: 3, 1: 1}, false},
		{"wrong-across alone", 1, map[int]string{0: "wrong-across"}, nil, false},
		{"wrong-across", 2, map[int]string{1: "wrong-across"}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := across(t, c.nodes, devices, c.faults).run(t, "deadline:1000", step)
			for rank, code := range o.codes {
				if want := c.codes[rank/len(devices)]; code != want {
					t.Errorf("rank %d ended with %d, want %d:\n%s", rank, code, want, o.text)
				}
			}
			if len(c.codes) > 0 {
				return
			}
			if wrong := o.step(t, step, "wrong"); (wrong != 0) != c.wrong {
				t.Errorf("%d wrong elements, want some: %t", wrong, c.wrong)
			}
		})
	}
}

func TestFaultsBetweenNodesThatAreNone(t *testing.T) {
	for _, fault := range []string{"slow-nic:8:20", "slow-nic:1:0", "slow-nic:1:101", "slow-nic:1:20:3",
		"slow-node-net:0", "slow-node-net", "slow-pair-nodes:a", "slow-pair-nodes::20", "slow-pair-nodes:a:x",
		"hang-pair-nodes:", "hang-pair-nodes:a:5", "hang-across:1", "no-rdma:1", "hang-across, hang-with"} {
		if o := (job{ranks: 1, node: healthy(t, fault)}.run(t)); !strings.Contains(o.text, "unknown fault: ") ||
			o.codes[0] == 0 {
			t.Errorf("fault %s was taken:\n%s", fault, o.text)
		}
	}
}

// Several communicators at the same time, on disjoint devices of the same nodes and with the unique id of their own
// rank 0, as the dimensions of a mesh and the rails have them. Only the one with the slow NIC is slow.
func TestCommunicatorsAtTheSameTime(t *testing.T) {
	const nodes, rails = 3, 4
	memory := memoryFolder(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	faults := map[int]string{1: "slow-nic:2:25"}
	outcomes := make([]outcome, rails)
	finish := make([]func() error, 0, nodes*rails)
	for rail := range rails {
		outcomes[rail] = outcome{lines: make([][]map[string]string, nodes)}
		first := across(t, nodes, []int{rail}, faults)
		first.env = []string{"NCCL_COMM_ID="}
		root := first.commands(ctx, t, memory, []string{largeReduce})[0]
		found, text := make(chan struct{}, 1), &watcher{want: "\n"}
		text.found, root.Stdout, root.Stderr = found, text, text
		if err := root.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-found:
		case <-ctx.Done():
			t.Fatalf("rail %d: no unique id within %s", rail, patience)
		}
		first.env = append(first.env, "TEST_ID="+id(t, text.String()))
		finish = append(finish, func() error {
			err := root.Wait()
			outcomes[rail].add(0, text.String())
			return err
		})
		for rank, peer := range first.commands(ctx, t, memory, []string{largeReduce}) {
			if rank == 0 {
				continue
			}
			out := &bytes.Buffer{}
			peer.Stdout, peer.Stderr = out, out
			if err := peer.Start(); err != nil {
				t.Fatal(err)
			}
			finish = append(finish, func() error {
				err := peer.Wait()
				outcomes[rail].add(rank, out.String())
				return err
			})
		}
	}
	for _, f := range finish {
		if err := f(); err != nil {
			t.Errorf("a rank: %v", err)
		}
	}
	for rail := range rails {
		ns := float64(outcomes[rail].step(t, largeReduce, "ns"))
		base := float64(outcomes[0].step(t, largeReduce, "ns"))
		if slow := rail == 2; slow != (ns > 3*base) || (!slow && ns != base) {
			t.Errorf("rail %d took %.2f times as long as rail 0; want four times of rail 2 and as long of the others",
				rail, ns/base)
		}
		if outcomes[rail].step(t, largeReduce, "wrong") != 0 {
			t.Errorf("rail %d: wrong elements", rail)
		}
	}
	if left, err := os.ReadDir(memory); err != nil || len(left) != 0 {
		t.Errorf("%v (%v), want no files", left, err)
	}
}

func (o *outcome) add(rank int, text string) {
	o.text += text
	for line := range strings.Lines(text) {
		o.lines[rank] = append(o.lines[rank], parse(line))
	}
}

func TestLogOfTheNetwork(t *testing.T) {
	const info, all = "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,P2P"
	const rdma, tcp, within = `NCCL INFO Using network IB\n`, `NCCL INFO Using network Socket\n`,
		`Channel 00/0 : \d\[[0-9a-f]+\] -> \d\[[0-9a-f]+\] via P2P/IPC comm`
	const overTCP = `Channel 00/0 : 1\[1\] -> 2\[0\] \[(send|receive)\] via NET/Socket/0 comm`
	for _, c := range []struct {
		name   string
		faults map[int]string
		env    []string
		want   []string
		not    []string
	}{
		{"RDMA", nil, []string{info, all}, []string{
			`(?m)^\S+:\d+:\d+ \[\d\] NCCL INFO NET/IB : Using \[0\]mlx5_0:1/RoCE \[1\]mlx5_1:1/RoCE .*\[7\]mlx5_7:1/RoCE \[RO\]; OOB [^ :]+:[0-9a-f.:]+<0>$`,
			rdma, within, `Channel 00/0 : 1\[1\] -> 2\[0\] \[send\] via NET/IB/1/GDRDMA comm 0x[0-9a-f]+ nRanks 04`,
			`Channel 00/0 : 1\[1\] -> 2\[0\] \[receive\] via NET/IB/0/GDRDMA comm`,
			`Channel 01/0 : 0\[0\] -> 3\[1\] \[send\] via NET/IB/0/GDRDMA`,
		}, []string{"NET/Socket"}},
		{"the fault", map[int]string{0: "no-rdma"}, []string{info, all},
			[]string{`NET/IB : No device found\.`, `NET/Socket : Using \[0\][^ :]+:\S+<0>`, tcp, rdma,
				`Channel 00/0 : 1\[1\] -> 2\[0\] \[send\] via NET/Socket/0 comm`,
				`Channel 00/0 : 1\[1\] -> 2\[0\] \[receive\] via NET/IB/0/GDRDMA comm`}, nil},
		{"switched off", nil, []string{info, all, "NCCL_IB_DISABLE=1"}, []string{tcp, overTCP},
			[]string{rdma, `NET/IB : `}},
		{"by name", nil, []string{info, all, "NCCL_NET=socket"}, []string{tcp, overTCP}, []string{rdma, `NET/IB : `}},
		{"one HCA, exactly", nil, []string{info, all, "NCCL_IB_HCA==mlx5_1:1"},
			[]string{`NET/IB : Using \[0\]mlx5_1:1/RoCE \[RO\]`, `via NET/IB/0/GDRDMA`}, []string{`\[1\]mlx5`}},
		{"all HCAs but", nil, []string{info, all, "NCCL_IB_HCA=^mlx5_1,mlx5_3"},
			[]string{`\[0\]mlx5_0:1/RoCE \[1\]mlx5_2:1/RoCE \[2\]mlx5_4:1`}, nil},
		{"two HCAs, beside the two GPUs", nil, []string{info, all, "NCCL_IB_HCA==mlx5_1,mlx5_0"},
			[]string{`1\[1\] -> 2\[0\] \[send\] via NET/IB/1/GDRDMA`,
				`1\[1\] -> 2\[0\] \[receive\] via NET/IB/0/GDRDMA`}, nil},
		{"HCAs that are not there", nil, []string{info, all, "NCCL_IB_HCA==mlx5_77"},
			[]string{`NET/IB : No device found\.`, tcp}, []string{rdma}},
		{"another port", nil, []string{info, all, "NCCL_IB_HCA==mlx5_1:2"},
			[]string{`NET/IB : No device found\.`, tcp}, []string{rdma}},
		{"an interface of the node, exactly", nil, []string{info, all + ",BOOTSTRAP", "NCCL_SOCKET_IFNAME==enp9s0np0"},
			[]string{`Bootstrap: Using enp9s0np0:10\.\d+\.\d+\.\d+<0>`, `OOB enp9s0np0:10\.`}, nil},
		{"its other family", nil, []string{info, all + ",BOOTSTRAP", "NCCL_SOCKET_IFNAME=enp9",
			"NCCL_SOCKET_FAMILY=AF_INET6", "NCCL_NET=Socket"}, nil, []string{"Using network"}},
		{"loopback", nil, []string{info, "NCCL_SOCKET_IFNAME==lo", "NCCL_IB_DISABLE=1"},
			[]string{`Bootstrap: Using lo:127\.0\.0\.1<0>`, `NET/Socket : Using \[0\]lo:127`}, nil},
		{"a prefix is no exact name", nil, []string{info, "NCCL_SOCKET_IFNAME==enp9"},
			[]string{`NCCL WARN Bootstrap : no socket interface found`}, []string{"Using network"}},
		{"another plugin", nil, []string{info, "NCCL_NET=OFI"},
			[]string{`NCCL WARN Failed to initialize any NET plugin`}, []string{"Using network"}},
		{"other subsystems", nil, []string{info, "NCCL_DEBUG_SUBSYS=COLL"}, []string{`SIMULATED library`},
			[]string{"NET/", "Channel", "Using network"}},
		{"all but the network's", nil, []string{info, "NCCL_DEBUG_SUBSYS=^NET,INIT"}, []string{within},
			[]string{"NET/IB", "Using network"}},
		{"not asked for", nil, []string{"NCCL_DEBUG=WARN"}, nil, []string{"NCCL INFO", "SIMULATED library"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := across(t, 2, []int{0, 1}, c.faults)
			j.env = c.env
			o := j.run(t, "ar:f32:4096:1")
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(o.text) {
					t.Errorf("want %s in\n%s", want, o.text)
				}
			}
			for _, not := range c.not {
				if regexp.MustCompile(not).MatchString(o.text) {
					t.Errorf("want no %s in\n%s", not, o.text)
				}
			}
			refused := strings.Contains(o.text, "Bootstrap : no socket interface") ||
				strings.Contains(o.text, "any NET plugin")
			for rank, code := range o.codes {
				if (code != 0) != refused {
					t.Errorf("rank %d ended with %d", rank, code)
				}
			}
			if refused && !strings.Contains(o.text, "code=5") && c.env[0] == info && len(c.want) > 0 {
				t.Errorf("want ncclInvalidUsage:\n%s", o.text)
			}
		})
	}
}

func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	j := across(t, 2, []int{0}, nil)
	j.env = []string{"NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=" + filepath.Join(dir, "log-%h-%p-%%-%x")}
	o := j.run(t, "ar:f32:4096:1")
	if strings.Contains(o.text, "NCCL INFO") {
		t.Errorf("the log is on the standard output, too:\n%s", o.text)
	}
	files, err := filepath.Glob(filepath.Join(dir, "log-*-*-%-%x"))
	if err != nil || len(files) != 2 {
		all, _ := os.ReadDir(dir)
		t.Fatalf("files %v (%v) of %v, want one for each process", files, err, all)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || strings.Count(string(data), "SIMULATED library") != 1 ||
			!strings.Contains(string(data), "Using network IB\n") {
			t.Errorf("%s (%v):\n%s", file, err, data)
		}
	}
}
