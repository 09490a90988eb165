#!/bin/sh
# Builds the images of the manager and of the agent with buildah, without a registry, and writes them to
#   OUTDIR/commgroup-manager.tar and OUTDIR/commgroup-agent.tar
# as docker archives, which `ctr -n k8s.io images import`, docker, podman and skopeo read.
#   hack/images/build.sh OUTDIR
# TAG is the images' tag (dev), REGISTRY what their names begin with (docker.io/library), VERSION what the binaries say they
# are, BASE_IMAGE the base (scratch; another is pulled by buildah). The same sources give the same bytes: times are the
# commit's, or SOURCE_DATE_EPOCH. It fails where an image is over its limit. It installs nothing, needs root or a user that
# buildah can map, and keeps nothing outside OUTDIR.
set -eu
manager_limit_bytes=80000000
agent_limit_bytes=40000000

[ $# = 1 ] || { echo "usage: hack/images/build.sh OUTDIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
if ! command -v buildah >/dev/null; then
    echo "buildah was not found in PATH: install it (Debian: apt-get install --no-install-recommends buildah)," \
        "or build by hand with docker or podman as the Dockerfile says" >&2
    exit 1
fi

tag=${TAG:-dev}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
revision=$(git rev-parse HEAD 2>/dev/null || true)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

work=$(mktemp -d)
# buildah's own storage, apart from the machine's and gone afterwards: images, containers and their mounts.
store="--root $work/root --runroot $work/run --storage-driver vfs"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Without vcs stamps, so that a checkout and an archive of it give the same bytes; the version says what they would.
mkdir -p "$work/context/bin"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" -o "$work/context/bin/" \
    ./cmd/manager ./cmd/agent ./cmd/rank

# A policy of our own: the machine may have none, and nothing is pulled but a base that the caller named.
echo '{"default":[{"type":"insecureAcceptAnything"}]}' >"$work/policy.json"
for image in manager agent; do
    archive=$out/commgroup-$image.tar
    rm -f "$archive"
    # The name in full: docker.io/library is what a pod's image "commgroup-manager:dev" means.
    name=${REGISTRY:-docker.io/library}/commgroup-$image:$tag
    # --isolation chroot: no RUN stands in the Dockerfile, so no container is ever started.
    # shellcheck disable=SC2086 # one word an option
    buildah $store bud --quiet --signature-policy "$work/policy.json" --isolation chroot --timestamp "$epoch" --identity-label=false \
        --build-arg "BASE_IMAGE=${BASE_IMAGE:-scratch}" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
        --target "$image" --tag "$name" -f Dockerfile "$work/context" >/dev/null
    # shellcheck disable=SC2086
    buildah $store push --quiet --signature-policy "$work/policy.json" "$name" "docker-archive:$archive:$name"
    case $image in manager) limit=$manager_limit_bytes ;; agent) limit=$agent_limit_bytes ;; esac
    # A docker archive holds the layers uncompressed, and a few kilobytes of description.
    size=$(wc -c <"$archive")
    if [ "$size" -ge "$limit" ]; then
        echo "$archive is $size bytes, expected less than $limit: see which packages grew (go version -m, go tool nm -size" \
            "-sort size) and drop them from the binary" >&2
        rm -f "$archive"
        exit 1
    fi
    echo "$name $version $size bytes (limit $limit) in $archive"
done
