// Package settings says of each setting (DDA, FP8) what holds over all members: whether it is in effect, whether the
// A/B run confirmed it, and what it is worth by the run's numbers. What of it is published is for package publish to
// decide.
package settings
