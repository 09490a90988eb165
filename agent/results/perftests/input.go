package perftests

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// decode gives an input as UTF-8 without a byte order mark. Windows PowerShell writes UTF-16.
func decode(data []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	case len(data) >= 4 && data[0] != 0 && data[1] == 0 && data[2] != 0 && data[3] == 0:
		order = binary.LittleEndian
	case len(data) >= 4 && data[0] == 0 && data[1] != 0 && data[2] == 0 && data[3] != 0:
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(data, []byte("\ufeff"))
	}
	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = order.Uint16(data[2*i:])
	}
	return bytes.TrimPrefix([]byte(string(utf16.Decode(units))), []byte("\ufeff"))
}

// escapes are a terminal's: colours and other control sequences, titles, character sets.
var escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]`)

// textOf is a line's text as a terminal would show it.
func textOf(line []byte) string {
	if bytes.IndexByte(line, '\x1b') >= 0 {
		line = escapes.ReplaceAll(line, nil)
	}
	return strings.ToValidUTF8(string(line), "?")
}

// A launcher's prefix is whatever stands before a form of line that only the programs print: no list of launchers is
// needed for it, and several prefixes may stand one after another. What follows is only for lines that are parts of
// such a form.

// maxPrefixBytes are a pod's and a container's name (253 and 63), a timestamp, and tags of a launcher with a host's
// name.
const maxPrefixBytes = 512

// timestamps change from line to line; the rest of a prefix names the process that printed the line.
var timestamps = regexp.MustCompile(`\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?|` +
	`(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d+ \d\d:\d\d:\d\d(?:\.\d+)?|\d\d:\d\d:\d\d(?:[.,]\d+)?|\[ *\d+\.\d+\]`)

var bracketed = regexp.MustCompile(`\[[^\]]*\]|\([^)]*\)|<[^>]*>`)

// prefixNumbers are parts of a name, as a rank is, or a counter or clock; each with its fraction, before which it
// carries.
var prefixNumbers = regexp.MustCompile(`\d+(?:\.\d+)*`)

// prefixes are those of an input, without timestamps and numbers, each with what is known of its numbers.
type prefixes map[string][]prefixNumber

type prefixNumber struct {
	last []int64
	// names is whether the number names a process. One that only grows from line to line, as a line's number or a clock
	// does, names none: lines of processes that print into each other have numbers that fall.
	names bool
}

// see takes the prefix of a line. Where a run starts, numbers may begin again.
func (x prefixes) see(prefix string, starts bool) {
	text := timestamps.ReplaceAllString(prefix, "")
	found := prefixNumbers.FindAllString(text, -1)
	if len(found) == 0 {
		return
	}
	shape := prefixNumbers.ReplaceAllString(text, "0")
	numbers := x[shape]
	if numbers == nil {
		if len(x) >= maxRuns {
			return
		}
		numbers = make([]prefixNumber, len(found))
		x[shape] = numbers
	}
	for i, word := range found {
		var parts []int64
		for part := range strings.SplitSeq(word, ".") {
			n, _ := strconv.ParseInt(part, 10, 64) // the largest there is where it is larger
			parts = append(parts, n)
		}
		numbers[i].names = numbers[i].names || !starts && slices.Compare(parts, numbers[i].last) < 0
		numbers[i].last = parts
	}
}

// streamOf names the process that printed a line, by its prefix; false where the prefix is more like a log's sentence,
// to which the program's line is glued.
func (x prefixes) streamOf(prefix string) (string, bool) {
	const mostWords = 6 // of two launchers with up to three words each, as syslog has
	text := timestamps.ReplaceAllString(prefix, "")
	numbers := x[prefixNumbers.ReplaceAllString(text, "0")]
	at := -1
	name := prefixNumbers.ReplaceAllStringFunc(text, func(word string) string {
		if at++; at < len(numbers) && !numbers[at].names {
			return "0"
		}
		return word
	})
	name = strings.Join(strings.Fields(name), " ")
	return name, len(strings.Fields(bracketed.ReplaceAllString(name, ""))) <= mostWords
}

// without cuts a prefix off a line; digits in it may differ, as those of a timestamp do.
func without(prefix, line string) string {
	rest := strings.TrimLeft(line, " \t")
	for prefix = strings.TrimSpace(prefix); prefix != ""; {
		p, r := leadingDigits(prefix), leadingDigits(rest)
		switch {
		case p > 0 && r > 0:
		case rest != "" && prefix[0] == rest[0]:
			p, r = 1, 1
		default:
			return line
		}
		prefix, rest = prefix[p:], rest[r:]
	}
	return rest
}

func leadingDigits(text string) int {
	if i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		return i
	}
	return len(text)
}

// form of a line that only the programs print.
type form struct {
	name string
	// mark is in each such line: a quick test before the expression.
	mark string
	re   *regexp.Regexp
}

// forms of lines, but rows. They are looked for anywhere in a line; without "#", since a paste may have lost it.
var forms = []form{
	{"version", "-tests version", regexp.MustCompile(`\b([nr]ccl-tests) version (\S+)(.*)$`)},
	{"program", "Collective test starting", regexp.MustCompile(`Collective test starting: (\S+)`)},
	{"parameters", "nThread", regexp.MustCompile(`nThread:? \d+ nGpus:? \d+ minBytes.*$`)},
	{"build", "rccl-tests: Version", regexp.MustCompile(`rccl-tests: Version (\S+)`)},
	{"device", " device ", regexp.MustCompile(
		`Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]*)\]\s*(.*)$`)},
	{"header", "algbw", regexp.MustCompile(`size\s+count\s+type\s+(?:redop\s+)?(?:root\s+)?(?:cpu)?time\s.*$`)},
	// first is nccl-tests' of 2017 and 2018 (PrintHeader of each program), which prints milliseconds.
	{"first", "bytes", regexp.MustCompile(`bytes\s+N\s+type\s+(op\s+)?(root\s+)?time\s+algbw`)},
	{"placements", "-place", regexp.MustCompile(`((?:out-of-place|in-place)(?:\s+\(\+ per-iteration\))?\s*)+$`)},
	{"bounds", "Out of bounds values",
		regexp.MustCompile(`Out of bounds values\s*:\s*(?:(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(\w*))?`)},
	{"bandwidth", "Avg bus bandwidth", regexp.MustCompile(`Avg bus bandwidth\s*:\s*(\S*)\s*(\w*)`)},
	{"end", "Collective test concluded", regexp.MustCompile(`Collective test concluded`)},
	{"reduced", "Reducing maxBytes", regexp.MustCompile(`Reducing maxBytes to (\d+) due to memory limitation`)},
	{"error", "# error: ", regexp.MustCompile(`# error: (.+)`)},
	{"note", "Using devices", regexp.MustCompile(`Using devices\s*$`)},
	{"note", "(elements)", regexp.MustCompile(`\(B\)\s+\(elements\).*$`)},
	{"note", "Errors with asterisks", regexp.MustCompile(`Errors with asterisks`)},
}

