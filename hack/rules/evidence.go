//go:build ruleguard

// Package rules has the rules that golangci-lint (gocritic, ruleguard) holds the code to beside its own.
package rules

import "github.com/quasilyte/go-ruleguard/dsl"

// typedEvidence: sentences, ids and names of steps are for users. Code that needs to know what is in one takes it from
// a typed field; only what renders, and parsers of foreign text, look into them.
func typedEvidence(m dsl.Matcher) {
	m.Match(
		`strings.Contains($x.$field, $*_)`, `strings.ContainsAny($x.$field, $*_)`, `strings.Index($x.$field, $*_)`,
		`strings.Cut($x.$field, $*_)`, `strings.CutPrefix($x.$field, $*_)`, `strings.CutSuffix($x.$field, $*_)`,
		`strings.HasPrefix($x.$field, $*_)`, `strings.HasSuffix($x.$field, $*_)`,
		`strings.Split($x.$field, $*_)`, `strings.SplitN($x.$field, $*_)`, `strings.Fields($x.$field)`,
		`$_.MatchString($x.$field)`, `$_.FindStringSubmatch($x.$field)`,
	).
		Where(m["field"].Text.Matches(`^(ID|RunID|Message|Subject|Step)$`)).
		Report(`$x.$field is for people: take what you need from a typed field (docs/architecture.md)`)
	m.Match(
		`strings.Contains($x.Subject(), $*_)`, `strings.ContainsAny($x.Subject(), $*_)`,
		`strings.Index($x.Subject(), $*_)`,
		`strings.Cut($x.Subject(), $*_)`, `strings.CutPrefix($x.Subject(), $*_)`,
		`strings.CutSuffix($x.Subject(), $*_)`,
		`strings.HasPrefix($x.Subject(), $*_)`, `strings.HasSuffix($x.Subject(), $*_)`,
		`strings.Split($x.Subject(), $*_)`, `strings.SplitN($x.Subject(), $*_)`, `strings.Fields($x.Subject())`,
		`$_.MatchString($x.Subject())`, `$_.FindStringSubmatch($x.Subject())`,
	).
		Report(`$x.Subject() is for people: take what you need from a typed field (docs/architecture.md)`)
}
