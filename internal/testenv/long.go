package testenv

import "os"

// LongEnv in the environment makes tests search for as long as they can: make test-long.
const LongEnv = "TEST_LONG"

// Long says whether tests are to try all that they can. Else they keep to a budget of steps, so that a package takes at
// most five CPU-minutes with -race.
func Long() bool { return os.Getenv(LongEnv) == "1" }

// Draws is how many random draws, members or steps a test takes: quick by default, long with Long.
func Draws[T any](quick, long T) T {
	if Long() {
		return long
	}
	return quick
}
