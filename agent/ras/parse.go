package ras

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is kept of an answer: it comes from a library that may be broken.
const (
	maxListed = 1024
	maxGroups = 256
)

var (
	libraryLine = regexp.MustCompile(`^(N|R)CCL version (\S+) compiled with `)
	groupLine   = regexp.MustCompile(`^ *(\d+) +(\d+) +\d+ +\S+ +(\d+) +\d+ +([A-Z]+) +([A-Z,]+)$`)
	headLine    = regexp.MustCompile(`^#(\d+)-(\d+) \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)$`)
	processLine = regexp.MustCompile(`^  Process (\d+) on node (\S+) managing GPUs? (.+)$`)
	missingLine = regexp.MustCompile(`^  Missing communicator data from (\d+) (job process|rank)`)
	deadLine    = regexp.MustCompile(`^  (\d+) job process(?: is|es are) considered dead`)
	timeoutLine = regexp.MustCompile(`^  Encountered (\d+) communication timeout`)
	countsLine  = regexp.MustCompile(`^  Communicator ranks have different (\S+) operation counts$`)
	errorsLine  = regexp.MustCompile(`^  (Initialization|Asynchronous) errors? on (\d+) ranks?$`)
	classLine   = regexp.MustCompile(
		`^  (\d+) ranks (have status|have launched up to operation|have not launched any operations|reported) ?(.*)$`)
	rankLine = regexp.MustCompile(
		`^  Rank (\d+) (?:(has status|has launched up to operation|has not launched any operations|reported) ?(.*?) ?)?-- (.*)$`)
	whereaboutsOf = regexp.MustCompile(`^GPU (.+?) managed by process (\d+) on node `)
)

// Parse reads the answer to STATUS or VERBOSE STATUS, whole or cut off. Lines that it does not know are left out: later
// versions of the library add some. The form is that of nccl 2.28 src/ras/client_support.cc, which RCCLX 2.28.3 differs
// from only in its first two lines.
func Parse(text string) Report {
	p := parser{}
	for line := range strings.Lines(text) {
		p.line(strings.TrimRight(line, "\r\n"))
	}
	return p.report
}

type parser struct {
	report Report
	// section is the last heading: "Job summary", "Communicators", "Errors" or "Warnings".
	section string
	// processes takes the processes that are listed next.
	processes *Processes
	// comm is the communicator that the lines are about; -1 and below means none.
	comm int
	// within says what they list: its missing ranks, or classes of ranks.
	missing bool
	classes *[]Class
}

func (p *parser) line(s string) {
	switch {
	case strings.HasPrefix(s, "Job summary"):
		p.enter("Job summary")
	case strings.HasPrefix(s, "Communicators..."):
		p.enter("Communicators")
		p.report.Collected = strings.Contains(s, "(")
	case s == "Errors" && p.section != "Errors":
		p.enter("Errors")
	case s == "Warnings" && p.section != "Warnings":
		p.enter("Warnings")
		p.report.Complete = true
	case p.section == "":
		if m := libraryLine.FindStringSubmatch(s); m != nil {
			p.report.Library = m[1] + "CCL " + m[2]
		}
		p.report.Simulated = p.report.Simulated || strings.Contains(s, "SIMULATED")
	case p.section == "Job summary":
		p.summary(s)
	case p.section == "Communicators":
		p.group(s)
	default:
		p.finding(s)
	}
}

func (p *parser) enter(section string) {
	p.section, p.processes, p.classes, p.missing, p.comm = section, nil, nil, false, -1
}

// summary reads a row of numbers. A job of equal nodes has one of five; else the last row of three has the totals.
func (p *parser) summary(s string) {
	fields := strings.Fields(s)
	numbers := make([]int, 0, len(fields))
	for _, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			return
		}
		numbers = append(numbers, n)
	}
	switch len(numbers) {
	case 5:
		p.report.Nodes, p.report.Processes, p.report.GPUs = numbers[0], numbers[3], numbers[4]
	case 3:
		p.report.Nodes, p.report.Processes, p.report.GPUs = numbers[0], numbers[1], numbers[2]
	}
}

func (p *parser) group(s string) {
	m := groupLine.FindStringSubmatch(s)
	if m == nil || len(p.report.Groups) == maxGroups {
		return
	}
	g := Group{Number: number(m[1]), Communicators: number(m[2]), RanksPerCommunicator: number(m[3]), Status: m[4]}
	if m[5] != "OK" {
		g.Errors = strings.Split(m[5], ",")
	}
	p.report.Groups = append(p.report.Groups, g)
}

