package discover

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
)

// nodeProperties are the keys of KFD's nodes/N/properties that matter here; nil is a key that this kernel does not
// write (drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show).
type nodeProperties struct {
	CPUCores, SIMDCount, SIMDPerCU, NumXCC *uint64
	GFXTargetVersion, VendorID, DeviceID   *uint64
	LocationID, Domain, RenderMinor        *uint64
	HiveID, UniqueID, LocalMemSize         *uint64
	FWVersion, SDMAFWVersion               *uint64
}

func (p *nodeProperties) field(key []byte) **uint64 {
	switch string(key) {
	case "cpu_cores_count":
		return &p.CPUCores
	case "simd_count":
		return &p.SIMDCount
	case "simd_per_cu":
		return &p.SIMDPerCU
	case "num_xcc":
		return &p.NumXCC
	case "gfx_target_version":
		return &p.GFXTargetVersion
	case "vendor_id":
		return &p.VendorID
	case "device_id":
		return &p.DeviceID
	case "location_id":
		return &p.LocationID
	case "domain":
		return &p.Domain
	case "drm_render_minor":
		return &p.RenderMinor
	case "hive_id":
		return &p.HiveID
	case "unique_id":
		return &p.UniqueID
	case "local_mem_size":
		return &p.LocalMemSize
	case "fw_version":
		return &p.FWVersion
	case "sdma_fw_version":
		return &p.SDMAFWVersion
	}
	return nil
}

// propertyNames are the names that field knows.
var propertyNames = [...]string{"cpu_cores_count", "simd_count", "simd_per_cu", "num_xcc", "gfx_target_version",
	"vendor_id", "device_id", "location_id", "domain", "drm_render_minor", "hive_id", "unique_id", "local_mem_size",
	"fw_version", "sdma_fw_version"}

// present has a bit for each of propertyNames that the file has.
func (p *nodeProperties) present() uint32 {
	mask := uint32(0)
	for i, value := range [len(propertyNames)]*uint64{p.CPUCores, p.SIMDCount, p.SIMDPerCU, p.NumXCC,
		p.GFXTargetVersion, p.VendorID, p.DeviceID, p.LocationID, p.Domain, p.RenderMinor, p.HiveID, p.UniqueID,
		p.LocalMemSize, p.FWVersion, p.SDMAFWVersion} {
		if value != nil {
			mask |= 1 << i
		}
	}
	return mask
}

// linkProperties are the keys of io_links/M/properties and p2p_links/M/properties (kfd_topology.c, iolink_show).
type linkProperties struct {
	Type, From, To, Weight, MinBandwidth, MaxBandwidth, Flags *uint64
}

func (p *linkProperties) field(key []byte) **uint64 {
	switch string(key) {
	case "type":
		return &p.Type
	case "node_from":
		return &p.From
	case "node_to":
		return &p.To
	case "weight":
		return &p.Weight
	case "min_bandwidth":
		return &p.MinBandwidth
	case "max_bandwidth":
		return &p.MaxBandwidth
	case "flags":
		return &p.Flags
	}
	return nil
}

// parseProperties reads "name value" lines. Unknown names are skipped, whatever their value. A known name without a
// decimal value, or a line with a NUL or without a value, makes the file malformed; what was read before stays set.
func parseProperties(data []byte, field func(key []byte) **uint64) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errEmpty
	}
	// The numbers lie together: a node of 64 devices has 30000 of them.
	numbers := make([]uint64, 0, 8)
	line := 0
	for len(data) > 0 {
		var text []byte
		text, data, _ = bytes.Cut(data, []byte{'\n'})
		line++
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		key, value, found := bytes.Cut(text, []byte{' '})
		if !found {
			return malformedf("line %d (%.32q) has no value: the file is cut or not as the kernel writes it",
				line, text)
		}
		if bytes.IndexByte(key, 0) >= 0 {
			return malformedf("line %d (%.32q) has a NUL byte", line, text)
		}
		target := field(key)
		if target == nil {
			continue
		}
		n, err := parseUint(bytes.TrimSpace(value))
		if err != nil {
			return malformedf("line %d: value of %s: %v", line, key, err)
		}
		if len(numbers) == cap(numbers) {
			numbers = make([]uint64, 0, 8)
		}
		numbers = append(numbers, n)
		*target = &numbers[len(numbers)-1]
	}
	return nil
}

