package perftests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/results"
)

func caseText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "cases", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// complaint is what makes an input fail: its error, or the failures of its runs; empty where it passes.
func complaint(reports []results.Report, err error) string {
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, r := range reports {
		if r.Failure != nil {
			texts = append(texts, r.Failure.Kind+": "+r.Failure.Message)
		}
	}
	return strings.Join(texts, "\n")
}

// Missing data is no pass, and what is missing is named.
func TestMissingData(t *testing.T) {
	fixed, two := caseText(t, "17-rccl-tests-csv-fixed.csv"), caseText(t, "17-rccl-tests-csv-misaligned.csv")
	fixed, two = strings.TrimSuffix(fixed, "\n"), strings.TrimSuffix(two, "\n")
	text := caseText(t, "11-enroot-sbatch-output-input.txt")
	const counter, average = "# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : 41.25 \n"
	object := ncclObject(ncclResult(ncclTimes, "null"))
	const bounds = `"out_of_bounds":{"count":0,"okay":"true"},`
	replace := func(text, old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(text, old, with, 1)
	}
	const noCounter = `CutOff: the line "Out of bounds values" is missing`
	for name, tc := range map[string]struct {
		text, want, not string // empty: it passes
	}{
		"CSV without last newline":      {fixed, "", ""},
		"CSV cut before its last value": {fixed[:len(fixed)-2], "line 2 of the CSV is no result (a quote is open)", ""},
		"CSV cut in its last value":     {fixed[:len(fixed)-1], "a quote is open", ""},
		"CSV, last value gone":          {fixed[:len(fixed)-3], `wrong is "", expected a number or N/A`, ""},
		"CSV, last value empty":         {replace(fixed, `"0"`, `""`) + "\n", `wrong is "", expected`, ""},
		"CSV, last value cut off":       {replace(fixed, `"0"`, `N/`), `wrong is "N/", expected`, ""},
		"CSV cut in the second result": {two[:len(two)-1],
			"CutOff: line 3 of the CSV is no result (a quote is open): the file was cut or damaged after 1 result", ""},
		"CSV, second result's last value": {two[:len(two)-3], "CutOff: line 3", ""},
		"CSV, quote open in the middle": {strings.Replace(two, `"0"`, `"0`, 1),
			"line 2 of the CSV is no result (a quote is open)", ""},
		"JSON, wrong empty": {"[" + entry("AllReduce", "float", "sum", "0", "") + "]",
			`wrong is "", expected`, ""},
		"counter":                     {replace(text, counter, ""), noCounter, ""},
		"counter without its value":   {replace(text, counter, "# Out of bounds values :\n"), noCounter, ""},
		"counter, and a damaged row":  {replace(replace(text, counter, ""), "1480.0", "14x0.0"), noCounter, ""},
		"counter and bandwidth":       {replace(replace(text, counter, ""), average, ""), noCounter, ""},
		"counter of an unchecked run": {replace(caseText(t, "13-unchecked-c0-input.txt"), counter, ""), "", ""},
		"counter of errors": {replace(strings.ReplaceAll(strings.ReplaceAll(text, "#wrong", " error"),
			"       0", "   5e-07"), counter, ""), noCounter, ""},
		"-J counter": {replace(object, bounds, ""), `CutOff: "out_of_bounds" is missing`, ""},
		"-J counter is null": {replace(object, bounds, `"out_of_bounds":null,`),
			`CutOff: "out_of_bounds" is missing`, ""},
		"-J counter of an unchecked run": {
			replace(ncclObject(ncclResult(replace(ncclTimes, "0.000000}", "null}"), "null")), bounds, ""), "", ""},
		"counter with an exponent": {replace(text, "values : 0 OK", "values : 1e+06 FAILED"),
			"out of bounds: 1e+06 FAILED, expected 0", ""},
		"-J okay is a bool": {replace(object, `"okay":"true"`, `"okay":true`), "", ""},
		"-J counter, okay is a bool": {replace(object, `"count":0,"okay":"true"`, `"count":3,"okay":false`),
			"out of bounds: 3 FAILED", "crashed"},
		"-J okay is false, counter is not": {replace(object, `"okay":"true"`, `"okay":false`),
			"out of bounds: 0 FAILED", "crashed"},
		"-J counter is no number": {replace(object, `"count":0`, `"count":[]`),
			"the file was damaged, or a version wrote it that is not known here", "crashed"},
		"-J cut": {object[:len(object)-60], "the file was cut", ""},
		"two summaries": {replace(text, counter+average, counter+average+counter+average),
			"the summary is printed 2 times in one run", "without MPI"},
	} {
		t.Run(name, func(t *testing.T) {
			got := complaint(Parse("in", strings.NewReader(tc.text), Options{}))
			if !strings.Contains(got, tc.want) || tc.want == "" && got != "" ||
				tc.not != "" && strings.Contains(got, tc.not) {
				t.Errorf("got %q, expected %q", got, tc.want)
			}
		})
	}
}
