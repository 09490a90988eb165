#!/bin/sh
# Makes etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl available in one folder and prints
# that folder's path on standard output; everything else goes to standard error.
#   hack/kube/build.sh [BINARY...]     the first five without an argument; kubelet and kube-proxy by name
# Binaries in KUBEBUILDER_ASSETS are taken when etcd and kube-apiserver are there; what is missing is compiled from the
# Go modules that go.mod pins, once: later calls find it in the cache. With KUBE_RELEASE_URL set to a mirror of Kubernetes'
# releases (URL/VERSION/bin/OS/ARCH/BINARY, with BINARY.sha256 beside it) what the mirror has is downloaded instead.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$here/go.mod" | head -n 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/commgroup-operator/kube/$version
wanted=${*:-etcd kube-apiserver kube-controller-manager kube-scheduler kubectl}
progress_seconds=15

say() { echo "$*" >&2; }

package_of() {
    case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kube-scheduler | kubectl | kubelet | kube-proxy) echo "k8s.io/kubernetes/cmd/$1" ;;
    *)
        say "unknown binary $1: expected etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet or kube-proxy"
        exit 2
        ;;
    esac
}

mkdir -p "$cache"
# One build at a time: a second caller waits and then finds the binaries.
exec 9>"$cache.lock"
if ! flock -n 9; then
    say "another build of the control plane is going on; waiting for it (at most 60 minutes)"
    flock -w 3600 9 || { say "the other build still holds $cache.lock after 60 minutes: end it, then try again"; exit 1; }
fi

assets=${KUBEBUILDER_ASSETS:-}
if [ -n "$assets" ] && [ "$assets" != "$cache" ] && [ -x "$assets/etcd" ] && [ -x "$assets/kube-apiserver" ]; then
    # Other folder, so that binaries of another version never mix with those of this one in the cache.
    cache=$cache-assets
    mkdir -p "$cache"
    for binary in $wanted; do
        if [ -x "$assets/$binary" ]; then ln -sfn "$assets/$binary" "$cache/$binary"; fi
    done
    say "taking binaries from KUBEBUILDER_ASSETS=$assets where it has them"
fi

missing=
for binary in $wanted; do
    package_of "$binary" >/dev/null
    if [ ! -x "$cache/$binary" ]; then missing="$missing $binary"; fi
done
if [ -z "$missing" ]; then
    echo "$cache"
    exit 0
fi

# download BINARY: from the mirror, checked against its checksum; fails where the mirror does not have it.
download() {
    base=${KUBE_RELEASE_URL%/}/$version/bin/$(uname -s | tr A-Z a-z)/$(uname -m | sed -e s/x86_64/amd64/ -e s/aarch64/arm64/)/$1
    got=$cache/.download-$1
    sum=$(curl -fsSL --connect-timeout 10 --max-time 60 "$base.sha256" 2>/dev/null | cut -c1-64) || return 1
    if curl -fsSL --connect-timeout 10 --max-time 900 -o "$got" "$base" 2>/dev/null && [ "$(sha256sum <"$got" | cut -c1-64)" = "$sum" ]; then
        chmod 0755 "$got" && mv -f "$got" "$cache/$1"
        return
    fi
    rm -f "$got"
    say "  $base could not be downloaded whole, or its checksum differs; compiling $1 instead"
    return 1
}
if [ -n "${KUBE_RELEASE_URL:-}" ]; then
    command -v curl >/dev/null || { say "KUBE_RELEASE_URL is set, but curl was not found in PATH: install it, or unset the variable to compile"; exit 1; }
    rest=
    for binary in $missing; do
        if download "$binary"; then say "  $binary downloaded"; else rest="$rest $binary"; fi
    done
    missing=$rest
    if [ -z "$missing" ]; then
        echo "$cache"
        exit 0
    fi
fi

command -v go >/dev/null || { say "go was not found in PATH: install Go 1.26 or later, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"; exit 1; }
say "compiling$missing ($version) from Go modules: about 7 minutes for all of them on 2 cores the first time; cached afterwards in $cache"
part=$cache/.part
log=$cache/.build.log
trap 'rm -rf "$part"; [ -z "${pid:-}" ] || kill "$pid" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
mkdir -p "$part"
begin=$(date +%s)
major=${version#v}; major=${major%%.*}
minor=${version#v*.}; minor=${minor%%.*}
v=k8s.io/component-base/version
for binary in $missing; do
    (cd "$here" && CGO_ENABLED=0 exec go build -trimpath \
        -ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=$major -X $v.gitMinor=$minor" \
        -o "$part/$binary" "$(package_of "$binary")") >"$log" 2>&1 9>&- &
    pid=$!
    waited=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
        if [ $((waited % progress_seconds)) -eq 0 ]; then say "  still compiling $binary: $(($(date +%s) - begin)) s in all"; fi
    done
    if ! wait "$pid"; then
        pid=
        say "compiling $binary failed; the compiler said:"
        tail -n 30 "$log" >&2
        exit 1
    fi
    pid=
    # A rename is atomic: nobody ever sees half a binary.
    mv -f "$part/$binary" "$cache/$binary"
    say "  $binary done after $(($(date +%s) - begin)) s"
done
rm -f "$log"
echo "$cache"
