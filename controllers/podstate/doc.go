// Package podstate reads the status of a run's pods: whether they hold GPUs, when their ranks started, why they wait or
// ended, and whether the cluster or a queue holds them back. It decides nothing about a run.
package podstate
