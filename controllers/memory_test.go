package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/metrics"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// memoryFolder in the environment names what a child of BenchmarkManagerMemory keeps in memory.
const memoryFolder = "COMMGROUP_MEMORY_FOLDER"

// managerMemory is what a manager tells Go of the chart's default limit, 1Gi (cmd/manager/memory.go).
const managerMemory = 1 << 30 / 10 * 9

// BenchmarkManagerMemory is the resident memory of a process that holds what a manager's cache holds: one group with a
// finished run, its Nodes and its CommTasks, each as large as those of the demo. It reads them from lists as an API
// server gives them, and then decides and is scraped again and again. Each size is a process of its own.
func BenchmarkManagerMemory(b *testing.B) {
	if folder := os.Getenv(memoryFolder); folder != "" {
		liveAsManager(b, folder)
		return
	}
	for _, members := range []int{1_000, 5_000, 12_500} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			folder := b.TempDir()
			writeCache(b, folder, members)
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$",
					"-test.bench=^BenchmarkManagerMemory$", "-test.benchtime=1x")
				cmd.Env = append(os.Environ(), memoryFolder+"="+folder, fmt.Sprintf("GOMEMLIMIT=%d", managerMemory))
				out, err := cmd.CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				told := 0
				for line := range strings.Lines(string(out)) {
					if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok &&
						strings.HasPrefix(name, "MiB") {
						v, err := strconv.ParseFloat(value, 64)
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(v, name)
						told++
					}
				}
				if told == 0 {
					b.Fatalf("no figures in %s", out)
				}
			}
		})
	}
}

// writeCache writes the objects of a group of so many members, with CommTasks of the demo's size.
func writeCache(b *testing.B, folder string, members int) {
	b.Helper()
	var demo v1alpha1.CommTaskList
	var demoNodes v1alpha1.CommNodeList
	for name, into := range map[string]any{"commtasks.yaml": &demo, "commnodes.yaml": &demoNodes} {
		data, err := os.ReadFile(filepath.Join("..", "test", "observability", "testdata", "demo", name))
		if err != nil {
			b.Fatal(err)
		}
		if err := yaml.Unmarshal(data, into); err != nil {
			b.Fatal(err)
		}
	}
	w := bigWorld(members)
	list, nodes := v1alpha1.CommTaskList{}, v1alpha1.CommNodeList{}
	for _, name := range slices.Sorted(maps.Keys(w.commTasks)) {
		ct := w.commTasks[name]
		model := demo.Items[len(list.Items)%len(demo.Items)].DeepCopy()
		model.Status.Run.ID, model.Status.Run.Generation, model.Status.Run.BootID = ct.Status.Run.ID,
			ct.Status.Run.Generation, ct.Status.Run.BootID
		ct.Status = model.Status
		list.Items = append(list.Items, *ct)
		cn := demoNodes.Items[len(nodes.Items)%len(demoNodes.Items)].DeepCopy()
		own := w.commNodes[ct.Spec.NodeName]
		cn.Name, cn.Spec = own.Name, own.Spec
		cn.Status.Facts.BootID, cn.Status.Facts.ObservedTime = own.Status.Facts.BootID, own.Status.Facts.ObservedTime
		nodes.Items = append(nodes.Items, *cn)
	}
	for i := range w.nodes { // as the feature discovery labels a node
		for j := range 80 {
			w.nodes[i].Labels[fmt.Sprintf("feature.node.kubernetes.io/some-feature-%d-%d", j, i)] = "true"
		}
	}
	for name, object := range map[string]any{"commtasks": list, "commnodes": nodes,
		"nodes": corev1.NodeList{Items: w.nodes}, "group": w.group} {
		data, err := json.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// heldObjects give the collector what the cache has.
type heldObjects struct {
	client.Reader
	s *Snapshot
}

func (h *heldObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.CommGroupList:
		group, _ := h.s.Group.Objects()
		l.Items = []v1alpha1.CommGroup{*group}
	case *v1alpha1.CommRunList:
		if _, run := h.s.Group.Objects(); run != nil {
			l.Items = []v1alpha1.CommRun{*run}
		}
	case *v1alpha1.CommTaskList:
		l.Items = append(l.Items, h.s.CommTasks...)
	case *v1alpha1.CommNodeList:
		l.Items = append(l.Items, h.s.CommNodes...)
	}
	return nil
}

func liveAsManager(b *testing.B, folder string) {
	read := func(name string, into any) {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			b.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			b.Fatal(err)
		}
	}
	var commTasks v1alpha1.CommTaskList
	var commNodes v1alpha1.CommNodeList
	var nodes corev1.NodeList
	group := &state.Group{}
	read("commtasks", &commTasks)
	read("commnodes", &commNodes)
	read("nodes", &nodes)
	read("group", group)
	for i := range commNodes.Items {
		if _, err := trimCommNode(&commNodes.Items[i]); err != nil {
			b.Fatal(err)
		}
	}
	for i := range nodes.Items {
		if _, err := trimNode(&nodes.Items[i]); err != nil {
			b.Fatal(err)
		}
	}
	s := &Snapshot{Now: testkit.Now, Group: group, Nodes: nodes.Items, CommTasks: commTasks.Items,
		CommNodes: commNodes.Items, ConfigMapCertain: true}
	leads := make(chan struct{})
	close(leads)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics.Collector{Reader: &heldObjects{s: s}, Elected: leads, PerNode: true})
	for range 10 {
		if d := Decide(s, testConfig); d.Status.Run == nil {
			b.Fatal("the group has no run")
		}
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				b.Fatal(err)
			}
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		for key, unit := range map[string]string{"VmHWM:": "MiB-peak", "VmRSS:": "MiB-at-the-end"} {
			if len(fields) > 1 && fields[0] == key {
				kib, err := strconv.Atoi(fields[1])
				if err != nil {
					b.Fatal(err)
				}
				fmt.Printf("%s = %d\n", unit, kib>>10)
			}
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("MiB-live = %d\n", m.HeapAlloc>>20)
	runtime.KeepAlive(s)
}