// parseUint reads an unsigned decimal number; no sign, no space, nothing else.
func parseUint(text []byte) (uint64, error) {
	if len(text) == 0 {
		return 0, malformedf("no number")
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, malformedf("%.32q is not a decimal number", text)
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, malformedf("%.32q does not fit 64 bits", text)
		}
		n = n*10 + digit
	}
	return n, nil
}

// parseUintFile reads a file that holds one unsigned decimal number.
func parseUintFile(data []byte) (uint64, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return 0, errEmpty
	}
	return parseUint(text)
}

// parseIntFile reads a file that holds one signed decimal number, such as numa_node.
func parseIntFile(data []byte) (int64, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return 0, errEmpty
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, malformedf("%.32q is not a decimal number", text)
	}
	return n, nil
}

// parseHexFile reads a file that holds one hexadecimal number with or without 0x, such as vendor or unique_id.
func parseHexFile(data []byte) (uint64, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return 0, errEmpty
	}
	digits := text
	if len(digits) > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') {
		digits = digits[2:]
	}
	n, err := strconv.ParseUint(string(digits), 16, 64)
	if err != nil {
		return 0, malformedf("%.32q is not a hexadecimal number", text)
	}
	return n, nil
}

// parseErrorCounts reads ras/<block>_err_count: "ue: N\nce: N\n" with an optional "de: N" (amdgpu_ras.c,
// amdgpu_ras_sysfs_read).
func parseErrorCounts(data []byte) (ErrorCounts, error) {
	var (
		counts ErrorCounts
		ue, ce *uint64
	)
	if len(bytes.TrimSpace(data)) == 0 {
		return counts, errEmpty
	}
	if bytes.Contains(data, []byte("Query currently inaccessible")) {
		return counts, errBusyText
	}
	for _, line := range bytes.Split(data, []byte{'\n'}) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		key, value, found := bytes.Cut(line, []byte{':'})
		if !found {
			return counts, malformedf("line %.32q is not \"name: number\"", line)
		}
		n, err := parseUint(bytes.TrimSpace(value))
		if err != nil {
			return counts, malformedf("counter %.16q: %v", key, err)
		}
		switch strings.ToLower(string(bytes.TrimSpace(key))) {
		case "ue":
			ue = &n
		case "ce":
			ce = &n
		case "de":
			counts.Deferred = &n
		}
	}
	if ue == nil || ce == nil {
		return counts, malformedf("no ue or no ce line in %.64q", data)
	}
	counts.Uncorrectable, counts.Correctable = *ue, *ce
	return counts, nil
}

// rocmVersion is the format of ROCm's version files: 6.4.1-83, 7.2.4, 10.0.0, 6.4.1-83-gfx942; and of TheRock's
// development builds, nightly builds and release candidates, for wheels, Debian and rpm (TheRock
// build_tools/compute_rocm_package_version.py): 7.12.0.dev0+1a2b3c4d, 7.14.0a20260601, 7.12.0rc1, 7.12.0~dev20251203,
// 7.12.0~20251203g1a2b3c4d, 7.12.0~pre2. A build number of digits is left out; the commit of a development build is all
// that tells it from others.
var rocmVersion = regexp.MustCompile(`^(\d+(?:\.\d+){0,3}` +
	`(?:[a-z]+\d*|\.(?:dev|post)\d+|~(?:[a-z]+\d*|\d+)(?:g[0-9a-f]+)?)?` +
	`(?:\+[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*)?)` +
	`(?:-[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*(?:-gfx[0-9a-f]+)?)?$`)

// parseROCmVersion returns the version without the build number.
func parseROCmVersion(data []byte) (string, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return "", errEmpty
	}
	if len(text) > 64 {
		return "", malformedf("%.64q... is not a ROCm version", text)
	}
	m := rocmVersion.FindSubmatch(text)
	if m == nil {
		return "", malformedf("%q is not a ROCm version", text)
	}
	return string(m[1]), nil
}

