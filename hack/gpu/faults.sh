#!/usr/bin/env bash
# Ends or stops one rank of a running agent bench on this machine's GPUs, and shows how soon that is told and how soon the
# GPUs are free. LIBRARY and RUNTIME as in compare.sh; RANKS (2), ROUNDS (3), STEP_DEADLINE (8s), OUT.
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)
: "${LIBRARY:?path of the communication library}"
ranks=${RANKS:-2} rounds=${ROUNDS:-3} deadline=${STEP_DEADLINE:-8s} out=${OUT:-$(mktemp -d)}
export NCCL_NVLS_ENABLE=0
mkdir -p "$out"

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# once SIGNAL NAME: sends the signal to the last rank, a while into a measurement that takes long enough.
once() {
	local signal=$1 file="$out/$2" agent rank sent
	"$bin/agent" bench --ranks "$ranks" --collectives AllReduce --datatypes bf16 --sizes 64M,64M --iterations 100000 --warmup 5 \
		--step-deadline "$deadline" --library "$LIBRARY" ${RUNTIME:+--runtime "$RUNTIME"} -o json >"$file.json" 2>"$file.err" &
	agent=$!
	# The file says when the ranks are at work: each has mapped the library and started its step.
	for _ in $(seq 200); do
		rank=$(pgrep -P "$agent" -x rank | tail -n 1 || true)
		[ -n "$rank" ] && [ "$(pgrep -P "$agent" -x rank | wc -l)" = "$ranks" ] && grep -q Baseline "$file.err" && break
		sleep 0.1
	done
	sleep 3
	sent=$(milliseconds)
	kill -"$signal" "$rank"
	wait "$agent" || true
	echo "$2: signal $signal to the report: $(($(milliseconds) - sent)) ms; ranks left: $(pgrep -x rank | wc -l); GPU memory in use (MiB): $(
		nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | tr '\n' ' ')"
	cat "$file.err"
}

for round in $(seq "$rounds"); do
	once KILL "death-$round"
	once STOP "hang-$round"
done
