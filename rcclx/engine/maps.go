package engine

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mapping is one line of /proc/self/maps that names a file.
type mapping struct {
	start, end uint64
	path       string
}

// parseMaps reads the form of /proc/<pid>/maps (proc_pid_maps(5)); lines that name no file are left out.
func parseMaps(r io.Reader) []mapping {
	var all []mapping
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		from, to, ok := strings.Cut(fields[0], "-")
		start, errStart := strconv.ParseUint(from, 16, 64)
		end, errEnd := strconv.ParseUint(to, 16, 64)
		if ok && errStart == nil && errEnd == nil {
			all = append(all, mapping{start, end, strings.Join(fields[5:], " ")})
		}
	}
	return all
}

func ownMaps() []mapping {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	return parseMaps(file)
}

// mappedFile is the file that an address of this process belongs to; empty where /proc cannot tell.
func mappedFile(address uintptr) string {
	for _, m := range ownMaps() {
		if uint64(address) >= m.start && uint64(address) < m.end {
			return m.path
		}
	}
	return ""
}

// mappedLibrary is a file already mapped whose base name starts with prefix; empty where there is none.
func mappedLibrary(prefix string) string {
	for _, m := range ownMaps() {
		if strings.HasPrefix(filepath.Base(m.path), prefix) {
			return m.path
		}
	}
	return ""
}
