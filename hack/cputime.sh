#!/bin/bash
# go test -exec "$PWD/hack/cputime.sh" ./...: runs each package's test binary and notes its CPU time, that of its children included, in
# bin/cputime. CPU time, unlike time on the wall, is about the same on a busy machine.
# hack/cputime.sh --report: the most expensive packages of those notes. Each above its budget of 300 CPU-seconds is named; none fails for it, as
# a busy machine, whose processors share their caches and cores with others, takes up to twice the CPU time.
set -u
root=$(dirname "$(dirname "$(readlink -f "$0")")")
notes=$root/bin/cputime

if [ "${1-}" = --report ]; then
  [ -s "$notes" ] || exit 0 # all results were cached
  awk '{ printf "%.1f %s\n", $1 + $2, $3 }' "$notes" | sort -rn | awk -v budget=300 '
    { total += $1 }
    NR <= 10 || $1 > budget { printf "%7.1f CPU-s  %s%s\n", $1, $2, ($1 > budget ? "  ABOVE ITS BUDGET of " budget " CPU-s" : "") }
    END { printf "%7.1f CPU-s  in all %d packages that ran\n", total, NR }'
  exit
fi

binary=$1
shift
mkdir -p "$root/bin"
TIMEFORMAT="%U %S .${PWD#"$root"}"
exec 3>&2
# The log of what a test reads is what go test caches its result by; it asks only binaries that it starts itself for one.
{ time "$binary" -test.testlogfile="$(dirname "$binary")/testlog.txt" "$@" 2>&3 3>&-; } 2>>"$notes"
