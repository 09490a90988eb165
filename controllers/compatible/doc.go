// Package compatible says whether a group's members fit together (ROCm, driver, GPUs, partition, firmware, library
// build), names the odd ones out, and lists what the members have in the inventory.
package compatible
