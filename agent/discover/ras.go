package discover

import (
	"bytes"
	"sort"
	"strings"
)

const (
	// rasSuffix ends the name of a block's error counters in a GPU's ras directory (amdgpu_ras.c,
	// amdgpu_ras_sysfs_create).
	rasSuffix = "_err_count"
	// maxRASBlocks bounds the files of one GPU; the driver has about 20 blocks.
	maxRASBlocks = 64
	// maxBadPagesBytes is 37000 pages. A read of the file gives as many whole lines as fit a page of the kernel, so
	// that it is short before the end (amdgpu_ras.c, amdgpu_ras_sysfs_badpages_read).
	maxBadPagesBytes = 1 << 20
)

// RASBlockXGMI is the block of xGMI and WAFL links.
const RASBlockXGMI = "xgmi_wafl"

// rasFacts is what a GPU's ras directory tells.
type rasFacts struct {
	blocks map[string]ErrorCounts
	pages  *badPages
	// files are the names that count something, whether they could be read or not; nil where there is no ras directory.
	files map[string]bool
}

// badPages counts a GPU's bad memory pages.
type badPages struct {
	// retired pages are reserved, or will be soon: nothing uses them.
	retired int
	// unreserved pages are bad, and could not be taken out of use.
	unreserved int
}

// readRAS reads every counter that the GPU's ras directory lists. A block without a file has no RAS: it is absent, not
// zero. A GPU without the directory, such as a virtual function, gives nothing and is no error.
func readRAS(r *reader, dir string, unread *[]*ReadError) rasFacts {
	var facts rasFacts
	names, rerr := r.dir(dir + "ras")
	if rerr != nil {
		if rerr.Class != ClassMissing {
			*unread = append(*unread, rerr)
		}
		return facts
	}
	sort.Strings(names)
	facts.files = map[string]bool{}
	for _, name := range names {
		if name == "gpu_vram_bad_pages" {
			facts.files[name] = true
			path := dir + "ras/" + name
			data, rerr := r.toEnd(path, maxBadPagesBytes)
			facts.pages = parsed(path, data, rerr, parseBadPages, unread)
			continue
		}
		block, isCounter := strings.CutSuffix(name, rasSuffix)
		if !isCounter || block == "" || len(facts.blocks) == maxRASBlocks {
			continue
		}
		facts.files[name] = true
		counts := field(r, dir+"ras/"+name, parseErrorCounts, unread)
		if counts == nil {
			continue
		}
		if facts.blocks == nil {
			facts.blocks = make(map[string]ErrorCounts, len(names))
		}
		facts.blocks[block] = *counts
	}
	return facts
}

// apply puts what was read into the GPU.
func (f *rasFacts) apply(g *GPU) {
	g.RAS, g.rasFiles = f.blocks, f.files
	if f.pages != nil {
		retired := f.pages.retired
		g.RetiredPages, g.unreservedPages = &retired, f.pages.unreserved
	}
	if xgmi, ok := f.blocks[RASBlockXGMI]; ok {
		g.XGMIUncorrectableErrors, g.XGMICorrectableErrors = &xgmi.Uncorrectable, &xgmi.Correctable
	}
}

// parseBadPages reads gpu_vram_bad_pages: a line "0x<page> : 0x<size> : <flag>" for each page (amdgpu_ras.c,
// amdgpu_ras_sysfs_badpages_read), where R is reserved, P will be reserved, and F could not be. No line is no bad page.
func parseBadPages(data []byte) (badPages, error) {
	var pages badPages
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		page, rest, first := bytes.Cut(line, []byte{':'})
		size, flag, second := bytes.Cut(rest, []byte{':'})
		if !first || !second {
			return badPages{}, malformedf("line %.48q is not \"page : size : flag\"", line)
		}
		for _, number := range [][]byte{page, size} {
			if _, err := parseHexFile(number); err != nil {
				return badPages{}, malformedf("line %.48q: %v", line, err)
			}
		}
		switch string(bytes.TrimSpace(flag)) {
		case "R", "P":
			pages.retired++
		case "F":
			pages.unreserved++
		default:
			return badPages{}, malformedf("line %.48q has flag %.8q; expected R, P or F", line, bytes.TrimSpace(flag))
		}
	}
	return pages, nil
}
