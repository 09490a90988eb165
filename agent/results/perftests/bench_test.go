package perftests

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkParse reads 4 MiB of each form: what it costs is to grow with the size alone.
func BenchmarkParse(b *testing.B) {
	for name, text := range largeInputs(b, 4<<20) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := Parse("in", strings.NewReader(text), Options{}); err != nil && name != "no run" {
					b.Fatal(err)
				}
			}
		})
	}
}

// largeInputs are texts of at least that many bytes, by what they hold.
func largeInputs(tb testing.TB, bytes int) map[string]string {
	tb.Helper()
	read := func(name string) string {
		data, err := os.ReadFile("../testdata/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		return string(data)
	}
	repeat := func(text string) string { return strings.Repeat(text, bytes/len(text)+1) }
	text := read("nccl-tests-2.19.6-all_reduce.txt")
	const log = "node-a:12:34 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7 via P2P/IPC/read comm 0x55d0 nRanks 08\n"
	before, _, _ := strings.Cut(text, " bfloat16")
	first := strings.LastIndexByte(before, '\n') + 1
	row, _, _ := strings.Cut(text[first:], "\n")
	var pods strings.Builder
	for i := 0; pods.Len() < bytes; i++ {
		pods.WriteString(prefixed(text, func(int) string { return fmt.Sprintf("[pod/a-%d/x] ", i) }))
	}
	entries := make([]string, 0, bytes/100)
	for i := range bytes / 200 {
		entries = append(entries, strings.Replace(entry("AllReduce", "float", "sum", "0", "0"), `"numCycle":0`,
			fmt.Sprintf(`"numCycle":%d`, i), 1))
	}
	return map[string]string{
		"runs":       repeat(text),
		"runs, pods": pods.String(),
		"logs":       text + repeat(log),
		"no run":     repeat(log),
		"rows":       text[:first] + repeat(row+"\n"),
		"objects":    repeat(read("nccl-tests-2.19.6-all_reduce.json")),
		"entries":    strings.Join(entries, "\n"),
		"list":       "[" + strings.Join(entries, ",\n") + "]",
		"own":        repeat(read("report.json")),
		"logged":     prefixed(strings.Join(entries, "\n"), func(int) string { return "0: " }),
	}
}
