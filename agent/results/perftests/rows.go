package perftests

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// pendingRow is a row that another process's output cut in two: the words that were read of it.
type pendingRow struct {
	line  int
	words []string
}

var (
	// decimalWord is a number as C's %f, %g and %e print it. A part of one, such as "41." or "010", is none.
	decimalWord = regexp.MustCompile(`^(0|[1-9]\d*)(\.(\d+))?(e[+-]\d\d+)?`)
	// rootWord is the root: -1 where there is none.
	rootWord = regexp.MustCompile(`^-?\d+`)
	// noNumber stands in place of a number; hipevt, error and #wrong are N/A where not measured.
	noNumber = regexp.MustCompile(`^(N/A|-?nan|-?inf)`)
)

// parseNumber reads a number at the beginning of a word, and gives what follows it.
func parseNumber(word string) (n number, rest string, ok bool) {
	m := decimalWord.FindStringSubmatch(word)
	if m == nil {
		return number{}, word, false
	}
	v, err := strconv.ParseFloat(m[0], 64)
	if err != nil {
		return number{}, word, false
	}
	half := 0.5
	digits := len(m[3])
	if m[4] != "" {
		exponent, err := strconv.Atoi(m[4][1:])
		if err != nil || exponent > 300 || exponent < -300 {
			return number{}, word, false
		}
		digits -= exponent
	}
	for ; digits > 0; digits-- {
		half /= 10
	}
	for ; digits < 0; digits++ {
		half *= 10
	}
	return number{v, half}, word[len(m[0]):], true
}

// continues takes a line as the rest of a row that was cut in two; false where it is none.
func (u *textRun) continues(text string) bool {
	words := strings.Fields(text)
	if u.pending == nil || u.columns == nil || len(words) == 0 {
		return false
	}
	if _, rest, ok := u.cell(u.columns[len(u.pending.words)], words[0]); !ok ||
		isText(u.columns[len(u.pending.words)]) || rest != "" && !gluedLog(rest) {
		return false
	}
	u.fill(u.pending, words)
	return true
}

// row takes the text of a row.
func (u *textRun) row(text string, parts []string, line int) {
	u.close()
	u.rows++
	u.last = fmt.Sprintf("%s %s B (line %d)", parts[3], parts[1], line)
	u.fill(&pendingRow{line: line}, strings.Fields(text))
}

