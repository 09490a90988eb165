#!/usr/bin/env bash
# Warm time of the demo and where it goes, and what each process takes of memory at its end; ends the demo afterwards.
#   hack/bench-demo.sh KUBE_BINARIES
set -euo pipefail
cd "$(dirname "$0")/.."
state=.demo-bench
trap 'bin/simcluster down --state-dir "$state" >/dev/null' EXIT
bin/simcluster demo --state-dir "$state" --binaries "$1" --simrocm bin/simrocm | sed -n '/Where the time went/,/in all/p'
echo "Resident memory (VmRSS) at the end, KiB"
for pid in $(pgrep -f "$state" || true); do
  name=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | awk '{n = split($1, part, "/"); print part[n], ($2 == "monitor" || $2 == "node" ? $2 : "")}') || continue
  rss=$(awk '/^VmRSS/ {print $2}' "/proc/$pid/status" 2>/dev/null) || continue
  [ -z "$rss" ] || [ "$name" = "bash " ] || printf '  %8s  %s\n' "$rss" "$name"
done | sort -k2 -k1n
