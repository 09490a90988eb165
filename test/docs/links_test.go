// Package docs tests the repository's pages: links lead somewhere, and YAML is what an API server takes.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// pages are the Markdown files of the repository by their path from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root, out := testenv.Root(), map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		out[filepath.ToSlash(relative)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d pages below %s", len(out), root)
	}
	return out
}

// page is a Markdown page taken apart.
type page struct {
	anchors map[string]bool
	links   []string
	yaml    []string
}

var (
	linkShape   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	anchorShape = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	fenceShape  = regexp.MustCompile("^( *)(```+|~~~+) *([a-zA-Z]*)")
)

// read takes a page apart; what stands in a fence is neither heading nor link.
func read(text string) page {
	p := page{anchors: map[string]bool{}}
	fence, indent, language := "", "", ""
	var block []string
	for line := range strings.SplitSeq(text, "\n") {
		if m := fenceShape.FindStringSubmatch(line); m != nil && (fence == "" || strings.HasPrefix(m[2], fence)) {
			if fence != "" {
				if language == "yaml" || language == "yml" {
					p.yaml = append(p.yaml, strings.Join(block, "\n"))
				}
				fence, block = "", nil
			} else {
				indent, fence, language = m[1], m[2], m[3]
			}
			continue
		}
		if fence != "" {
			block = append(block, strings.TrimPrefix(line, indent))
			continue
		}
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			anchor := reasons.Anchor(strings.TrimSpace(title))
			for i := 1; p.anchors[anchor]; i++ {
				anchor = reasons.Anchor(strings.TrimSpace(title)) + "-" + strconv.Itoa(i)
			}
			p.anchors[anchor] = true
		}
		for _, m := range anchorShape.FindAllStringSubmatch(line, -1) {
			p.anchors[m[1]] = true
		}
		for _, m := range linkShape.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, "code"), -1) {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

func TestRead(t *testing.T) {
	p := read("# A `b` c!\n## Same\n## Same\n[x](y.md#z) `[no](code.md)`\n```yaml\n# no heading\n[no](fence.md)\n" +
		"kind: A\n```\n  ```yaml\n  b: c\n  ```\n<a id=\"own\"></a>\n")
	for _, want := range []string{"a-b-c", "same", "same-1", "own"} {
		if !p.anchors[want] {
			t.Errorf("no anchor %q in %v", want, p.anchors)
		}
	}
	if len(p.links) != 1 || p.links[0] != "y.md#z" || len(p.yaml) != 2 || p.yaml[1] != "b: c" || len(p.anchors) != 4 {
		t.Errorf("%+v", p)
	}
}

// TestLinks: each relative link leads to a file that is there, and to a heading that it has.
func TestLinks(t *testing.T) {
	all := map[string]page{}
	for path, text := range pages(t) {
		all[path] = read(text)
	}
	links := 0
	for path, p := range all {
		for _, link := range p.links {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			links++
			target, anchor, _ := strings.Cut(link, "#")
			to := path
			if target != "" {
				to = filepath.ToSlash(filepath.Clean(filepath.Join(filepath.Dir(path), target)))
			}
			if _, err := os.Stat(filepath.Join(testenv.Root(), to)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, link)
				continue
			}
			if other, isPage := all[to]; anchor != "" && isPage && !other.anchors[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", path, link, to)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links", links)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("# A\n```yaml\na: b\n```\n[x](y)\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range read(text).links {
			if strings.ContainsAny(l, " \n)") {
				t.Errorf("link %q", l)
			}
		}
	})
}
