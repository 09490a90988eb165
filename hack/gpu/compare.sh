#!/usr/bin/env bash
# Holds agent bench against nccl-tests (or rccl-tests) on this machine's GPUs, one process a GPU on both sides, in turns, so
# that drift of the machine meets both. Needs the tests built with MPI=1, and bin/agent, bin/rank and bin/ratio (make build).
# Nothing here enables NVLink multicast: NCCL_NVLS_ENABLE stays 0 on both sides.
#
#   PERF_DIR=DIR    folder of all_reduce_perf and the others
#   MPIEXEC=COMMAND   mpiexec that belongs to the MPI they were built with (default mpiexec)
#   LIBRARY, RUNTIME  libnccl.so.2 and libcudart.so (or librccl.so.1 and libamdhip64.so) that both sides load
#   RANKS (2), ROUNDS (5), OUT, TESTS
#   SMALL, LARGE      sizes as MIN:MAX:FACTOR; SMALL_ITERATIONS, LARGE_ITERATIONS
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)
: "${PERF_DIR:?folder of all_reduce_perf and the others, built with MPI=1}" "${LIBRARY:?path of the communication library}"
mpiexec=${MPIEXEC:-mpiexec} ranks=${RANKS:-2} rounds=${ROUNDS:-5} out=${OUT:-$(mktemp -d)}
small=${SMALL:-64:64K:2} large=${LARGE:-1M:1G:4} small_iterations=${SMALL_ITERATIONS:-1000} large_iterations=${LARGE_ITERATIONS:-20}
read -ra tests <<<"${TESTS:-all_reduce all_gather reduce_scatter alltoall}"
export NCCL_NVLS_ENABLE=0
mkdir -p "$out"

theirs() { # file, test, sizes, iterations
	local from to factor
	IFS=: read -r from to factor <<<"$3"
	$mpiexec -n "$ranks" "$PERF_DIR/${2}_perf" -g 1 -d bfloat16 -w 20 -n "$4" -b "$from" -e "$to" -f "$factor" -J "$out/$1.raw.json" >"$out/$1.txt"
	"$bin/agent" import -o json "$out/$1.raw.json" >"$out/$1.json"
}

ours() { # file, test, sizes, iterations
	"$bin/agent" bench -q --ranks "$ranks" --collectives "$2" --datatypes bf16 --placements both --sizes "$3" --iterations "$4" \
		--warmup 20 --library "$LIBRARY" ${RUNTIME:+--runtime "$RUNTIME"} -o json >"$out/$1.json"
}

for test in "${tests[@]}"; do
	for round in $(seq "$rounds"); do
		theirs "theirs-$test-small-$round" "$test" "$small" "$small_iterations"
		ours "ours-$test-small-$round" "$test" "$small" "$small_iterations"
		ours "ours-$test-large-$round" "$test" "$large" "$large_iterations"
		theirs "theirs-$test-large-$round" "$test" "$large" "$large_iterations"
	done
done
rm -f "$out"/*.raw.json
"$bin/ratio" "$out"/ours-*.json -- "$out"/theirs-*.json | tee "$out/ratio.txt"