func (p *parser) finding(s string) {
	if m := headLine.FindStringSubmatch(s); m != nil {
		p.communicator(m)
		return
	}
	if m := processLine.FindStringSubmatch(s); m != nil {
		if p.processes != nil && len(p.processes.Listed) < maxListed {
			p.processes.Listed = append(p.processes.Listed, Process{PID: number(m[1]), Node: m[2], GPUs: m[3]})
		}
		return
	}
	if m := missingLine.FindStringSubmatch(s); m != nil {
		if m[2] == "rank" && p.comm >= 0 {
			p.report.Communicators[p.comm].MissingRanks, p.missing = number(m[1]), true
		} else if m[2] != "rank" {
			p.report.Missing.Count, p.processes = number(m[1]), &p.report.Missing
		}
		return
	}
	if m := deadLine.FindStringSubmatch(s); m != nil {
		p.report.Dead.Count, p.processes = number(m[1]), &p.report.Dead
		return
	}
	if m := timeoutLine.FindStringSubmatch(s); m != nil {
		p.report.Timeouts = number(m[1])
		return
	}
	if p.comm >= 0 {
		p.ranks(s)
	}
}

// communicator starts the lines about one; a communicator with findings of several kinds has several such heads.
func (p *parser) communicator(m []string) {
	c := Communicator{Group: number(m[1]), Number: number(m[2]), Hash: m[3]}
	p.processes, p.classes, p.missing = nil, nil, false
	p.comm = slices.IndexFunc(p.report.Communicators, func(x Communicator) bool {
		return x.Group == c.Group && x.Number == c.Number && x.Hash == c.Hash
	})
	if p.comm < 0 && len(p.report.Communicators) < maxGroups {
		p.comm = len(p.report.Communicators)
		p.report.Communicators = append(p.report.Communicators, c)
	}
}

// ranks reads what stands below the head of a communicator.
func (p *parser) ranks(s string) {
	c := &p.report.Communicators[p.comm]
	if s == "  Communicator ranks have different status" {
		c.Statuses, p.classes, p.missing = nil, &c.Statuses, false
		return
	}
	if m := countsLine.FindStringSubmatch(s); m != nil && len(c.Operations) < maxGroups {
		c.Operations = append(c.Operations, Operations{Collective: m[1]})
		p.classes, p.missing = &c.Operations[len(c.Operations)-1].Classes, false
		return
	}
	if m := errorsLine.FindStringSubmatch(s); m != nil && len(c.Errors) < maxGroups {
		c.Errors = append(c.Errors, RankErrors{Asynchronous: m[1] == "Asynchronous", Count: number(m[2])})
		p.classes, p.missing = &c.Errors[len(c.Errors)-1].Classes, false
		return
	}
	if m := classLine.FindStringSubmatch(s); m != nil {
		if p.classes != nil && len(*p.classes) < maxListed {
			*p.classes = append(*p.classes, class(number(m[1]), m[2], m[3]))
		}
		return
	}
	m := rankLine.FindStringSubmatch(s)
	if m == nil {
		return
	}
	r := Rank{Rank: number(m[1])}
	if w := whereaboutsOf.FindStringSubmatch(m[4]); w != nil {
		r.GPU, r.PID = w[1], number(w[2])
	}
	switch {
	case p.missing && m[2] == "":
		if len(c.Missing) < maxListed {
			c.Missing = append(c.Missing, r)
		}
	case p.classes == nil:
	case m[2] != "" && len(*p.classes) < maxListed: // a class of one rank
		one := class(1, m[2], m[3])
		one.Ranks = []Rank{r}
		*p.classes = append(*p.classes, one)
	case m[2] == "" && len(*p.classes) > 0:
		if last := &(*p.classes)[len(*p.classes)-1]; len(last.Ranks) < min(last.Count, maxListed) {
			last.Ranks = append(last.Ranks, r)
		}
	}
}

func class(count int, verb, what string) Class {
	c := Class{Count: count}
	if strings.Contains(verb, "up to operation") {
		c.Launched, _ = strconv.ParseInt(what, 10, 64) // an overflow gives the largest number, which is as wrong as any
	} else if !strings.Contains(verb, "not launched") {
		c.Status = what
	}
	return c
}

// number reads what a pattern has found to be digits; one too large for an int gives the largest.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