// beginsRow tells a row from a log line that has two numbers and a word.
func beginsRow(parts []string) bool {
	if isOperation(parts[4]) {
		return true
	}
	// Where there is no operation, the root or the time follows.
	if c := parts[4][0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	_, err := rcclx.ParseDatatype(parts[3])
	return err == nil || isOneOf(parts[3], "uint8", "uint32", "int64", "uint64")
}

func isOperation(word string) bool {
	_, known := ops[word]
	return known || word == "none" || word == "mulsum"
}

// gluedLog says whether what follows a number is the beginning of another process's line: a host's name. One that
// begins with a digit cannot be told from the number, which is then left alone.
func gluedLog(rest string) bool {
	c := rest[0]
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '['
}

// fill adds words to a row as far as they fit its columns, and takes the row where it is whole.
func (u *textRun) fill(p *pendingRow, words []string) {
	if u.columns == nil {
		u.guessColumns(words, p.line)
	}
	u.pending = nil
	for i := 0; i < len(words) && len(p.words) < len(u.columns); i++ {
		column := u.columns[len(p.words)]
		if column == "redop" && (words[i][0] == '-' || words[i][0] >= '0' && words[i][0] <= '9') {
			p.words = append(p.words, "") // AllToAll of 2020 and hypercube leave it blank
			i--
			continue
		}
		word, rest, ok := u.cell(column, words[i])
		if !ok && words[i][0] >= '0' && words[i][0] <= '9' {
			// A number that does not fit: the row was cut within a word, and what follows is shifted.
			u.pending = p
			u.close()
			return
		}
		if !ok {
			break
		}
		p.words = append(p.words, word)
		switch {
		case rest == "":
		case len(p.words) < len(u.columns) && isText(u.columns[len(p.words)]):
			words[i] = rest // -M prints the algorithm without a space before it
			i--
		default:
			i = len(words) // a log line follows
		}
	}
	if len(p.words) < len(u.columns) {
		u.pending = p
		return
	}
	u.emit(p.words, p.line)
}

// guessColumns is for rows without a header, as grep gives them.
func (u *textRun) guessColumns(words []string, line int) {
	block := []string{"time", "algbw", "busbw", "#wrong"}
	u.columns = []string{"size", "count", "type"}
	if isOperation(words[3]) {
		u.columns = append(u.columns, "redop")
	}
	if i := len(u.columns); i < len(words) && rootWord.FindString(words[i]) == words[i] {
		u.columns = append(u.columns, "root")
	}
	more := len(words)-len(u.columns) >= 2*len(block)
	u.columns = append(u.columns, block...)
	u.blocks = defaultBlocks(1)
	if more {
		u.columns = append(u.columns, block...)
		u.blocks = defaultBlocks(2)
	}
	u.warn("there is no header before line %d: columns are taken as out of place, then in place", line)
}

func isText(column string) bool {
	switch column {
	case "type", "redop", "algo", "proto", "nchannels", "timestamp":
		return true
	}
	return false
}

// cell reads one word of a column; rest is what is glued to it.
func (u *textRun) cell(column, word string) (value, rest string, ok bool) {
	switch {
	case isText(column):
		return word, "", true
	case column == "root":
		value = rootWord.FindString(word)
		rest = word[len(value):]
		ok = value != ""
	case column != "size" && column != "count" && noNumber.MatchString(word):
		value = noNumber.FindString(word)
		rest, ok = word[len(value):], true
	default:
		if _, rest, ok = parseNumber(word); ok {
			value = word[:len(word)-len(rest)]
		}
		if column == "#wrong" && strings.Contains(value, ".") && !strings.Contains(value, "e") {
			return "", word, false // a count is whole; %g shortens a large one
		}
	}
	if ok && column == "error" && strings.HasPrefix(rest, "*") {
		value, rest = value+"*", rest[1:]
	}
	if ok && rest != "" && !gluedLog(rest) {
		return "", word, false
	}
	return value, rest, ok
}

// close gives up on a row that was not completed: its first block counts where that is whole.
func (u *textRun) close() {
	p := u.pending
	u.pending = nil
	if p == nil {
		return
	}
	u.damaged++
	u.emit(p.words, p.line)
}

// emit takes the blocks of a row that are whole.
func (u *textRun) emit(words []string, line int) {
	base := row{line: line, root: -1, iterations: u.iterations}
	block := -1
	var x row
	whole := false
	flush := func() {
		if block >= 0 && whole && block < len(u.blocks) {
			x.placement = u.blocks[block]
			u.add(x)
		}
		whole = false
	}
	for i, word := range words {
		n, _, _ := parseNumber(word)
		var err error
		switch u.columns[i] {
		case "size":
			base.size, err = strconv.ParseInt(word, 10, 64)
		case "count":
			base.count, err = strconv.ParseInt(word, 10, 64)
		case "type":
			base.typeName = word
		case "redop":
			base.redop = word
		case "root":
			base.root, err = strconv.Atoi(word)
		case "time", "cputime":
			flush()
			block++
			x = base
			x.time, x.cpuTime = n, u.columns[i] == "cputime"
		case "algbw":
			x.alg = n
		case "busbw":
			x.bus = n
		case "#wrong", "wrong":
			x.checked = word != "N/A"
			x.wrong = int64(min(n.value, 1<<62))
			whole = true
		case "error":
			// Before 2.11 the column is the largest difference, which says nothing of the number of wrong elements. One
			// over the program's limit has an asterisk, or is no number.
			x.compared = word != "N/A"
			x.over = strings.HasSuffix(word, "*") || noNumber.MatchString(word) && word != "N/A"
			whole = true
		case "i_min":
			x.min = n
		case "i_max":
			x.max = n
		case "i_cv%":
			x.cvPercent, x.perIteration = n, true
		}
		if err != nil {
			u.skip(fmt.Sprintf("a %s that is no number", u.columns[i]))
			return
		}
	}
	flush()
}