var rocmHeader = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+ROCM_VERSION_(MAJOR|MINOR|PATCH)[ \t]+(\d{1,4})\b`)

// parseROCmHeader reads rocm_version.h.
func parseROCmHeader(data []byte) (string, error) {
	parts := map[string]string{}
	for _, m := range rocmHeader.FindAllSubmatch(data, -1) {
		parts[string(m[1])] = string(m[2])
	}
	if len(parts) != 3 {
		return "", malformedf("ROCM_VERSION_MAJOR, MINOR and PATCH are not all defined")
	}
	return parts["MAJOR"] + "." + parts["MINOR"] + "." + parts["PATCH"], nil
}

var rocmCoreLink = regexp.MustCompile(`librocm-core\.so\.1\.0\.(\d{5,6})$`)

// parseROCmCoreLink reads the target of librocm-core.so.1: librocm-core.so.1.0.60401 is 6.4.1.
func parseROCmCoreLink(target string) (string, error) {
	m := rocmCoreLink.FindStringSubmatch(target)
	if m == nil {
		return "", malformedf("link target %.64q is not librocm-core.so.1.0.<version>", target)
	}
	return releaseOf(m[1]), nil
}

// releaseOf is the ROCm release that five or six digits of a library's name stand for: 60401 is 6.4.1.
func releaseOf(digits string) string {
	n, _ := strconv.Atoi(digits) // six digits always are a number
	return join(n/10000, n/100%100, n%100)
}

// gfxTarget is the compiler's name for a gfx_target_version: major in decimal, minor and stepping in hexadecimal.
// 90402 is gfx942, 90010 is gfx90a; "" for 0, which CPUs have.
func gfxTarget(version uint64) string {
	if version == 0 || version > 999999 {
		return ""
	}
	return "gfx" + strconv.FormatUint(version/10000, 10) + strconv.FormatUint(version/100%100, 16) +
		strconv.FormatUint(version%100, 16)
}

// pciAddress is domain:bus:device.0 of a KFD node. The low three bits of location_id are the partition on newer
// drivers and bits 31:28 were for a short time, so neither is part of the address.
func pciAddress(domain, location uint64) string {
	const hexDigits = "0123456789abcdef"
	bus, dev := location>>8&0xff, location>>3&0x1f
	b := make([]byte, 0, 16)
	d := strconv.FormatUint(domain, 16)
	for range 4 - min(4, len(d)) {
		b = append(b, '0')
	}
	b = append(b, d...)
	b = append(b, ':', hexDigits[bus>>4], hexDigits[bus&15], ':', hexDigits[dev>>4], hexDigits[dev&15], '.', '0')
	return string(b)
}

// partitionOf is the partition number in a location_id: its low three bits, or bits 31:28 on the drivers that used
// those.
func partitionOf(location uint64) int {
	if p := location & 7; p != 0 {
		return int(p)
	}
	return int(location >> 28 & 0xf)
}

// parsePartition reads current_compute_partition and current_memory_partition; "" with no error for UNKNOWN.
func parsePartition(data []byte, allowed map[string]bool) (string, error) {
	text := strings.ToUpper(string(bytes.TrimSpace(data)))
	switch {
	case text == "":
		return "", errEmpty
	case text == "UNKNOWN":
		return "", nil
	case allowed[text]:
		return text, nil
	}
	return "", malformedf("%.32q is not a partition mode", text)
}

var (
	computePartitions = map[string]bool{"SPX": true, "DPX": true, "TPX": true, "QPX": true, "CPX": true}
	memoryPartitions  = map[string]bool{"NPS1": true, "NPS2": true, "NPS4": true, "NPS8": true}
)

// parseLinkSpeed reads "32.0 GT/s PCIe" as 32000 (MT/s), and 0 for the kernel's "Unknown" or "Unknown speed"
// (drivers/pci/probe.c, pci_speed_string).
func parseLinkSpeed(data []byte) (int64, error) {
	if text := bytes.TrimSpace(data); string(text) == "Unknown" || string(text) == "Unknown speed" {
		return 0, nil
	}
	return parseThousandths(data, " GT/s")
}

// parseThousandths reads a number of at most three decimals before a unit as thousandths of it.
func parseThousandths(data []byte, unit string) (int64, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return 0, errEmpty
	}
	number, _, found := bytes.Cut(text, []byte(unit))
	whole, fraction, dot := strings.Cut(string(number), ".")
	if !found || whole == "" || len(whole) > 6 || len(fraction) > 3 || dot == (fraction == "") {
		return 0, malformedf("%.32q is not a number with the unit%s", text, unit)
	}
	n, err := parseUint([]byte(whole + (fraction + "000")[:3]))
	if err != nil {
		return 0, malformedf("%.32q is not a number with the unit%s", text, unit)
	}
	return int64(n), nil
}

// parseNUMANode reads numa_node; nil with no error where the firmware does not say (-1).
func parseNUMANode(data []byte) (*int32, error) {
	n, err := parseIntFile(data)
	if err != nil || n < 0 || n >= 1<<16 {
		return nil, err
	}
	return ptr.To(int32(n)), nil
}

// parseProductName reads product_name, the board's own name (amdgpu_fru_eeprom.c); "" where its EEPROM has none.
func parseProductName(data []byte) (string, error) { return printable(data, 48), nil }
