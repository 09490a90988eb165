#!/bin/sh
# Builds the images that the test cluster needs beside the product's: OUTDIR/pause.tar (pause:realcluster, from the program
# PAUSE) and OUTDIR/rocm-sim.tar (rocm-sim:dev, from the simulated ROCm libraries in SIMROCM).
#   hack/realcluster/images/build.sh OUTDIR PAUSE SIMROCM
set -eu
[ $# = 3 ] || { echo "usage: hack/realcluster/images/build.sh OUTDIR PAUSE SIMROCM" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
command -v buildah >/dev/null || { echo "buildah was not found in PATH: apt-get install --no-install-recommends buildah" >&2; exit 1; }

work=$(mktemp -d)
# buildah's own storage, gone afterwards.
store="--root $work/root --runroot $work/run --storage-driver vfs"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$work/context/pause" "$work/context/rocm-sim/opt/rocm/lib" "$work/context/rocm-sim/tmp" "$work/context/rocm-sim/etc"
cp "$2" "$work/context/pause/pause"
chmod 1777 "$work/context/rocm-sim/tmp"
echo 'root:x:0:0:root:/root:/' >"$work/context/rocm-sim/etc/passwd"
found=
for library in "$3"/*.so*; do
    [ -e "$library" ] || continue
    cp -P "$library" "$work/context/rocm-sim/opt/rocm/lib/"
    found=1
done
[ -n "$found" ] || { echo "no library in $3: run make simrocm first" >&2; exit 1; }
# The C library as this machine has it: what the simulated libraries and the rank program are linked against, by the paths
# where their loader looks. libdl, libpthread and librt are empty since glibc 2.34, but programs still name them.
{
    ldd "$3"/librccl.so.1 | sed -n -e 's|.*=> \(/[^ ]*\).*|\1|p' -e 's|^[[:space:]]*\(/[^ ]*\) .*|\1|p'
    libc=$(ldd "$3"/librccl.so.1 | sed -n 's|.*=> \(/[^ ]*/libc\.so\.6\).*|\1|p')
    for name in libdl.so.2 libpthread.so.0 librt.so.1 libm.so.6; do echo "$(dirname "$libc")/$name"; done
} | sort -u | while read -r file; do
    case $file in "$(cd "$3" && pwd)"/* | "$3"/*) continue ;; esac
    mkdir -p "$work/context/rocm-sim$(dirname "$file")"
    cp -L "$file" "$work/context/rocm-sim$file"
done

echo '{"default":[{"type":"insecureAcceptAnything"}]}' >"$work/policy.json"
for image in pause:realcluster rocm-sim:dev; do
    target=${image%:*}
    name=docker.io/library/$image
    rm -f "$out/$target.tar"
    # shellcheck disable=SC2086 # one word an option
    buildah $store bud --quiet --signature-policy "$work/policy.json" --isolation chroot --target "$target" --tag "$name" \
        -f "$here/Containerfile" "$work/context" >/dev/null
    # shellcheck disable=SC2086
    buildah $store push --quiet --signature-policy "$work/policy.json" "$name" "docker-archive:$out/$target.tar:$name"
    echo "$image $(wc -c <"$out/$target.tar") bytes in $out/$target.tar"
done
