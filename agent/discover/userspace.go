package discover

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// headerBytes is how much of a header is looked at for its version, which stands before the declarations.
const headerBytes = MaxFileBytes

// readLibraries reads the versions of the HIP runtime and of RCCL in an installation from its texts and names, without
// loading anything; "" where they do not tell.
func readLibraries(r *reader, dir string) (hip, rccl string) {
	if dir == "" {
		return "", ""
	}
	dirs := []string{dir}
	if path.Base(dir) == "core" || strings.HasPrefix(path.Base(dir), "core-") {
		dirs = append(dirs, path.Dir(dir)) // from 7.14 libraries are in core, and headers may be linked beside it
	} else {
		dirs = append(dirs, dir+"/core")
	}
	for _, d := range dirs {
		if hip == "" {
			hip = readHIP(r, d)
		}
		if rccl == "" {
			rccl = readRCCL(r, d)
		}
	}
	return hip, rccl
}

// readHIP asks hipconfig's own file (share/hip/version, before 6.0 bin/.hipVersion), then the header, then the library.
func readHIP(r *reader, dir string) string {
	for _, name := range [...]string{"share/hip/version", "bin/.hipVersion", "include/hip/hip_version.h"} {
		if data, rerr := r.file(dir + "/" + name); rerr == nil {
			if version, err := parseHIPVersion(data); err == nil {
				return version
			}
		}
	}
	if path.Base(dir) == "torch" {
		if data, rerr := r.file(dir + "/version.py"); rerr == nil {
			if version, err := parseTorchHIP(data); err == nil {
				return version
			}
		}
	}
	for _, lib := range librariesOf(dir) {
		for _, name := range [...]string{"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"} {
			target, rerr := r.link(dir + "/" + lib + "/" + name)
			if rerr != nil {
				continue
			}
			if version, err := parseHIPLink(target); err == nil {
				return version
			}
		}
	}
	return ""
}

// readRCCL asks the header: the library's name has ROCm's version and not RCCL's.
func readRCCL(r *reader, dir string) string {
	for _, name := range [...]string{"include/rccl/rccl.h", "include/rccl.h"} {
		var s headerScan
		if _, rerr := r.stream(dir+"/"+name, headerBytes, s.add); rerr != nil {
			continue
		}
		if version, err := s.version(); err == nil {
			return version
		}
	}
	return ""
}

func librariesOf(dir string) []string {
	if dir == "usr" {
		return usrLibraryDirs
	}
	return libraryDirs
}

var hipVersion = regexp.MustCompile(
	`(?m)^[ \t]*(?:#[ \t]*define[ \t]+)?HIP_VERSION_(MAJOR|MINOR|PATCH)[ \t]*[= \t][ \t]*(\d{1,9})[ \t\r]*$`)

// parseHIPVersion reads hipconfig's file (HIP_VERSION_MAJOR=7) or hip_version.h: 6.4.43484. It is the runtime's
// version, which differs from ROCm's.
func parseHIPVersion(data []byte) (string, error) {
	parts := map[string]string{}
	for _, m := range hipVersion.FindAllSubmatch(data, -1) {
		parts[string(m[1])] = string(m[2])
	}
	if len(parts) != 3 {
		return "", malformedf("HIP_VERSION_MAJOR, MINOR and PATCH are not all there")
	}
	return parts["MAJOR"] + "." + parts["MINOR"] + "." + parts["PATCH"], nil
}

var hipLink = regexp.MustCompile(`libamdhip64\.so\.(\d{1,4})\.(\d{1,4})\.(\d{1,9})(?:-[0-9a-f]+)?$`)

// parseHIPLink reads what libamdhip64.so leads to. AMD's packages put ROCm's version where HIP's patch would be
// (libamdhip64.so.7.0.70002 is HIP 7.0 of ROCm 7.0.2); other builds have the patch itself (7.2.53211).
func parseHIPLink(target string) (string, error) {
	m := hipLink.FindStringSubmatch(target)
	if m == nil {
		return "", malformedf("link target %.64q is not libamdhip64.so.<version>", target)
	}
	release := m[1] + "." + m[2]
	if n, err := strconv.Atoi(m[3]); err == nil && strconv.Itoa(n/10000) == m[1] && n >= 10000 && len(m[3]) <= 6 {
		return release, nil
	}
	return release + "." + m[3], nil
}

var rcclLink = regexp.MustCompile(`librccl\.so\.1\.0\.(\d{5,6})$`)

// parseRCCLLink reads the ROCm version in what librccl.so.1 leads to: librccl.so.1.0.70002 is of ROCm 7.0.2.
func parseRCCLLink(target string) (string, error) {
	m := rcclLink.FindStringSubmatch(target)
	if m == nil {
		return "", malformedf("link target %.64q is not librccl.so.1.0.<version of ROCm>", target)
	}
	return releaseOf(m[1]), nil
}

var rcclDefine = regexp.MustCompile(
	`(?m)^[ \t]*#[ \t]*define[ \t]+NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE)[ \t]+(\d{1,8})[ \t\r]*$`)

