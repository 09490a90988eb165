package perftests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

// ownMark is what only reports of this form have: their source, and a result's field. Within a string the quotes would
// be escaped.
var ownMark = regexp.MustCompile(`"source"\s*:\s*"(agent bench|rccl-tests|nccl-tests)"|"countElements"\s*:`)

// parseOwn reads a report of agent bench or agent import, or a list of them, piece by piece: of one that is cut or
// damaged all that is whole is kept, and the report's failure says what is not and where. first is the byte that data
// begins at in the file.
func parseOwn(data []byte, first int64) ([]results.Report, error) {
	x := ownReader{d: json.NewDecoder(bytes.NewReader(data)), data: data, first: first}
	open, err := x.d.Token()
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if open == json.Delim('{') {
		return []results.Report{x.report()}, nil
	}
	var reports []results.Report
	for !x.broken && x.d.More() {
		start, err := x.d.Token()
		if err == nil && start != json.Delim('{') {
			err = fmt.Errorf("element %d of the list is %v, expected a report", len(reports)+1, start)
		}
		if err != nil {
			x.breaks(err)
			break
		}
		reports = append(reports, x.report())
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("is a list of reports without one: %v", x.damage)
	}
	if !x.broken {
		if _, err := x.d.Token(); err != nil {
			x.breaks(err)
			x.fail(&reports[len(reports)-1])
		}
	} else if len(x.damage) > 0 {
		x.fail(&reports[len(reports)-1])
	}
	return reports, nil
}

// ownReader reads reports from one stream.
type ownReader struct {
	d     *json.Decoder
	data  []byte
	first int64
	// damage of the report at hand; broken where the stream cannot be read on.
	damage []string
	broken bool
}

// breaks ends the stream with what the JSON's reader says.
func (x *ownReader) breaks(err error) {
	at := x.first + x.d.InputOffset()
	if isEOF(err) {
		at, err = x.first+int64(len(x.data)), errors.New("the file ends there, and was cut")
	} else if syntax := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(x.data, new(json.RawMessage)), &syntax) {
		at = x.first + syntax.Offset - 1 // a stream's own offsets are not those of its bytes
	}
	x.broken = true
	x.damage = append(x.damage, fmt.Sprintf("its JSON breaks off at byte %d (%v)", at, err))
}

// wrong notes a value that does not fit its field; what else there is can be read.
func (x *ownReader) wrong(what string, raw json.RawMessage, err error) {
	const most = 5
	at := x.first + x.d.InputOffset() - int64(len(raw))
	if len(x.damage) < most {
		x.damage = append(x.damage, fmt.Sprintf("%s at byte %d: %v", what, at, err))
	}
}

// report reads one report, whose opening brace was read.
func (x *ownReader) report() results.Report {
	r := results.Report{Results: []results.Result{}}
	x.damage = nil
	told := false // whether a GPU was measured
	for !x.broken && x.d.More() {
		key, err := x.d.Token()
		if err != nil {
			x.breaks(err)
			break
		}
		if key == "results" {
			x.results(&r)
			continue
		}
		var raw json.RawMessage
		if err := x.d.Decode(&raw); err != nil {
			x.breaks(err)
			break
		}
		if key == "simulated" {
			told = true
		}
		name, _ := key.(string)
		field, err := json.Marshal(map[string]json.RawMessage{name: raw})
		if err == nil {
			err = json.Unmarshal(field, &r)
		}
		if err != nil {
			told = told && name != "simulated"
			x.wrong(name, raw, err)
		}
	}
	if !x.broken {
		if _, err := x.d.Token(); err != nil {
			x.breaks(err)
		}
	}
	// A simulated number must never be taken for a real one.
	if !told && (!x.broken || len(r.Results) > 0) {
		r.Simulated = true
		x.damage = append(x.damage, "it does not say whether it is simulated, and is taken so")
	}
	if r.Library != nil && r.Library.Flavor == rcclx.FlavorSimulated && !r.Simulated {
		r.Simulated = true
		r.Warnings = append(r.Warnings,
			"the report says that it is not simulated, but its library is the simulated one: it is taken as simulated")
	}
	if len(x.damage) > 0 {
		x.fail(&r)
	}
	return r
}

// fail makes a damaged report a failed one. Its own failure stays, where it was read.
func (x *ownReader) fail(r *results.Report) {
	source := r.Source
	if source == "" {
		source = results.SourceBench
	}
	text := fmt.Sprintf("the report of %s is damaged:", source)
	for _, d := range x.damage {
		text += " " + d + ";"
	}
	text += fmt.Sprintf(" %s whole: get the file anew", count(len(r.Results), "result is", "results are"))
	x.damage = nil
	if r.Failure != nil {
		r.Warnings = append(r.Warnings, text)
		return
	}
	r.Failure = &results.Failure{Kind: "CutOff", Message: text}
}

// results reads the list of results one by one.
func (x *ownReader) results(r *results.Report) {
	open, err := x.d.Token()
	if err == nil && open == nil {
		return // null
	}
	if err == nil && open != json.Delim('[') {
		err = fmt.Errorf("results is %v, expected a list", open)
	}
	if err != nil {
		x.breaks(err)
		return
	}
	for n := 1; x.d.More(); n++ {
		var raw json.RawMessage
		if err := x.d.Decode(&raw); err != nil {
			x.breaks(err)
			return
		}
		var result results.Result
		err := json.Unmarshal(raw, &result)
		if err == nil {
			err = whole(result)
		}
		if err == nil && n > maxResults {
			err = errTooManyRows
		}
		if err != nil {
			x.wrong(fmt.Sprintf("result %d", n), raw, err)
			continue
		}
		r.Results = append(r.Results, result)
	}
	if _, err := x.d.Token(); err != nil {
		x.breaks(err)
	}
}

// whole says what a result lacks that each has.
func whole(r results.Result) error {
	switch {
	case !slices.Contains(rcclx.AllCollectives(), r.Collective):
		return fmt.Errorf("collective %q is not known", r.Collective)
	case !slices.Contains(rcclx.Datatypes(), r.Datatype):
		return fmt.Errorf("datatype %q is not known", r.Datatype)
	case r.SizeBytes <= 0:
		return fmt.Errorf("a size of %d B", r.SizeBytes)
	case r.Latency.MedianNanoseconds <= 0 && r.MeanLatencyNanoseconds <= 0:
		return errors.New("it has no latency over zero")
	}
	if wrong, _ := r.Wrong(); r.HazardElements < 0 || r.HazardElements > max(wrong, 0) {
		return fmt.Errorf("a hazard that explains %d of %d wrong elements", r.HazardElements, wrong)
	}
	for _, c := range r.Checks {
		if c.CheckedElements < 0 || c.WrongElements < 0 {
			return fmt.Errorf("%d wrong of %d checked elements", c.WrongElements, c.CheckedElements)
		}
	}
	return nil
}
