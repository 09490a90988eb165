package preflight

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// parseHypervisor looks for the flag hypervisor of the first CPU in /proc/cpuinfo: bit 31 of ecx of CPUID leaf 1, which
// the library looks at.
func parseHypervisor(data []byte) (bool, error) {
	for line := range bytes.Lines(data) {
		name, value, found := bytes.Cut(line, []byte{':'})
		if !found || string(bytes.TrimSpace(name)) != "flags" {
			continue
		}
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			break // cut off: the flag may have been in the rest
		}
		for _, flag := range bytes.Fields(value) {
			if string(flag) == "hypervisor" {
				return true, nil
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("/proc/cpuinfo has no line of flags")
}

// parseCount reads a file of sysfs that holds one unsigned decimal number.
func parseCount(data []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.32q is not an unsigned number", data)
	}
	return n, nil
}

// kernelAddress writes a PCI address as sysfs does: lower case, four digits of domain. CUDA writes upper case, and
// NVIDIA's tools eight digits of domain.
func kernelAddress(text string) string {
	domain, rest, found := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ":")
	if !found || strings.Trim(domain, "0123456789abcdef") != "" {
		return strings.ToLower(strings.TrimSpace(text)) // no address
	}
	for len(domain) > 4 && domain[0] == '0' {
		domain = domain[1:]
	}
	return domain + ":" + rest
}
