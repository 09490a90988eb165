// Package runner carries out one run on one node: it has a rank process for each GPU and variant started and watched,
// judges what they measured, searches for a culprit after a hang, wrong data or a failed init, and reports the result.
// What is decided (plan, judgement, search) is pure; processes, the API server and the clock sit behind interfaces.
package runner
