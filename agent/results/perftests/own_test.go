package perftests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// ownJSON is a report of agent bench: simulated, six results, a pair, and a failure.
func ownJSON(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Wherever a report is cut, it stays agent bench's and simulated, and keeps each result that is whole.
func TestOwnReportCut(t *testing.T) {
	text := strings.TrimSpace(ownJSON(t))
	from := strings.Index(text, `"results": [`) + len(`"results": [`)
	for at := from; at < len(text); at += 13 {
		for _, cut := range []string{text[:at], "[" + text[:at], "[" + text + "," + text[:at]} {
			reports, err := Parse("in", strings.NewReader(cut), Options{})
			if err != nil {
				t.Fatalf("cut at %d: %v", at, err)
			}
			r := reports[len(reports)-1]
			want := strings.Count(text[:at], "\n    },\n    {\n      \"variant\"")
			if r.Source != results.SourceBench || !r.Simulated || r.Failure == nil || len(r.Results) < min(want, 5) {
				t.Fatalf("cut at %d: %s, simulated %v, failure %v, %d results, expected at least %d",
					at, r.Source, r.Simulated, r.Failure, len(r.Results), want)
			}
			if said := strings.Join(r.Warnings, " ") + r.Failure.Message; !strings.Contains(said,
				fmt.Sprintf("at byte %d (the file ends there, and was cut)", len(cut))) {
				t.Fatalf("cut at %d: %q", at, said)
			}
		}
	}
}

func TestOwnReportDamaged(t *testing.T) {
	good := ownJSON(t)
	good, _, _ = strings.Cut(good, ",\n  \"failure\"")
	good += "\n}\n" // without its own failure
	if r := one(t, good, Options{}); r.Failure != nil || len(r.Results) != 6 || !r.Simulated {
		t.Fatalf("%+v", r)
	}
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for name, tc := range map[string]struct {
		text    string
		results int
		want    string // said in the failure; empty where the report is no failed one
		warns   string
	}{
		"out of range": {change(`"sizeBytes": 8192`, `"sizeBytes": 1e400`), 5, "result 1 at byte", ""},
		"not a number": {change(`"medianNanoseconds": 12000`, `"medianNanoseconds": NaN`), 2,
			fmt.Sprintf("breaks off at byte %d (invalid character 'N'", strings.Index(good, "12000,")), ""},
		"simulated in quotes": {change(`"simulated": true`, `"simulated": "true"`), 6, "simulated at byte", ""},
		"not told":            {change(`  "simulated": true,`, ``), 6, "does not say whether it is simulated", ""},
		"flavor only": {change(`"simulated": true`, `"simulated": false`), 6, "",
			"its library is the simulated one"},
		"no size": {change(`"sizeBytes": 8192,`, ``), 5, "a size of 0 B", ""},
		"unknown collective": {change(`"collective": "AllReduce"`, `"collective": "Gather"`), 5,
			`collective "Gather" is not known`, ""},
		"negative": {change(`"wrongElements": 0`, `"wrongElements": -1`), 5, "-1 wrong", ""},
		"explained too much": {change(`"hazardElements": 2`, `"hazardElements": 4`), 5,
			"a hazard that explains 4 of 3", ""},
		"no latency": {change(`"medianNanoseconds": 5000`, `"medianNanoseconds": 0`), 5, "no latency", ""},
		"results is a number": {`{"source":"agent bench","simulated":true,"results":7}`, 0,
			"results is 7, expected a list", ""},
		"source last": {`{"simulated":true,"results":[{"size":1}],"source":"agent bench"}`, 0,
			"result 1 at byte 29", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := one(t, tc.text, Options{})
			if !r.Simulated || len(r.Results) != tc.results || !warned(r, tc.warns) {
				t.Errorf("simulated %v, %d results, expected %d, warnings %q",
					r.Simulated, len(r.Results), tc.results, r.Warnings)
			}
			if (r.Failure == nil) != (tc.want == "") ||
				r.Failure != nil && !strings.Contains(r.Failure.Message, tc.want) {
				t.Errorf("failure %+v, expected %q", r.Failure, tc.want)
			}
		})
	}
}

// Several reports in one file are all read, and what follows them is not passed over.
func TestJSONOneAfterAnother(t *testing.T) {
	good := ownJSON(t)
	reports := parse(t, good+"\n"+good+ncclObject(ncclResult(ncclTimes, "null"))+"["+
		entry("AllReduce", "float", "sum", "0", "0")+"]", Options{})
	if len(reports) != 4 || len(reports[1].Results) != 6 || reports[2].Source != results.SourceNCCLTests ||
		reports[3].Source != results.SourceRCCLTests {
		t.Fatalf("%+v", reports)
	}
	if reports[1].Input != "in#2" || reports[2].Failure != nil {
		t.Errorf("%+v", reports)
	}
	reports, err := Parse("in", strings.NewReader(good+"mpirun: done\n"), Options{})
	if len(reports) != 1 || len(reports[0].Results) != 6 || err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("what follows the JSON at byte %d is not read", len(good))) {
		t.Errorf("%d reports, %v", len(reports), err)
	}
	if _, err := Parse("in", strings.NewReader(" \n"), Options{Format: JSON}); err == nil {
		t.Error("an empty file is JSON")
	}
}

func TestCollectiveIsNotUsedForJSON(t *testing.T) {
	for name, text := range map[string]string{"own": ownJSON(t), "rccl-tests": "[" +
		entry("AllReduce", "float", "sum", "0", "0") + "]", "nccl-tests": ncclObject(ncclResult(ncclTimes, "null"))} {
		if r := one(t, text, Options{Collective: rcclx.AllGather}); !warned(r,
			"--collective AllGather is not used: the file says that it is AllReduce") {
			t.Errorf("%s: %q", name, r.Warnings)
		}
	}
}

func FuzzOwnReport(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "report.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"source":"agent bench","results":null}`))
	f.Add([]byte(
		`[{"source":"rccl-tests","simulated":false,"results":[{"collective":"Reduce","datatype":"Int8","sizeBytes":1,"latency":{"medianNanoseconds":1}}]},`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !ownMark.Match(data) {
			return
		}
		reports, err := parseOwn(data, 0)
		if err == nil && len(reports) == 0 {
			t.Error("neither a report nor an error")
		}
		for _, r := range reports {
			if r.Library != nil && r.Library.Flavor == rcclx.FlavorSimulated && !r.Simulated {
				t.Error("a simulated library's report is not simulated")
			}
			if r.Failure == nil && !r.Simulated && !bytes.Contains(bytes.ToLower(data), []byte("false")) &&
				!bytes.Contains(data, []byte("null")) {
				t.Error("not simulated, and nothing says so")
			}
			for _, x := range r.Results {
				if err := whole(x); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
