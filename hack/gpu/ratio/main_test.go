package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const report = `{"ranks":2,"results":[{"collective":"AllReduce","datatype":"BFloat16","placement":"OutOfPlace","sizeBytes":1000000,
"latency":{"medianNanoseconds":9},"meanLatencyNanoseconds":%,"checks":[{"checkedElements":5,"wrongElements":#}]}]}`

func reported(mean, wrong string) string {
	return strings.NewReplacer("%", mean, "#", wrong).Replace(report)
}

func TestRatio(t *testing.T) {
	ours := []string{write(t, "a.json", reported("10000", "0")), write(t, "b.json", reported("30000", "0"))}
	theirs := write(t, "c.json",
		"["+reported("40000", "0")+","+strings.Replace(reported("7000", "0"), "OutOfPlace", "InPlace", 1)+"]")
	var out bytes.Buffer
	if err := run(append(ours, "--", theirs), &out); err != nil {
		t.Fatal(err)
	}
	// Medians 20 and 40 us: 50 and 25 GB/s over two ranks.
	for _, want := range []string{"20.00 (10.00..30.00)", "40.00 (40.00..40.00)", "-20.00", " 50.00 ", " 25.00 ",
		" 2.000", "one side only: AllReduce BFloat16 InPlace at [1000000] bytes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

func TestRefused(t *testing.T) {
	good := write(t, "good.json", reported("10000", "0"))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no separator": {[]string{good}, "usage"},
		"wrong data":   {[]string{write(t, "x.json", reported("10000", "3")), "--", good}, "3 wrong elements"},
		"failed run": {[]string{good, "--", write(t, "x.json", `{"failure":{"message":"rank 1 hangs"}}`)},
			"rank 1 hangs"},
		"not a report": {[]string{good, "--", write(t, "x.json", "hello")}, "is not what"},
	} {
		if err := run(tt.args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
