// Package docs holds pages that commands quote, so that a user reads the same words at the terminal as here.
package docs

import _ "embed" // the pages

// Reasons is reasons.md: what each reason means and what to do next.
//
//go:embed reasons.md
var Reasons string
