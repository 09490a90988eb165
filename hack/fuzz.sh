#!/usr/bin/env bash
# Runs every fuzz test of the module, one after the other, each for FUZZTIME, and says how much each did. It ends with 1 where
# one failed; the input that failed then lies in that package's testdata/fuzz, where go test runs it from then on.
#
#   FUZZTIME   time for each, as go test takes it (30s)
#   PACKAGES   packages to look in (./...)
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-30s}
read -ra packages <<<"${PACKAGES:-./...}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$(go env GOCACHE)/fuzz"
export TIMEFORMAT='%3U %3S'
failed=0 count=0 total_execs=0 total_cpu=0
printf '%-72s %12s %10s %12s\n' "fuzz test ($fuzztime each)" executions "cpu s" result
while read -r folder import; do
	mapfile -t names < <(grep -hoE '^func Fuzz[A-Za-z0-9_]*\(' "$folder"/*_test.go 2>/dev/null | sed 's/^func //; s/($//')
	[ ${#names[@]} -gt 0 ] || continue
	# With -fuzz the compiler puts the coverage counters in that guide the fuzzer.
	go test -c -fuzz=Fuzz -o "$scratch/fuzz.test" "$import"
	for name in "${names[@]}"; do
		code=0
		{ time (cd "$folder" && "$scratch/fuzz.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$fuzztime" \
			-test.fuzzcachedir "$(go env GOCACHE)/fuzz/$import" >"$scratch/log" 2>&1); } 2>"$scratch/time" || code=$?
		execs=$(sed -n 's/^fuzz: elapsed: .* execs: \([0-9]*\).*/\1/p' "$scratch/log" | tail -n 1)
		cpu=$(tail -n 1 "$scratch/time" | awk '{printf "%.1f", $1 + $2}')
		result=ok
		if [ "$code" != 0 ]; then
			result=FAILED failed=1
		elif [ "${execs:-0}" = 0 ]; then # the known inputs took all the time, or the name matched nothing: that is no pass
			result="TOO SHORT" failed=1
		fi
		printf '%-72s %12s %10s %12s\n' "${import#*/commgroup-operator/} $name" "${execs:-0}" "$cpu" "$result"
		if [ "$result" != ok ]; then tail -n 40 "$scratch/log"; fi
		count=$((count + 1)) total_execs=$((total_execs + ${execs:-0}))
		total_cpu=$(awk -v a="$total_cpu" -v b="$cpu" 'BEGIN {printf "%.1f", a + b}')
	done
done < <(go list -f '{{.Dir}} {{.ImportPath}}' "${packages[@]}")
printf '%-72s %12s %10s\n' "$count fuzz tests, $(awk -v s="$total_cpu" 'BEGIN {printf "%.1f", s / 60}') CPU-minutes" "$total_execs" "$total_cpu"
if [ "$count" = 0 ]; then
	echo "no fuzz test was found in ${packages[*]}" >&2
	exit 1
fi
exit "$failed"
