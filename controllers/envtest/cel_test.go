package envtest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const selectAll = "members: {nodeSelector: {matchLabels: {team: nobody}}}\n"

// groupFromYAML has only the given spec, so that the API server's defaults and rules are what is tested.
func groupFromYAML(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("CommGroup")
	u.SetNamespace("default")
	u.SetGenerateName("cel-")
	return u
}

// threshold is a spec's one threshold, which says this beside its measurement.
func threshold(says string) string {
	return "benchmark: {thresholds: [{collective: AllReduce, sizeBytes: 1024, minBusBandwidthMBps: 1, " + says + "}]}\n"
}

// envOf are n variables with values of so many letters.
func envOf(n, letters int, letter ...string) string {
	var all []string
	for i := range n {
		all = append(all,
			fmt.Sprintf("{name: NCCL_X%d, value: '%s'}", i, strings.Repeat(append(letter, "x")[0], letters)))
	}
	return "runtime: {env: [" + strings.Join(all, ", ") + "]}\n"
}

func TestSpecRules(t *testing.T) {
	for name, tc := range map[string]struct{ spec, words string }{
		"no members": {"members: {}\n",
			"members chooses no node: set members.nodeSelector or list members.nodeNames"},
		"min over max": {"members: {nodeNames: [a], minMembers: 3, maxMembers: 2}\n",
			"members.minMembers must not be larger than members.maxMembers"},
		"sizes": {selectAll + "benchmark: {minSizeBytes: 8192, maxSizeBytes: 4096}\n",
			"benchmark.minSizeBytes must not be larger than benchmark.maxSizeBytes: swap them or set only one"},
		"min over default": {selectAll + "benchmark: {minSizeBytes: 1073741824}\n", "swap them or set only one"},
		"dda ranks": {selectAll + "ranksPerNode: 4\ndda: {mode: Required}\n",
			"set ranksPerNode to 8, or dda.mode to Preferred or Disabled"},
		"dda thresholds": {selectAll + "dda: {allReduceFlatMaxBytes: 2048, allReduceTreeMaxBytes: 1024}\n",
			"the flat path serves the small messages"},
		"fp8 collective": {selectAll + "lowPrecision: {collectives: [Broadcast]}\n",
			"remove the other collectives from lowPrecision.collectives"},
		"CIDR of IPv4": {selectAll + "network: {addressFamily: IPv6, interface: {cidr: 10.4.0.0/16}}\n",
			"of the other family than network.addressFamily"},
		"CIDR of IPv6": {selectAll + "network: {addressFamily: IPv4, interface: {cidr: 'fd00:4::/64'}}\n",
			"of the other family than network.addressFamily"},
		"library path": {selectAll + "runtime: {libraryPath: lib/librccl.so}\n",
			"must be an absolute path in the runtime image"},
		"foreign variable": {selectAll + "runtime: {env: [{name: PATH, value: /x}]}\n",
			"takes only variables named NCCL_*, RCCL_*, HSA_* or HIP_*"},
		"preload name": {selectAll + "runtime: {env: [{name: LD_PRELOAD, value: /x.so}]}\n",
			"must not carry LD_PRELOAD"},
		"preload in a value": {selectAll + "runtime: {env: [{name: HSA_X, value: 'a LD_PRELOAD=/x.so'}]}\n",
			"must not carry LD_PRELOAD"},
		"plugin": {selectAll + "runtime: {env: [{name: NCCL_NET_PLUGIN, value: x}]}\n",
			"build plugins into the runtime image"},
		"host id": {selectAll + "runtime: {env: [{name: NCCL_HOSTID, value: x}]}\n",
			"must not set what agents compute"},
		"interface twice": {selectAll + "network: {interface: {name: eth1}}\n" +
			"runtime: {env: [{name: NCCL_SOCKET_IFNAME, value: eth2}]}\n", "beside the field of spec.network"},
		"family twice": {selectAll + "network: {addressFamily: IPv4}\n" +
			"runtime: {env: [{name: NCCL_SOCKET_FAMILY, value: AF_INET6}]}\n", "beside the field of spec.network"},
		"HCAs twice": {selectAll + "network: {hcas: [mlx5_0]}\n" +
			"runtime: {env: [{name: NCCL_IB_HCA, value: mlx5_1}]}\n", "beside the field of spec.network"},
		"GID index twice": {selectAll + "network: {gidIndex: 0}\n" +
			"runtime: {env: [{name: NCCL_IB_GID_INDEX, value: '3'}]}\n", "beside the field of spec.network"},
		"large env":        {selectAll + envOf(5, 1000), "larger than 4096 bytes"},
		"large env, UTF-8": {selectAll + envOf(3, 1000, "ü"), "larger than 4096 bytes"},
		"line break": {selectAll + "runtime: {env: [{name: NCCL_DEBUG, value: " +
			"\"INFO\\nNCCL_NET_PLUGIN=/x.so\"}]}\n", "must not carry line breaks"},
		"carriage return": {selectAll + "runtime: {env: [{name: NCCL_DEBUG, value: \"INFO\\r\"}]}\n",
			"must not carry line breaks"},
		"line separator": {selectAll + "runtime: {env: [{name: NCCL_DEBUG, value: \"INFO\\u2028\"}]}\n",
			"must not carry line breaks"},
		"operator's own": {selectAll + "runtime: {env: [{name: RCCL_ENABLE_DDA_ALLREDUCE, value: '1'}]}\n",
			"use spec.dda and spec.lowPrecision instead"},
		"cron words":     {selectAll + "run: {schedule: every day}\n", "run.schedule is not a cron line"},
		"cron minute 60": {selectAll + "run: {schedule: '60 3 * * *'}\n", "run.schedule is not a cron line"},
		"factor and step": {selectAll + "benchmark: {sizeFactor: 2, sizeStepBytes: 1024}\n",
			"sizeFactor and benchmark.sizeStepBytes exclude each other"},
		"too many steps": {selectAll + "benchmark: {minSizeBytes: 8, maxSizeBytes: 1024, sizeStepBytes: 8}\n",
			"sizeStepBytes gives more than 40 sizes"},
		"steps to default": {selectAll + "benchmark: {sizeStepBytes: 1048576}\n",
			"sizeStepBytes gives more than 40 sizes"},
		"nothing in place": {selectAll + "benchmark: {placements: [InPlace], collectives: [AllToAll, SendRecv]}\n",
			"nothing would be measured: benchmark.placements is InPlace alone"},
		"too many series": {selectAll + "benchmark: {placements: [InPlace, OutOfPlace], datatypes: [BFloat16, " +
			"Float32], collectives: [AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllv, Broadcast, Reduce]}\n",
			"more than 24 combinations"},
		"unknown datatype":   {selectAll + "benchmark: {datatypes: [Float4]}\n", "spec.benchmark.datatypes"},
		"unknown collective": {selectAll + "benchmark: {collectives: [Gather]}\n", "spec.benchmark.collectives"},
		"unknown placement":  {selectAll + "benchmark: {placements: [Beside]}\n", "spec.benchmark.placements"},
		"size under 8 B":     {selectAll + "benchmark: {minSizeBytes: 4}\n", "spec.benchmark.minSizeBytes"},
		"job counts":         {selectAll + "publish: {jobCounts: Odd}\n", "spec.publish.jobCounts"},
		"cron weekday 7":     {selectAll + "run: {schedule: '0 3 * * 7'}\n", "Sunday is 0 or SUN, not 7"},
		"cron four fields":   {selectAll + "run: {schedule: '0 3 * *'}\n", "run.schedule is not a cron line"},
		"no ranks":           {selectAll + "ranksPerNode: 65\n", "spec.ranksPerNode"},
		"unknown variant":    {selectAll + "benchmark: {variants: [Turbo]}\n", "spec.benchmark.variants"},
		"unknown span":       {selectAll + "span: Rack\n", "spec.span"},
		"ports for 8 ranks": {selectAll + "span: Group\nnetwork: {portRange: {first: 30000, last: 30126}}\n",
			"fewer than 16 ports for each rank"},
		"ports for 64 ranks": {selectAll + "span: Group\nranksPerNode: 64\n" +
			"network: {portRange: {first: 30000, last: 30999}}\n", "fewer than 16 ports for each rank"},
		"dimension group": {selectAll + "span: Group\nmesh: [{name: group, size: 4}, {name: tp, size: 8}]\n",
			"must not be called group"},
		"GPUs as RDMA": {selectAll + "network: {rdmaResources: [{name: rdma/hca, count: 1}, {name: " +
			"amd.com/gpu, count: 1}]}\n", "must not name the GPUs' own resource"},
		"own GPUs as RDMA": {selectAll + "runtime: {pod: {gpuResourceName: example.com/gpu}}\n" +
			"network: {rdmaResources: [{name: example.com/gpu, count: 1}]}\n", "must not name the GPUs' own resource"},
		"transport in a node": {selectAll + threshold("transport: RDMA"), "with span Node never applies"},
		"nodes in a node":     {selectAll + threshold("span: Node, nodes: 2"), "with span Node never applies"},
		"DDA over nodes":      {selectAll + threshold("span: Group, variant: DDA"), "only Baseline is measured"},
		"gating's own label": {"members: {nodeSelector: {matchLabels: {rcclx.io/comm-validated: passed}}}\n" +
			"gating: {mode: Enforce, actions: [Condition, Label]}\n", "must not go by rcclx.io/comm-validated"},
		"not gating's label": {"members: {nodeSelector: {matchExpressions: [{key: gpu, operator: Exists}, {key: " +
			"rcclx.io/comm-validated, operator: NotIn, values: [failed]}]}}\n" +
			"gating: {mode: DryRun, actions: [Label]}\n", "must not go by rcclx.io/comm-validated"},
		"image of blanks": {selectAll + "runtime: {image: '  '}\n", "runtime.image is no image reference"},
		"blank before the image": {selectAll + "runtime: {image: ' registry.example/rocm:7.0'}\n",
			"runtime.image is no image reference"},
		"line end after an image": {selectAll + "runtime: {image: \"registry.example/rocm:7.0\\n\"}\n",
			"runtime.image is no image reference"},
		"two words as an image": {selectAll + "runtime: {image: 'rocm latest'}\n",
			"runtime.image is no image reference"},
		"image with a scheme": {selectAll + "runtime: {image: 'docker://registry.example/rocm:7.0'}\n",
			"runtime.image is no image reference"},
		"image with capitals": {selectAll + "runtime: {image: registry.example/ROCm}\n",
			"runtime.image is no image reference"},
		"node with a line end": {"members: {nodeNames: [a, \"b\\n\"]}\n",
			"members.nodeNames has what is no name of a Node"},
		"node with an escape": {"members: {nodeNames: [\"b\\e[2J\"]}\n",
			"members.nodeNames has what is no name of a Node"},
		"exclude with a blank": {strings.TrimSuffix(selectAll, "}\n") + ", exclude: ['b ']}\n",
			"members.exclude has what is no name of a Node"},
		"library path's escape": {selectAll + "runtime: {libraryPath: \"/opt/\\e[2J.so\"}\n",
			"runtime.libraryPath must not carry"},
		"library path turned": {selectAll + "runtime: {libraryPath: \"/opt/\\u202e.so\"}\n",
			"runtime.libraryPath must not carry"},
		"library path's line": {selectAll + "runtime: {libraryPath: \"/opt/a\\u2028.so\"}\n",
			"runtime.libraryPath must not carry"},
		"pull secret": {selectAll + "runtime: {imagePullSecrets: [{name: \"a\\e\"}]}\n",
			"no name of a Secret"},
		"priority class": {selectAll + "runtime: {pod: {priorityClassName: \"a\\e\"}}\n",
			"no name of a PriorityClass"},
		"interface": {selectAll + "network: {interface: {name: \"eth0\\e\"}}\n", "spec.network.interface.name"},
		"interface, C1": {selectAll + "network: {interface: {name: \"eth0\\u009b\"}}\n",
			"spec.network.interface.name"},
		"threshold's model": {selectAll + threshold("model: \"MI300X\\e\""), "a threshold's model must not carry"},
		"threshold's partition": {selectAll + threshold("partition: \"SPX\\e\""),
			"a threshold's partition must not carry"},
		"threshold's flavor":   {selectAll + threshold("flavor: \"rcclx\\e\""), "a threshold's flavor must not carry"},
		"31 February":          {selectAll + "run: {schedule: '0 0 31 2 *'}\n", "run.schedule never comes"},
		"30 February":          {selectAll + "run: {schedule: '0 0 30  feb ?'}\n", "run.schedule never comes"},
		"30 and 31 February":   {selectAll + "run: {schedule: '0 0 30,31 02 *'}\n", "run.schedule never comes"},
		"31 in short months":   {selectAll + "run: {schedule: '0 0 31 2,Apr,11 *'}\n", "run.schedule never comes"},
		"statistic over nodes": {selectAll + threshold("span: Group, statistic: Min"), "only medians are kept"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), groupFromYAML(t, tc.spec), client.DryRunAll)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tc.words) {
				t.Fatalf("refused with %q, expected %q in it", err, tc.words)
			}
		})
	}
	for name, spec := range map[string]string{
		"31 March":      selectAll + "run: {schedule: '0 0 31 2,3 *'}\n",
		"30 June":       selectAll + "run: {schedule: '0 0 30 6 *'}\n",
		"29 February":   selectAll + "run: {schedule: '0 0 29 2 *'}\n",
		"31 or Monday":  selectAll + "run: {schedule: '0 0 31 2 MON'}\n",
		"image":         selectAll + "runtime: {image: rocm/pytorch:latest}\n",
		"image, port":   selectAll + "runtime: {image: 'registry.Example-1.com:5000/a_b/c--d/e.f__g:V1.2_3-rc.1'}\n",
		"image, IPv6":   selectAll + "runtime: {image: '[fd00::1]:5000/rocm'}\n",
		"image, digest": selectAll + "runtime: {image: 'r:7.0@sha256:" + strings.Repeat("0a", 32) + "'}\n",
		"no image":      selectAll + "runtime: {image: ''}\n",
		"library":       selectAll + "runtime: {libraryPath: '/opt/my libs/ü/librccl.so.1'}\n",
		"threshold":     selectAll + threshold("model: Instinct MI300X, partition: SPX/NPS1, flavor: rcclx-dev"),
		"interface":     selectAll + "network: {interface: {name: ens1f0.100@x}}\n",
		"nodes":         "members: {nodeNames: [a.b-c, '10.0.0.1'], exclude: [n-1]}\n",
		"pull secrets": selectAll +
			"runtime: {imagePullSecrets: [{name: mirror.v1}], pod: {priorityClassName: low-priority}}\n",
		"schedules":     selectAll + "run: {schedule: '*/15 0-6 1,15 jan-mar mon-fri'}\n",
		"daily":         selectAll + "run: {schedule: '@daily'}\n",
		"dda preferred": selectAll + "ranksPerNode: 4\n",
		"own variables": selectAll +
			"runtime: {env: [{name: NCCL_DEBUG, value: INFO}, {name: HSA_FORCE_FINE_GRAIN_PCIE, value: '1'}]}\n",
		"much env": selectAll + envOf(64, 55),
		"own network": selectAll + "runtime: {env: [{name: NCCL_SOCKET_IFNAME, value: eth2}, {name: NCCL_IB_HCA, " +
			"value: mlx5_1}, {name: NCCL_IB_GID_INDEX, value: '3'}]}\n",
		"sundays":  selectAll + "run: {schedule: '0 3 * * SUN'}\n",
		"steps":    selectAll + "benchmark: {minSizeBytes: 8, maxSizeBytes: 320, sizeStepBytes: 8}\n",
		"in place": selectAll + "benchmark: {placements: [InPlace], collectives: [AllReduce, AllToAll]}\n",
		"all collectives": selectAll + "benchmark: {datatypes: [Float8E4M3, Int8, Float64], collectives: " +
			"[AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllv, Broadcast, Reduce, SendRecv]}\n",
		"by name":            "members: {nodeNames: [a]}\n",
		"ports":              selectAll + "span: Group\nnetwork: {portRange: {first: 30000, last: 30127}}\n",
		"ports without need": selectAll + "network: {portRange: {first: 30000, last: 30000}}\n",
		"RDMA":               selectAll + "network: {rdmaResources: [{name: rdma/hca, count: 1}]}\n",
		"one node":           selectAll + threshold("nodes: 1, variant: DDA, statistic: P5"),
		"another's label": "members: {nodeSelector: {matchLabels: {rcclx.io/comm-validated: passed}}}\n" +
			"gating: {mode: Enforce, actions: [Taint]}\n",
		"own label, gating off": "members: {nodeSelector: {matchLabels: {rcclx.io/comm-validated: passed}}}\n" +
			"gating: {mode: 'Off', actions: [Label]}\n",
		"over nodes": selectAll + threshold("span: Group, nodes: 2, transport: RDMA"),
	} {
		t.Run("accepted/"+name, func(t *testing.T) {
			if err := admin.Create(t.Context(), groupFromYAML(t, spec), client.DryRunAll); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestComputedVariablesAreRefused: the rule names them one by one, as the code does.
func TestComputedVariablesAreRefused(t *testing.T) {
	for _, name := range v1alpha1.ComputedVariables() {
		err := admin.Create(t.Context(),
			groupFromYAML(t, selectAll+"runtime: {env: [{name: "+name+", value: x}]}\n"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "runtime.env must not") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommTaskStandsForOneNode(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.settle()
	ct := w.commTask(w.nodes[0])
	ct.Spec.NodeName = "other"
	err := admin.Update(t.Context(), ct)
	if err == nil || !strings.Contains(err.Error(), "nodeName does not change") {
		t.Fatalf("changing nodeName: %v", err)
	}
}

func TestCommNodeStandsForOneNode(t *testing.T) {
	w := newWorld(t, 1, nil)
	cn := w.commNode(w.nodes[0])
	cn.Spec.NodeUID = "other"
	if err := admin.Update(t.Context(), cn); err == nil || !strings.Contains(err.Error(), "nodeUID does not change") {
		t.Errorf("changing nodeUID: %v", err)
	}
	cn = &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: "no-node"}}
	if err := admin.Create(t.Context(), cn, client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "spec.nodeUID") {
		t.Errorf("without nodeUID: %v", err)
	}
}

func TestTenLinesAreEnough(t *testing.T) {
	u := groupFromYAML(t, selectAll)
	if err := admin.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(t.Context(), u) })
	var g v1alpha1.CommGroup
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), &g); err != nil {
		t.Fatal(err)
	}
	s := &g.Spec
	for what, ok := range map[string]bool{
		"ranksPerNode":    s.RanksPerNode == 8,
		"span":            s.Span == v1alpha1.SpanNode,
		"minMembers":      s.Members.MinMembers == 1,
		"gpuResourceName": s.Runtime.Pod.GPUResourceName == v1alpha1.ResourceGPU,
		"shmSizeMiB":      s.Runtime.Pod.ShmSizeMiB == 4096,
		"dda.mode":        s.DDA.Mode == v1alpha1.FeaturePreferred,
		"lowPrecision": s.LowPrecision.Mode == v1alpha1.FeatureDisabled &&
			s.LowPrecision.MaxRelativeErrorPPM == 130000,
		"benchmark": len(s.Benchmark.Variants) == 3 && len(s.Benchmark.Collectives) == 4 &&
			len(s.Benchmark.Datatypes) == 1,
		"sizes": s.Benchmark.MinSizeBytes == 1024 && s.Benchmark.MaxSizeBytes == 64<<20 &&
			s.Benchmark.SizeFactor == 0 && s.Benchmark.SizeStepBytes == 0,
		"placements":       len(s.Benchmark.Placements) == 1 && s.Benchmark.Placements[0] == v1alpha1.OutOfPlace,
		"warmupIterations": s.Benchmark.WarmupIterations != nil && *s.Benchmark.WarmupIterations == 10,
		"run": s.Run.State == v1alpha1.RunActive && s.Run.MaxParallelNodes == 16 &&
			s.Run.NodeDeadlineSeconds == 1800,
		"gating": s.Gating.Mode == v1alpha1.GatingOff,
		"publish": s.Publish.Mode == v1alpha1.PublishWhenProven && s.Publish.Simulated == v1alpha1.SimulatedForbid &&
			s.Publish.JobCounts == v1alpha1.JobCountsAny,
	} {
		if !ok {
			t.Errorf("%s has not its default: %+v", what, s)
		}
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	for _, f := range []string{"commgroup.yaml", "commgroup-full.yaml", "commgroup-placements.yaml"} {
		for _, u := range readObjects(t, "samples/"+f) {
			if err := admin.Create(t.Context(), u, client.DryRunAll,
				client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}
