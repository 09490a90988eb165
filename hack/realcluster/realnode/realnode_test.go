package realnode

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestPlanSys(t *testing.T) {
	file, link := &fstest.MapFile{}, func(target string) *fstest.MapFile {
		return &fstest.MapFile{Mode: os.ModeSymlink, Data: []byte(target)}
	}
	tree := fstest.MapFS{"class/kfd/kfd/x": file, "class/drm/card0": file, "devices/pci0000:00/x": file,
		"module/amdgpu/version": file}
	machine := fstest.MapFS{
		"fs/cgroup/x": file, "class/drm/card7": file, "class/tty/x": file, "class/lnk": link("../devices"),
		"devices/system/cpu":       file,
		"devices/pci0000:00/other": file, "module/amdgpu/other": file, "module/kvm/x": file, "kernel": file,
	}
	got, err := planSys(tree, machine)
	if err != nil {
		t.Fatal(err)
	}
	want := []sysOp{
		{Path: "class/lnk", Link: "../devices", File: true}, {Path: "class/tty"},
		{Path: "devices/system"}, {Path: "fs"},
		{Path: "kernel", File: true}, {Path: "module/kvm"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("plan %+v\nexpected %+v", got, want)
	}
	dir := t.TempDir()
	for _, d := range []string{"class", "devices", "module"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a second start finds what the first made
		mounts, err := prepareSys(dir, got)
		if err != nil || !slices.Equal(mounts, []string{"class/tty", "devices/system", "fs", "kernel", "module/kvm"}) {
			t.Errorf("mounts %v, %v", mounts, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "class/lnk")); err != nil || target != "../devices" {
		t.Errorf("link to %q, %v", target, err)
	}
}

func TestContainerSpec(t *testing.T) {
	const defaults = `{"process":{"env":["PATH=/bin"],"args":["x"]},"mounts":[{"destination":"/proc","type":"proc"},{"destination":"/sys","type":"sysfs"},{"destination":"/sys/fs/cgroup","type":"cgroup"}]}`
	data, err := containerSpec([]byte(defaults))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Process struct{ Env, Args []string }
		Mounts  []struct {
			Destination, Type, Source string
			Options                   []string
		}
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(spec.Process.Env, []string{"PATH=/bin", "SIMROCM_ROOT=/run/simrocm"}) ||
		len(spec.Process.Args) != 1 {
		t.Errorf("process %+v", spec.Process)
	}
	var at []string
	for _, m := range spec.Mounts {
		at = append(at, m.Destination)
		if m.Type == "bind" && !slices.Contains(m.Options, "ro") {
			t.Errorf("%s can be written to", m.Destination)
		}
	}
	if !slices.Equal(at, []string{"/proc", "/sys", "/run/simrocm"}) {
		t.Errorf("mounts at %v", at)
	}
	for _, bad := range []string{"", "{}", `{"process":{}}`, `{"process":1,"mounts":[]}`} {
		if _, err := containerSpec([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzContainerSpec(f *testing.F) {
	f.Add([]byte(`{"process":{"env":[]},"mounts":[]}`))
	f.Fuzz(func(t *testing.T, defaults []byte) {
		out, err := containerSpec(defaults)
		if err == nil && !strings.Contains(string(out), treeVariable) {
			t.Errorf("%q gives a container that does not know that it is simulated: %s", defaults, out)
		}
	})
}

func TestAllocation(t *testing.T) {
	all := allocation(deviceIDs(8), 8)
	if _, masked := all.Env[visibleVariable]; masked {
		t.Error("a container with all GPUs got a mask")
	}
	if all.Env[fabricVariable] != containerFabric || len(all.Mounts) != 1 {
		t.Errorf("allocation %+v lacks the network", all)
	}
	if some := allocation([]string{"gpu-5", "gpu-2"}, 8); some.Env[visibleVariable] != "2,5" {
		t.Errorf("a container with GPUs 5 and 2 got the mask %q, expected 2,5", some.Env[visibleVariable])
	}
}
