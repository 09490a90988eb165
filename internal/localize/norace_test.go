//go:build !race

package localize

const raced = false