// parseRCCLHeader reads rccl.h: NCCL_MAJOR, NCCL_MINOR and NCCL_PATCH, else NCCL_VERSION_CODE. 22707 is 2.27.7; before
// 2.9 the code has four digits, and 2803 is 2.8.3 (rccl src/nccl.h.in, NCCL_VERSION).
func parseRCCLHeader(data []byte) (string, error) {
	parts := map[string]int{}
	for _, m := range rcclDefine.FindAllSubmatch(data, -1) {
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			return "", malformedf("NCCL_%s is %s", m[1], m[2])
		}
		parts[string(m[1])] = n
	}
	_, major := parts["MAJOR"]
	_, minor := parts["MINOR"]
	_, patch := parts["PATCH"]
	code, coded := parts["VERSION_CODE"]
	switch {
	case major && minor && patch:
		return join(parts["MAJOR"], parts["MINOR"], parts["PATCH"]), nil
	case coded && code >= 10000:
		return join(code/10000, code/100%100, code%100), nil
	case coded && code >= 1000:
		return join(code/1000, code/100%10, code%100), nil
	}
	return "", malformedf("neither NCCL_MAJOR, MINOR and PATCH nor NCCL_VERSION_CODE is defined as a number")
}

func join(parts ...int) string {
	texts := make([]string, len(parts))
	for i, n := range parts {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ".")
}

// headerScan keeps a header until its version is known.
type headerScan struct{ data []byte }

// add takes a piece; more is false when the version is complete.
func (s *headerScan) add(chunk []byte) (more bool) {
	s.data = append(s.data, chunk...)
	at := bytes.LastIndexByte(s.data, '\n')
	if at < 0 {
		return true
	}
	_, err := parseRCCLHeader(s.data[:at+1])
	// The code comes after the three parts: where it stands alone, the parts can be on the next piece, and agree.
	return err != nil
}

func (s *headerScan) version() (string, error) { return parseRCCLHeader(s.data) }

// pythonParents are the directories that hold python3*/site-packages or dist-packages.
var pythonParents = []string{"usr/lib", "usr/local/lib", "opt/venv/lib", "opt/conda/lib"}

const (
	maxSites = 8
	// sdkWheel and torchWheel begin the names of wheels' directories of metadata.
	sdkWheel, torchWheel, metadata = "rocm_sdk_core-", "torch-", ".dist-info"
	sdkDir                         = "_rocm_sdk_core"
)

// wheels looks for ROCm in Python wheels: AMD's own (rocm_sdk_core from 7.9 on), and PyTorch's, which have libraries of
// their own, so that what a job loads may not be what opt/rocm has.
func (s *rocmScan) wheels() {
	sites := 0
	for _, parent := range pythonParents {
		for _, python := range s.list(tierDatabase, parent, true) {
			if !strings.HasPrefix(python, "python3") {
				continue
			}
			for _, kind := range [...]string{"site-packages", "dist-packages"} {
				if sites == maxSites {
					return
				}
				if dir := parent + "/" + python + "/" + kind; s.site(dir, s.list(tierDatabase, dir, true)) {
					sites++
				}
			}
		}
	}
}

// site looks at the names in one directory of packages; it reports whether there were any.
func (s *rocmScan) site(dir string, names []string) bool {
	sdk := ""
	for _, name := range names {
		if version, ok := wheelVersion(name, sdkWheel); ok {
			sdk = name
			v, err := parseROCmVersion([]byte(version))
			s.add(rocmSource{tier: tierDatabase, install: dir + "/" + sdkDir,
				ROCmSource: told(dir+"/"+name, v, []byte(version), err)})
		}
	}
	if sdk == "" && slices.Contains(names, sdkDir) {
		s.add(rocmSource{tier: tierDatabase, install: dir + "/" + sdkDir,
			ROCmSource: ROCmSource{Path: dir + "/" + sdkDir,
				Error: "no rocm_sdk_core-<version>.dist-info is beside it"}})
	}
	for _, name := range names {
		version, ok := wheelVersion(name, torchWheel)
		if !ok || !strings.Contains(version, "rocm") {
			continue
		}
		v, err := parseTorchROCm(version)
		s.add(rocmSource{tier: tierDatabase, install: dir + "/torch", hint: true,
			ROCmSource: told(dir+"/"+name, v, []byte(version), err)})
		library := dir + "/torch/lib/librccl.so"
		// EINVAL: it is there, and no link
		if _, rerr := s.r.link(library); rerr == nil || rerr.Class == ClassUnsupported {
			s.add(rocmSource{tier: tierDatabase, hint: true,
				ROCmSource: ROCmSource{Path: library, Raw: "RCCL of PyTorch " + printable([]byte(version), 48)}})
		}
	}
	return len(names) > 0
}

// wheelVersion cuts the version out of <wheel>-<version>.dist-info.
func wheelVersion(name, wheel string) (version string, ok bool) {
	rest, ok := strings.CutPrefix(name, wheel)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, metadata)
}

var torchROCm = regexp.MustCompile(`\+rocm(\d{1,3}(?:\.\d{1,3}){1,2})(?:[.a-z][0-9a-z.]*)?$`)

// parseTorchROCm reads the ROCm release that a PyTorch wheel was built with: 2.8.0+rocm6.4 gives 6.4.
func parseTorchROCm(version string) (string, error) {
	m := torchROCm.FindStringSubmatch(version)
	if m == nil {
		return "", malformedf("%.64q does not name a ROCm release", version)
	}
	return m[1], nil
}

var torchHIP = regexp.MustCompile(`(?m)^hip[^=\n]{0,32}=[ \t]*['"](\d{1,4}\.\d{1,4}\.\d{1,9})(?:-[0-9a-f]+)?['"]`)

// parseTorchHIP reads PyTorch's version.py: hip = '6.4.43484-123eb5128' is the HIP that the wheel was built with.
func parseTorchHIP(data []byte) (string, error) {
	m := torchHIP.FindSubmatch(data)
	if m == nil {
		return "", malformedf("no line hip = '<version>'")
	}
	return string(m[1]), nil
}
