package rcclx

import (
	"strings"
	"testing"
)

func TestDirect(t *testing.T) {
	env := func(pairs ...string) Settings {
		var s Settings
		for i := 0; i < len(pairs); i += 2 {
			s.Env = append(s.Env, EnvVar{pairs[i], pairs[i+1]})
		}
		return s
	}
	for _, tt := range []struct {
		name   string
		f      Flavor
		s      Settings
		c      Collective
		size   int64
		ranks  int
		nodes  int
		gfx    string
		want   Path
		reason string
	}{
		{"gather on MI300X", FlavorRCCLXDev, env(), AllGather, 4 << 20, 8, 1, "gfx942:sramecc+:xnack-",
			PathDirect, "all peers"},
		{"gather on MI300X over", FlavorRCCLXDev, env(), AllGather, 4<<20 + 128, 8, 1, "gfx942", PathRingTree,
			"4194304 bytes (4 MiB) on gfx942"},
		{"gather on MI350X", FlavorRCCLXDev, env(), AllGather, 8 << 20, 8, 1, "gfx950", PathDirect, ""},
		{"gather on MI350X over", FlavorRCCLXDev, env(), AllGather, 8<<20 + 128, 8, 1, "gfx950", PathRingTree, "8 MiB"},
		{"gather on MI350X over four nodes", FlavorRCCLXDev, env(), AllGather, 8 << 20, 32, 4,
			"gfx950", PathDirect, ""},
		{"gather on MI350X over two nodes", FlavorRCCLXDev, env(), AllGather, 8 << 20, 16, 2, "gfx950",
			PathRingTree, "4 MiB"},
		{"gather on MI350X over 64 nodes", FlavorRCCLXDev, env(), AllGather, 72 << 20, 512, 64,
			"gfx950", PathDirect, ""},
		{"gather on MI210", FlavorRCCLXDev, env(), AllGather, 1 << 20, 8, 1, "gfx90a", PathRingTree, "not gfx90a"},
		{"gather on any GPU that it knows", FlavorRCCLXDev, env(), AllGather, 4 << 20, 8, 1, "", PathDirect, ""},
		{"gather depends on the GPU", FlavorRCCLXDev, env(), AllGather, 8 << 20, 8, 1, "", PathStandard,
			"4 MiB on gfx942 and 8 MiB on gfx950"},
		{"gather over all limits", FlavorRCCLXDev, env(), AllGather, 16 << 20, 8, 1, "", PathRingTree, "8 MiB"},
		{"gather of four ranks", FlavorRCCLXDev, env(), AllGather, 1 << 20, 4, 1, "gfx942", PathRingTree,
			"multiple of 8 ranks"},
		{"gather switched off by a zero", FlavorRCCLXDev, env("RCCL_DIRECT_ALLGATHER_DISABLE", "0"), AllGather, 1 << 20,
			8, 1, "gfx942", PathRingTree, "is set"},
		{"gather with a limit of one's own", FlavorRCCLXDev, env("RCCL_DIRECT_ALLGATHER_THRESHOLD", "1024"), AllGather,
			2048, 8, 1, "gfx942", PathRingTree, "1024 bytes (1 KiB)"},
		{"gather with limit -1", FlavorRCCLXDev, env("RCCL_DIRECT_ALLGATHER_THRESHOLD", "-1"), AllGather, 2048, 8, 1,
			"gfx942", PathRingTree, "=-1"},
		{"gather with limit -2", FlavorRCCLXDev, env("RCCL_DIRECT_ALLGATHER_THRESHOLD", "-2"), AllGather, 1 << 40, 8, 1,
			"gfx942", PathDirect, ""},
		{"stable ignores a limit", FlavorRCCLXStable, env("RCCL_DIRECT_ALLGATHER_THRESHOLD", "1024"), AllGather, 2048,
			8, 1, "gfx942", PathDirect, ""},
		{"stable ignores the switch", FlavorRCCLXStable, env("RCCL_DIRECT_ALLGATHER_DISABLE", "1"), AllGather, 2048, 8,
			1, "gfx942", PathDirect, ""},
		{"stable has limit -1", FlavorRCCLXStable, env("RCCL_DIRECT_ALLGATHER_THRESHOLD", "-1"), AllGather, 2048, 8, 1,
			"gfx942", PathRingTree, "=-1"},
		{"rccl depends on the release", FlavorRCCL, env(), AllGather, 1 << 20, 8, 1, "gfx942", PathStandard, "release"},
		{"nccl", FlavorNCCL, env(), AllGather, 1 << 20, 8, 1, "", PathRingTree, "no direct AllGather"},

		{"scatter on one node", FlavorRCCLXDev, env(), ReduceScatter, 1 << 20, 8, 1, "gfx950", PathRingTree,
			"2, 4 or 8 nodes"},
		{"scatter over four nodes", FlavorRCCLXDev, env(), ReduceScatter, 2 << 20, 32, 4, "gfx950", PathDirect, ""},
		{"scatter over four nodes over", FlavorRCCLXDev, env(), ReduceScatter, 4 << 20, 32, 4, "gfx950",
			PathRingTree, "2 MiB"},
		{"scatter over two nodes has no PXN", FlavorRCCLXDev, env(), ReduceScatter, 1 << 20, 16, 2, "gfx950",
			PathRingTree, "from 32 ranks"},
		{"scatter over two nodes with PXN", FlavorRCCLXDev, env("NCCL_PXN_DISABLE", "0"), ReduceScatter, 1 << 20, 16, 2,
			"gfx950", PathDirect, ""},
		{"scatter over two nodes, small", FlavorRCCLXDev, env("NCCL_PXN_DISABLE", "0"), ReduceScatter, 64 << 10, 16, 2,
			"gfx950", PathRingTree, "128 KiB"},
		{"scatter without PXN", FlavorRCCLXDev, env("NCCL_PXN_DISABLE", "1"), ReduceScatter, 1 << 20, 32, 4, "gfx950",
			PathRingTree, "NCCL_PXN_DISABLE"},
		{"scatter on MI300X", FlavorRCCLXDev, env(), ReduceScatter, 1 << 20, 32, 4, "gfx942",
			PathRingTree, "not gfx942"},
		{"scatter depends on the GPU", FlavorRCCLXDev, env(), ReduceScatter, 1 << 20, 32, 4, "",
			PathStandard, "gfx950"},
		{"scatter with a limit of one's own", FlavorRCCLXDev, env("RCCL_DIRECT_REDUCE_SCATTER_THRESHOLD", "1024"),
			ReduceScatter, 1 << 20, 32, 4, "gfx950", PathStandard, "not known"},
		{"scatter switched off", FlavorRCCLXDev, env("RCCL_DIRECT_REDUCE_SCATTER_DISABLE", "1"), ReduceScatter, 1 << 20,
			32, 4, "gfx950", PathRingTree, "is set"},
		{"scatter on stable", FlavorRCCLXStable, env(), ReduceScatter, 1 << 20, 32, 4, "gfx950", PathRingTree,
			"no direct ReduceScatter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Call{Collective: tt.c, Datatype: BFloat16, Op: "Sum", SizeBytes: tt.size, Ranks: tt.ranks,
				Nodes: tt.nodes, GFX: tt.gfx}
			got, reason := ExpectedPath(tt.f, Baseline, tt.s, c)
			if got != tt.want || !strings.Contains(reason, tt.reason) {
				t.Errorf("%s, %q; want %s with %q", got, reason, tt.want, tt.reason)
			}
		})
	}
}

func TestGFXOf(t *testing.T) {
	for name, want := range map[string]string{"AMD Instinct MI300X": "gfx942", "AMD Instinct MI300X OAM": "gfx942",
		"AMD Instinct MI355X (simulated)": "gfx950", "MI250X / MI250": "gfx90a", "NVIDIA H100 80GB HBM3": "", "": "",
		"AMD Radeon Graphics": ""} {
		if got := GFXOf(name); got != want {
			t.Errorf("GFXOf(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestHumanBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 15: "15 B", 1023: "1023 B", 1024: "1 KiB",
		1500: "1.46 KiB", 1536: "1.5 KiB", 204800: "200 KiB", 30408704: "29 MiB", 1<<20 - 1: "1 MiB",
		16<<20 - 1: "16 MiB", 2415919104: "2.25 GiB", 1 << 40: "1 TiB", 1 << 60: "1048576 TiB"} {
		if got := HumanBytes(n); got != want {
			t.Errorf("HumanBytes(%d) = %q, want %q", n, got, want)
		}
	}
}
