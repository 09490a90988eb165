#!/usr/bin/env bash
# Times agent discover and holds it against rocm-smi --showtopo on the same simulated nodes, in time and in content. As root on
# Debian or Ubuntu, since it installs rocm-smi and mounts trees over /sys, in a mount namespace of its own.
#
#   ROUNDS    measured runs of each command (15)
#   ROCM_SMI  further rocm-smi to hold it against, separated by blanks; one built from ROCm/rocm_smi_lib:
#             cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=DIR && make -C build install, then DIR/bin/rocm-smi
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" != 0 ]; then
	echo "it installs packages and mounts trees over /sys in a mount namespace of its own: run it as root" >&2
	exit 1
fi
if ! command -v rocm-smi >/dev/null || ! command -v rocminfo >/dev/null; then
	hack/apt.sh rocm-smi rocminfo >/dev/null
fi
others=()
for path in ${ROCM_SMI:-}; do others+=(--rocm-smi "$path"); done
echo "rocm-smi $(dpkg-query -W -f '${Version}' rocm-smi 2>/dev/null || echo 'of the PATH'), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg) before"
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/ ./cmd/agent ./hack/bench-discover
bin/bench-discover --rounds "${ROUNDS:-15}" --rocm-smi rocm-smi "${others[@]}"
# rocminfo asks the driver itself (AMDKFD_IOC_GET_VERSION on /dev/kfd), so a tree is not enough for it.
echo
echo "== rocminfo: $(rocminfo 2>/dev/null | sed 's/\x1b\[[0-9;]*m//g' | head -n 1)"
