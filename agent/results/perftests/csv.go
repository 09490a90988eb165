package perftests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/results"
)

// csvTail are the values behind the size: type, redop, inPlace, time, algBw, busBw, wrong.
const csvTail = 7

// Lines of rccl-tests' CSV (-Z csv), which prefixes may stand before. What begins as a record does, and is none, is a
// part of one: a log's line has a space before its first comma.
var (
	csvHeader = regexp.MustCompile(
		`(?i)(?:numCycle, *)?(?:name|collective), *(?:\w+, *)*size, *type, *redop, *inplace, *time,`)
	csvRecord = regexp.MustCompile(`(?:\d+, *)?"?[A-Za-z]\w*"?(?:, *\d+){2,}, *"?[a-z]\w*"?,`)
	csvPart   = regexp.MustCompile(`^\s*[^\s,]*,`)
)

// parseCSV reads rccl-tests' -Z csv. Its header is not trusted: in one version it has a name less than there are
// values. The values tell themselves: a name, the counts of ranks, the size, a type, and what follows that. None has a
// comma or a line's end in it.
func parseCSV(data []byte, o Options) ([]results.Report, error) {
	var x entries
	var failure *results.Failure
	begun, prefix, logs := !csvHeader.Match(data), "", 0
	last := bytes.Count(data, []byte("\n")) + 1 // which is empty, but where its newline is missing
	err := lines(data, maxLineBytes, func(number int, text string) error {
		if failure != nil || strings.TrimSpace(text) == "" {
			return nil
		}
		if at := csvHeader.FindStringIndex(text); at != nil {
			begun, prefix = true, strings.TrimSpace(text[:at[0]])
			return nil
		}
		record := without(prefix, text)
		if at := csvRecord.FindStringIndex(text); at != nil {
			record = text[at[0]:]
		} else if !begun || number < last && !csvPart.MatchString(record) {
			logs++
			return nil
		}
		e, err := csvEntry(record)
		if err != nil {
			failure = &results.Failure{Kind: "CutOff",
				Message: fmt.Sprintf("line %d of the CSV is no result (%v): the file was cut or damaged after %s",
					number, err, count(x.n, "result", "results"))}
			return nil
		}
		if x.n++; x.n > maxResults {
			return errTooManyRows
		}
		return x.take(e)
	})
	if err != nil {
		return nil, err
	}
	if len(x.runs) == 0 {
		if failure != nil {
			return nil, errors.New(failure.Message)
		}
		return nil, errors.New("is the CSV of rccl-tests (-Z csv) without a result: the program measured nothing")
	}
	reports := x.finish("csv", failure)
	if logs > 0 {
		reports[0].Warnings = append(reports[0].Warnings, skippedLines(logs))
	}
	for i := range reports {
		reports[i].Format.Prefix = prefix
		warnCollective(&reports[i], o.Collective)
	}
	return reports, nil
}

func csvEntry(line string) (rcclEntry, error) {
	if strings.Count(line, `"`)%2 != 0 {
		return rcclEntry{}, errors.New("a quote is open")
	}
	record := strings.Split(line, ",")
	for i, value := range record {
		record[i] = strings.Trim(strings.TrimSpace(value), `"`)
	}
	var e rcclEntry
	var counts []int64
	for i, value := range record {
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case e.Name == "" && err == nil:
			e.Cycle = int(n)
		case e.Name == "":
			e.Name = value
		case err == nil:
			counts = append(counts, n)
		default:
			return e, e.fillCSV(counts, record[i:])
		}
	}
	return e, errors.New("it has no datatype")
}

// fillCSV takes the counts between name and type, the last of which is the size, and the values from the type on.
func (e *rcclEntry) fillCSV(counts []int64, tail []string) error {
	if len(tail) < csvTail || len(counts) < 2 {
		return fmt.Errorf("%d values, expected %d after the size", len(tail), csvTail)
	}
	size := counts[len(counts)-1]
	switch counts = counts[:len(counts)-1]; len(counts) {
	case 1:
		e.GPUs = int(counts[0])
	case 3:
		e.Ranks, e.RanksPerNode, e.GPUsPerRank = int(counts[0]), int(counts[1]), int(counts[2])
	case 4:
		e.Nodes, e.Ranks, e.RanksPerNode, e.GPUsPerRank = int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3])
	default:
		return fmt.Errorf("%d counts of ranks, expected 1, 3 or 4", len(counts))
	}
	numbers := make([]float64, 4)
	for i, text := range tail[2:6] {
		var err error
		if numbers[i], err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%q is no number", text)
		}
	}
	e.Size, e.Type, e.RedOp = &size, tail[0], tail[1]
	e.InPlace, e.Time, e.AlgBw, e.BusBw = int(numbers[0]), &numbers[1], numbers[2], numbers[3]
	e.Wrong = json.RawMessage(tail[6])
	if _, _, err := e.wrongElements(); err != nil {
		return err
	}
	// The digits say how exact a number is.
	for i, at := range []int{3, 4, 5} {
		if n, _, ok := parseNumber(tail[at]); ok {
			e.half[i] = n.half
		}
	}
	return nil
}
