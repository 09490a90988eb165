#!/usr/bin/env bash
# Holds agent bench against nccl-tests (or rccl-tests) on this machine's GPUs, one process a GPU on both sides, in turns, so
# that drift of the machine meets both. Needs the tests built with MPI=1, and bin/agent, bin/rank and bin/ratio (make build).
# Nothing here enables NVLink multicast: NCCL_NVLS_ENABLE stays 0 on both sides.
#
#   NCCL_TESTS=DIR    folder of all_reduce_perf and the others
#   MPIEXEC=COMMAND   mpiexec that belongs to the MPI they were built with (default mpiexec)
#   LIBRARY, RUNTIME  libnccl.so.2 and libcudart.so (or librccl.so.1 and libamdhip64.so) that both sides load
#   RANKS, ROUNDS, OUT, SMALL_ITERATIONS, LARGE_ITERATIONS, TESTS
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)
: "${NCCL_TESTS:?folder of all_reduce_perf and the others, built with MPI=1}" "${LIBRARY:?path of the communication library}"
mpiexec=${MPIEXEC:-mpiexec} ranks=${RANKS:-2} rounds=${ROUNDS:-5} out=${OUT:-$(mktemp -d)}
small=${SMALL_ITERATIONS:-1000} large=${LARGE_ITERATIONS:-20}
read -ra tests <<<"${TESTS:-all_reduce all_gather reduce_scatter alltoall}"
export NCCL_NVLS_ENABLE=0
mkdir -p "$out"

theirs() { # file, further arguments
	local file=$1 test=$2
	shift 2
	$mpiexec -n "$ranks" "$NCCL_TESTS/${test}_perf" -g 1 -d bfloat16 -w 20 -J "$out/$file.raw.json" "$@" >"$out/$file.txt"
	"$bin/agent" import -o json "$out/$file.raw.json" >"$out/$file.json"
}

ours() { # file, test, sizes, iterations
	"$bin/agent" bench --ranks "$ranks" --collectives "$2" --datatypes bf16 --placements OutOfPlace,InPlace --sizes "$3" --iterations "$4" \
		--warmup 20 --library "$LIBRARY" ${RUNTIME:+--runtime "$RUNTIME"} -o json >"$out/$1.json"
}

for test in "${tests[@]}"; do
	for round in $(seq "$rounds"); do
		theirs "theirs-$test-small-$round" "$test" -b 64 -e 64K -f 2 -n "$small"
		ours "ours-$test-small-$round" "$test" 64:64K:2 "$small"
		ours "ours-$test-large-$round" "$test" 1M:1G:4 "$large"
		theirs "theirs-$test-large-$round" "$test" -b 1M -e 1G -f 4 -n "$large"
	done
done
"$bin/ratio" "$out"/ours-*.json -- $(ls "$out"/theirs-*.json | grep -v raw) | tee "$out/ratio.txt"