// rowForm is how a row begins; nothing else has two numbers, a datatype, and an operation or number.
var rowForm = regexp.MustCompile(`(?:^|[\s:>|\])])(\d{1,19})\s+(\d{1,19})\s+([a-z]\w*)\s+(\S+)`)

// found is a line's form, its parts, what stands before it, and its text from there.
type found struct {
	form         string
	parts        []string
	prefix, text string
	hash         bool
}

// starts says whether the line is of those that a run begins with.
func (f found) starts() bool { return isOneOf(f.form, "version", "program", "parameters") }

// recognise finds the form of a line; false where it is none of the programs' that can be told by itself.
func recognise(line string) (found, bool) {
	line = strings.Replace(line, glued, "", 1)
	if !mayHaveRow(line) {
		// Most lines of a debug log: the expression is dear.
	} else if m := rowForm.FindStringSubmatchIndex(line); m != nil && m[2] <= maxPrefixBytes {
		parts := []string{line[m[2]:m[1]], line[m[2]:m[3]], line[m[4]:m[5]], line[m[6]:m[7]], line[m[8]:m[9]]}
		if beginsRow(parts) && !strings.Contains(line[:m[2]], "#") {
			return found{form: "row", parts: parts, prefix: strings.TrimSpace(line[:m[2]]), text: line[m[2]:]}, true
		}
	}
	for _, f := range forms {
		if !strings.Contains(line, f.mark) {
			continue
		}
		at := f.re.FindStringSubmatchIndex(line)
		if at == nil || at[0] > maxPrefixBytes || inQuotes(line[:at[0]]) {
			continue
		}
		parts := make([]string, len(at)/2)
		for i := range parts {
			if at[2*i] >= 0 {
				parts[i] = line[at[2*i]:at[2*i+1]]
			}
		}
		before := strings.TrimSpace(line[:at[0]])
		prefix := strings.TrimSpace(strings.TrimRight(before, "#"))
		return found{f.name, parts, prefix, strings.TrimSpace(line[at[0]:]), prefix != before || parts[0][0] == '#' ||
			f.name == "build"}, true
	}
	return found{}, false
}

// inQuotes says whether a quote is open behind a text: what follows is a quotation, as that of a command is.
func inQuotes(text string) bool {
	return strings.Count(text, `"`)%2 != 0 || strings.Count(text, "'")%2 != 0
}

// mayHaveRow finds a number, a number and a word, without an expression.
func mayHaveRow(line string) bool {
	numbers := 0
	for word := range strings.FieldsSeq(line) {
		if numbers >= 2 && word[0] >= 'a' && word[0] <= 'z' {
			return true
		}
		if c := word[len(word)-1]; c >= '0' && c <= '9' {
			numbers++
		} else {
			numbers = 0
		}
	}
	return false
}

// lines gives each line with its number, and its parts where carriage returns split it, as progress bars do. One of
// more than so many bytes is empty.
func lines(data []byte, most int, take func(number int, text string) error) error {
	number := 0
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		number++
		for part := range bytes.SplitSeq(bytes.Trim(line, "\r"), []byte("\r")) {
			if len(part) > most {
				part = nil
			}
			if err := take(number, textOf(part)); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOneOf says whether a word is among those of a program's, in any case.
func isOneOf(word string, of ...string) bool { return slices.Contains(of, strings.ToLower(word)) }
