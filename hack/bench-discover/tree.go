package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// system is a node to look at.
type system struct {
	name   string
	model  string
	change func(*nodetree.Node)
	// timed systems are measured, the others only compared.
	timed bool
}

var systems = []system{
	{"MI300X SPX, 8 devices", "MI300X", nil, true},
	{"MI300X CPX, 64 devices", "MI300X", func(n *nodetree.Node) { n.Partition = nodetree.CPX }, true},
	{"MI250X, 8 dies", "MI250X", nil, false},
	{"MI210, two hives", "MI210", nil, false},
	{"MI300X, a pair over PCIe", "MI300X",
		func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 2, B: 5, Kind: nodetree.LinkPCIe}} }, false},
	{"MI300X, a pair without a link", "MI300X",
		func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 2, B: 5, Kind: nodetree.LinkNone}} }, false},
}

// write writes the system's tree, and for rocm-smi what it needs of a real host and the simulator does not write.
func (s *system) write(dir string) error {
	n, err := nodetree.Defaults(s.model)
	if err != nil {
		return err
	}
	n.Name = "bench-node"
	if s.change != nil {
		s.change(&n)
	}
	if err := nodetree.Write(dir, n); err != nil {
		return err
	}
	return dress(dir)
}

const drmDir = "sys/class/drm"

// dress changes what rocm-smi 5.2 (Debian 12) cannot do without. It looks only at card0 to card<N-1> of N cards
// (DiscoverAmdgpuDevices in rocm_smi_main.cc), while an MI300X's are 1, 9, 17 and so on; and throws where hwmon has no
// in0_label, which an MI300X does not have (setVoltSensorLabelMap). Newer versions run on the tree as it is, too.
func dress(dir string) error {
	addresses, err := cards(dir)
	if err != nil {
		return err
	}
	if err := removeCards(dir); err != nil {
		return err
	}
	for i, address := range addresses {
		device, err := filepath.EvalSymlinks(filepath.Join(dir, "sys/bus/pci/devices", address))
		if err != nil {
			return err
		}
		card := filepath.Join(device, "drm", fmt.Sprintf("card%d", i))
		if err := os.MkdirAll(card, 0o755); err != nil {
			return err
		}
		if err := os.Symlink("../..", filepath.Join(card, "device")); err != nil {
			return err
		}
		class := filepath.Join(dir, drmDir)
		target, err := filepath.Rel(class, card)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(class, filepath.Base(card))); err != nil {
			return err
		}
		monitors, err := filepath.Glob(filepath.Join(device, "hwmon/hwmon*"))
		if err != nil || len(monitors) == 0 {
			return fmt.Errorf("%s has no hwmon (%w)", address, err)
		}
		if err := os.WriteFile(filepath.Join(monitors[0], "in0_label"), []byte("vddgfx\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cards are the PCI addresses of the DRM cards, by their numbers: the order of rocm-smi.
func cards(dir string) ([]string, error) {
	numbers, err := cardNumbers(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, number := range numbers {
		device, err := filepath.EvalSymlinks(filepath.Join(dir, drmDir, fmt.Sprintf("card%d", number), "device"))
		if err != nil {
			return nil, err
		}
		if address := filepath.Base(device); strings.Count(address, ":") == 2 {
			list = append(list, address)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no card of a PCI device", filepath.Join(dir, drmDir))
	}
	return list, nil
}

func cardNumbers(dir string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(dir, drmDir))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), "card"); ok {
			if number, err := strconv.Atoi(text); err == nil {
				numbers = append(numbers, number)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func removeCards(dir string) error {
	numbers, err := cardNumbers(dir)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		link := filepath.Join(dir, drmDir, fmt.Sprintf("card%d", number))
		card, err := filepath.EvalSymlinks(link)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(card); err != nil {
			return err
		}
		if err := os.RemoveAll(link); err != nil {
			return err
		}
	}
	return nil
}
