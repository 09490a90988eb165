#!/usr/bin/env bash
# The group's stage on real GPUs: the operator's state machine and its search for a culprit, with real agents and ranks that form
# communicators over four nodes of this machine. Each node has an identity of its own (NCCL_HOSTID), so that the library goes over
# the network between them; nodes share the GPUs by turns, so that bandwidth says nothing of the hardware. One node is starved of
# processor time (slow), or its rank is stopped in each collective over several nodes (hang), and must be named.
#
#   LIBRARY   path of libnccl.so.2; GPUS (as many as nvidia-smi lists); RUN (good|slow|hang, all by default)
# Needs bin/agent, bin/rank and bin/group.test, which make prove-group builds (a machine without Go can be given them), taskset, unshare and root.
set -euo pipefail
bin=$(cd "$(dirname "$0")/../../bin" && pwd)
: "${LIBRARY:?path of the communication library}"
export COMMGROUP_GROUP_LIBRARY=$LIBRARY COMMGROUP_GROUP_AGENTS=$bin NCCL_NVLS_ENABLE=0
export COMMGROUP_GROUP_GPUS=${GPUS:-$(nvidia-smi --list-gpus | wc -l)}
cd "$(mktemp -d)"
exec "$bin/group.test" -test.v -test.timeout 20m -test.run "^TestGroupStageOfRealAgents\$/^${RUN:-.*}\$"
