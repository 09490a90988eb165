#!/usr/bin/env bash
# Ends or stops one rank of a running agent bench on this machine's GPUs, and shows how soon that is reported and how soon the
# GPUs are free. A control without a fault comes first: the same measurement must pass within its deadline, or a hang would
# prove nothing. Fails where a run is not reported as what it is, or leaves ranks behind.
#
#   LIBRARY, RUNTIME  as in compare.sh
#   RANKS (2), ROUNDS (3), OUT
#   STEP_SECONDS (10)   length of the step in which the rank is hit; DEADLINE_SECONDS (three times that) of the step
#   FAULT_AFTER (3)     seconds into the variant at which the rank is hit
#   ITERATIONS          of the step; none means as many as last for STEP_SECONDS
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)
: "${LIBRARY:?path of the communication library}"
ranks=${RANKS:-2} rounds=${ROUNDS:-3} out=${OUT:-$(mktemp -d)}
step=${STEP_SECONDS:-10} after=${FAULT_AFTER:-3} iterations=${ITERATIONS:-}
deadline=${DEADLINE_SECONDS:-$((3 * step))}
export NCCL_NVLS_ENABLE=0
mkdir -p "$out"

fail() {
	echo "$*" >&2
	exit 1
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# bench ITERATIONS FILE: the measurement, its report in FILE.json and its progress in FILE.err.
bench() {
	exec "$bin/agent" bench --ranks "$ranks" --collectives AllReduce --datatypes bf16 --sizes 64M --iterations "$1" --warmup 5 \
		--step-deadline "${deadline}s" --library "$LIBRARY" ${RUNTIME:+--runtime "$RUNTIME"} -o json >"$2.json" 2>"$2.err"
}

# of NAME FILE: the first value of a field of a report; empty where it has none.
of() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$2.json" | head -n 1; }

# calibrate sets how many iterations fill the step.
calibrate() {
	local call most=1000000 # of agent bench
	(bench 200 "$out/calibration") || fail "the bench fails without a fault: $(cat "$out/calibration.err")"
	call=$(of medianNanoseconds "$out/calibration")
	[ "${call:-0}" -gt 0 ] || fail "the report has no time of a call: $out/calibration.json"
	iterations=$((step * 1000000000 / call))
	[ "$iterations" -le "$most" ] || iterations=$most
}

# control: as many iterations pass without a fault.
control() {
	local began took
	began=$(milliseconds)
	(bench "$iterations" "$out/control") ||
		fail "the control without a fault fails ($(of kind "$out/control")), so a hang would prove nothing: $(cat "$out/control.err")"
	took=$(($(milliseconds) - began))
	[ "$took" -gt $((after * 1000)) ] || fail "the control took $took ms, so that no rank would be at work after $after s: raise STEP_SECONDS"
	echo "control: $iterations iterations passed without a fault in $took ms; the step's deadline is $deadline s"
}

# once SIGNAL NAME KIND: sends the signal to the last rank while it measures; the report must be of this kind.
once() {
	local signal=$1 file="$out/$2" kind=$3 agent pids rank="" sent took left=0
	(bench "$iterations" "$file") &
	agent=$!
	# The progress says when the ranks are at work: each has loaded the library, and they join.
	for _ in $(seq 200); do
		pids=$(pgrep -P "$agent" -x rank || true)
		if grep -q '^Baseline' "$file.err" && [ "$(wc -w <<<"$pids")" = "$ranks" ]; then
			rank=$(tail -n 1 <<<"$pids")
			break
		fi
		sleep 0.1
	done
	if [ -z "$rank" ]; then
		kill "$agent" 2>/dev/null || true
		fail "$2: the ranks did not get to work in 20 s: $(cat "$file.err")"
	fi
	sleep "$after"
	sent=$(milliseconds)
	kill -"$signal" "$rank" || fail "$2: the rank had ended before it was hit: $(cat "$file.err")"
	if wait "$agent"; then fail "$2: the bench passed although a rank was hit by $signal"; fi
	took=$(($(milliseconds) - sent))
	for pid in $pids; do
		if kill -0 "$pid" 2>/dev/null; then left=$((left + 1)); fi
	done
	echo "$2: signal $signal to the report: $took ms; ranks left: $left; GPU memory in use (MiB): $(
		nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | tr '\n' ' ')"
	cat "$file.err"
	[ "$(of kind "$file")" = "$kind" ] || fail "$2: reported as $(of kind "$file"), expected $kind"
	[ "$left" = 0 ] || fail "$2: $left ranks are left"
}

[ -n "$iterations" ] || calibrate
control
for round in $(seq "$rounds"); do
	once KILL "death-$round" Died
	once STOP "hang-$round" Hung
done
