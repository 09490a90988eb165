package engine

import (
	"strings"
	"testing"
)

func FuzzParseMaps(f *testing.F) {
	f.Add("7f00-7f10 r-xp 00000000 08:01 42   /usr/lib/a b.so\n7f20-7f30 rw-p 0 0:0 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMaps(strings.NewReader(text)) {
			if !strings.HasPrefix(m.path, "/") {
				t.Errorf("mapping %+v names no file", m)
			}
		}
	})
}

func TestMappedFile(t *testing.T) {
	maps := parseMaps(strings.NewReader("7f00-7f10 r-xp 00000000 08:01 42   /usr/lib/librccl.so.1.0\n" +
		"7f20-7f30 rw-p 00000000 00:00 0 \n7f30-7f40 rw-p 00000000 00:00 0   [heap]\n"))
	if len(maps) != 1 || maps[0] != (mapping{0x7f00, 0x7f10, "/usr/lib/librccl.so.1.0"}) {
		t.Errorf("parseMaps = %+v", maps)
	}
}
