package perftests

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// prefixed gives a text with a prefix before each line, by the line's number from one on.
func prefixed(text string, prefix func(n int) string) string {
	var b strings.Builder
	for i, line := range strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(prefix(i+1) + line)
	}
	return b.String() + "\n"
}

// One process is one run, whatever its lines begin with.
func TestPrefixesOfOneProcess(t *testing.T) {
	text := caseText(t, "11-enroot-sbatch-output-input.txt")
	whole := text
	text = strings.Replace(text, "   71.40", "\nnode-a:12:34 [0] NCCL INFO Channel 00/32\n   71.40", 1)
	lines := func(format string, scale float64) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, float64(n)*scale) }
	}
	for name, prefix := range map[string]func(n int) string{
		"cat -n":       lines("%6.0f\t", 1),
		"cat -n, srun": lines("%6.0f\t 0: ", 1),
		"grep -n":      lines("%.0f:", 1),
		"ts %.s": func(n int) string {
			return fmt.Sprintf("17621647%02d.%06d ", 12+123456*n/1000000, 123456*n%1000000)
		},
		"ts %s":           func(n int) string { return fmt.Sprintf("%d ", 1762164712+n/20) },
		"seconds":         lines("%8.3f ", 0.617),
		"seconds, a sign": lines("+%.3fs ", 0.617),
		"hours":           func(n int) string { return fmt.Sprintf("00:%02d:%02d ", n*7/60, n*7%60) },
		"steps":           lines("[%.0f/40] ", 1),
		"steps, aligned":  lines("[%2.0f/40] ", 1),
		"a quoted job":    func(int) string { return "'job-1': " },
		"labels":          func(n int) string { return fmt.Sprintf(`2025-11-03T10:12:%02dZ {app="rccl"} `, n) },
		"a long pod": func(n int) string {
			return fmt.Sprintf("[pod/%s/launcher] 2025-11-03T10:12:%02d.123456789Z ", strings.Repeat("a", 180), n)
		},
		"the longest pod": func(int) string {
			return "[pod/" + strings.Repeat("a", 253) + "/" + strings.Repeat("c", 63) + "] [1,0]<stdout>: "
		},
		"pod and counter":  lines("[pod/a-7f9c4/x] %.0f ", 1),
		"counter, the pod": lines("%.0f [pod/a-7f9c4/x] ", 1),
	} {
		for times, in := range map[int]string{1: prefixed(text, prefix),
			2: prefixed(whole, prefix) + prefixed(whole, prefix)} {
			reports, err := Parse("in", strings.NewReader(in), Options{})
			if err != nil || len(reports) != times {
				t.Errorf("%s, %d: %d runs, error %v, %s", name, times, len(reports), err, complaint(reports, nil))
				continue
			}
			for _, r := range reports {
				if len(r.Results) != 6 || r.Ranks != 16 || r.Failure != nil || !r.Good() || r.Library == nil ||
					warned(r, "damaged") {
					t.Errorf("%s, %d: %d results, %d ranks, %s, warnings %q",
						name, times, len(r.Results), r.Ranks, complaint(reports, nil), r.Warnings)
				}
			}
		}
	}
	// A command that quotes a line is none of the program's.
	if r := one(t, "+ echo '# Out of bounds values : 3 FAILED'\n"+whole+
		"+ grep \"# Avg bus bandwidth : 1 FAILED\" x\n", Options{}); r.Failure != nil {
		t.Errorf("a quotation: %+v", r.Failure)
	}
}

// Numbers that name processes keep their lines apart, also behind numbers that grow.
func TestPrefixesOfSeveralProcesses(t *testing.T) {
	text := strings.SplitAfter(caseText(t, "11-enroot-sbatch-output-input.txt"), "\n")
	for name, prefix := range map[string]string{
		"srun --label":          "%[1]d: ",
		"srun --label, cat -n":  "%6[2]d\t%[1]d: ",
		"srun --label, grep -n": "%[2]d:%[1]d: ",
		"Open MPI":              "[1,%[1]d]<stdout>: ",
		"Open MPI, ts %%.s":     "1762164712.%06[2]d [1,%[1]d]<stdout>: ",
		"pods":                  "[pod/a-%[1]d/x] 2026-11-03T10:12:10.1Z ",
		"addresses":             "10.0.0.1%[1]d: ",
	} {
		var b strings.Builder
		n := 0
		for _, line := range text[2 : len(text)-1] {
			for rank := range 3 {
				if n++; rank == 1 {
					line = strings.Replace(line, "values : 0 OK", "values : 4 FAILED", 1)
				} else {
					line = strings.Replace(line, "values : 4 FAILED", "values : 0 OK", 1)
				}
				fmt.Fprintf(&b, prefix+"%[3]s", rank, n, line)
			}
		}
		reports, err := Parse("in", strings.NewReader(b.String()), Options{})
		if err != nil || len(reports) != 3 {
			t.Errorf("%s: %d runs, error %v, %s", name, len(reports), err, complaint(reports, nil))
			continue
		}
		for i, r := range reports {
			if len(r.Results) != 6 || r.Ranks != 16 || (r.Failure != nil) != (i == 1) {
				t.Errorf("%s, %d: %d results, %d ranks, failure %+v", name, i, len(r.Results), r.Ranks, r.Failure)
			}
		}
	}
}

// The forms for programs are read behind the same prefixes, and between logs; a part of a line is still missing data.
func TestLoggedJSONAndCSV(t *testing.T) {
	table := caseText(t, "17-rccl-tests-csv-misaligned.csv")
	a, b := entry("AllReduce", "float", "sum", "0", "0"), entry("AllReduce", "float", "sum", "1", "0")
	jsonLines, list := a+"\n"+b+"\n", "[\n"+a+",\n"+b+"\n]\n"
	at := func(n int) string { return fmt.Sprintf("2025-11-03T10:12:%02d.%09dZ ", n, n*12345678) }
	pod := func(n int) string { return fmt.Sprintf(`%d: {app="rccl"} [1,0]<stdout>: `, n) }
	const job, log = "srun: job 1 queued\n", "node-a:12:34 [0] NCCL INFO Channel 00/32\n"
	between := func(text string) string { return job + strings.ReplaceAll(text, "\n", "\n"+log) }
	less := func(text string, n int) string { return text[:len(text)-n] }
	for name, tc := range map[string]struct {
		text, form string
		format     Format
		logs       bool
		fails      string // empty: both results are read
	}{
		"JSON lines, timestamps":         {prefixed(jsonLines, at), "json lines", Auto, false, ""},
		"JSON lines, labels":             {prefixed(jsonLines, pod), "json lines", Auto, false, ""},
		"JSON lines, timestamps, --from": {prefixed(jsonLines, at), "json lines", JSON, false, ""},
		"JSON lines, a log before":       {job + jsonLines, "json lines", Auto, true, ""},
		"JSON lines, logs between":       {prefixed(between(jsonLines), at), "json lines", Auto, true, ""},
		"JSON lines, cut":                {less(prefixed(jsonLines, at), 20), "json lines", Auto, false, "CutOff"},
		"JSON lines, cut at the start":   {prefixed(a+"\n"+b[:5], at), "json lines", Auto, false, "CutOff"},
		"list, timestamps":               {prefixed(list, at), "json list", Auto, false, ""},
		"list, logs between":             {prefixed(between(list), at), "json list", Auto, true, ""},
		"list without its end": {prefixed(strings.TrimSuffix(list, "]\n"), at), "json list",
			Auto, false, "CutOff"},
		"CSV, a log before":         {job + table, "csv", Auto, true, ""},
		"CSV, a log before, --from": {job + table, "csv", CSV, true, ""},
		"CSV, timestamps":           {prefixed(table, at), "csv", Auto, false, ""},
		"CSV, labels":               {prefixed(table, pod), "csv", Auto, false, ""},
		"CSV, logs between":         {prefixed(between(table), at), "csv", Auto, true, ""},
		"CSV, cut":                  {less(prefixed(table, at), 2), "csv", Auto, false, "a quote is open"},
		"CSV, cut before the types": {less(prefixed(table, at), 50), "csv", Auto, false, "CutOff"},
		"CSV, cut in the name":      {job + less(table, 63), "csv", Auto, true, "CutOff"},
		"CSV, a part of a line": {job + strings.Replace(table, `8,8,1,1048576,"float"`,
			"8\n"+log+`8,1,1048576,"float"`, 1), "csv", Auto, true, "line 3 of the CSV"},
	} {
		t.Run(name, func(t *testing.T) {
			reports, err := Parse("in", strings.NewReader(tc.text), Options{Format: tc.format})
			got := complaint(reports, err)
			if tc.fails != "" {
				if !strings.Contains(got, tc.fails) {
					t.Errorf("got %q, expected %q\n%s", got, tc.fails, tc.text)
				}
				return
			}
			if got != "" || len(reports) != 1 || len(reports[0].Results) != 2 ||
				reports[0].Ranks != 8 || reports[0].Format.Form != tc.form || !reports[0].Good() ||
				warned(reports[0], "of other programs or logs skipped") != tc.logs {
				t.Errorf("%q: %+v", got, reports)
			}
		})
	}
}

// TestLoggedObject: nccl-tests' -J writes one line, however many sizes it measured; launchers and logs come before and
// between.
func TestLoggedObject(t *testing.T) {
	data, err := os.ReadFile("../testdata/nccl-tests-2.19.6-all_reduce.json")
	if err != nil {
		t.Fatal(err)
	}
	object := string(data)
	whole := one(t, object, Options{})
	long := strings.Replace(object, `"experiment_name": ""`,
		`"experiment_name": "`+strings.Repeat("x", 2*maxLineBytes)+`"`, 1)
	const log = "node-a:12:34 [0] NCCL INFO Channel 00/32\n"
	for name, text := range map[string]string{
		"a rank":          "0: " + object,
		"a tag":           "[1,0]<stdout>: " + object,
		"a pod, a time":   "[pod/a-7f9c4/x] 2025-11-03T10:12:10.123456789Z " + object,
		"logs around":     log + "0: " + object + log,
		"a long one":      "0: " + long,
		"one of two runs": "0: " + object + "0: " + object,
	} {
		reports, err := Parse("in", strings.NewReader(text), Options{})
		if err != nil || len(reports) != strings.Count(text, `"start_time"`) {
			t.Errorf("%s: %d reports, error %v", name, len(reports), err)
			continue
		}
		for _, r := range reports {
			if len(r.Results) != len(whole.Results) || r.Ranks != whole.Ranks || !r.Good() ||
				r.Format.Form != "json object" || r.Format.Prefix == "" {
				t.Errorf("%s: %d results, %d ranks, %+v, %s",
					name, len(r.Results), r.Ranks, r.Format, complaint(reports, nil))
			}
		}
	}
	if got := complaint(Parse("in", strings.NewReader("0: "+object[:len(object)-200]),
		Options{})); !strings.Contains(got, "CutOff") {
		t.Errorf("cut: %q", got)
	}
}
