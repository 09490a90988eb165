#!/bin/bash
# End-to-end tests on a cluster of three real nodes on this machine: installs the Debian packages that it needs, builds, starts
# the cluster, runs test/e2e and removes the cluster again, whatever happens. It needs root; where the machine cannot run it, it says
# why and ends with status 0, so that `make test` goes on. A cluster that an earlier run left (KEEP=1, a crash) is ended first; one of
# somebody else is a failure.
#   hack/e2e.sh [GO TEST ARGUMENT...]      for example -run TestE2E/Quickstart
# STATE_DIR is the cluster's folder (.e2e), KEEP=1 leaves it running, REQUIRED=1 makes a skip a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
state=${STATE_DIR:-$repo/.e2e}
case $state in /*) ;; *) state=$repo/$state ;; esac
go=${GO:-go}
mkdir -p bin
test_deadline=${TEST_DEADLINE:-60m}

steps=()
mark=$SECONDS
took() { # took NAME: closes a step of the time breakdown
    steps+=("$(printf '%6d s  %s' $((SECONDS - mark)) "$1")")
    echo "==> $1: $((SECONDS - mark)) s"
    mark=$SECONDS
}
skip() {
    echo "test-e2e SKIPPED: $*"
    [ "${REQUIRED:-}" = 1 ] && exit 1
    exit 0
}

fail() {
    echo "test-e2e: $*" >&2
    exit 1
}

up=
tests=
images=
finish() {
    status=$?
    trap - EXIT
    trap '' HUP INT TERM # the end is not cut short
    if [ -n "$tests" ]; then kill "$tests" 2>/dev/null || true; fi
    if [ -n "$images" ]; then rm -rf "$images"; fi
    if [ -n "$up" ]; then
        if [ $status -ne 0 ]; then
            echo "==> what the nodes' own processes said last ($state/logs)"
            tail -n 15 "$state"/logs/node-*.log 2>/dev/null || true
        fi
        if [ "${KEEP:-}" = 1 ]; then
            echo "KEEP=1: the cluster stays; export KUBECONFIG=$state/kubeconfig; end it with: bin/realcluster down --state-dir $state"
        else
            bin/realcluster down --state-dir "$state" || status=1
            took "cluster ended and removed"
        fi
    fi
    if [ ${#steps[@]} -gt 0 ]; then printf '%s\n' "test-e2e took $SECONDS s:" "${steps[@]}"; fi
    exit $status
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

[ "$(id -u)" = 0 ] || skip "it needs root, for containerd, namespaces and mounts"
[ "$(uname -s)" = Linux ] || skip "it needs Linux"
# Until the end, so that no second run takes this one's cluster for one that was left.
exec 9>"$state.run.lock"
flock --nonblock 9 || fail "another test-e2e runs with $state (lock $state.run.lock): wait until it is done"
missing=
for pair in containerd:containerd ctr:containerd runc:runc buildah:buildah ip:iproute2 iptables:iptables conntrack:conntrack promtool:prometheus prometheus:prometheus; do
    command -v "${pair%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # one word a package
    hack/apt.sh $missing >bin/apt.log 2>&1 || skip "missing:$missing, and installing that failed (bin/apt.log): $(tail -n 3 bin/apt.log)"
    took "Debian packages installed"
fi

CGO_ENABLED=0 $go build -trimpath -o bin/ ./hack/realcluster ./hack/realcluster/pause
if [ -e "$state" ]; then
    echo "==> ending the cluster that was left in $state"
    bin/realcluster down --state-dir "$state" || fail "the cluster that was left in $state could not be ended"
fi
result=0
why=$(bin/realcluster check 2>&1) || result=$?
case $result in
0) ;;
1) skip "${why#realcluster: }" ;; # the machine cannot run it
*) fail "${why#realcluster: }" ;; # something is in the way
esac

kube=$(hack/kube/build.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy)
hack/tool.sh helm >/dev/null
hack/tool.sh kube-state-metrics >/dev/null
make --no-print-directory build simrocm
took "control plane, tools and product built"

# Not below the state directory, which the cluster makes; nothing of it is used again.
images=$(mktemp -d)
build_images() {
    hack/images/build.sh "$images" && hack/realcluster/images/build.sh "$images" bin/pause bin/simrocm
}
build_images || exit 1
took "images built by buildah"

[ ! -e "$state" ] || fail "meanwhile somebody made $state: end that cluster (bin/realcluster down --state-dir $state), then try again"
up=1
# Without the lock, which the cluster would else hold as long as it runs.
bin/realcluster up --state-dir "$state" --binaries "$kube" --image "$images/pause.tar,$images/rocm-sim.tar,$images/commgroup-manager.tar,$images/commgroup-agent.tar" 9>&- || result=$?
[ $result = 0 ] || exit $result
took "cluster of three nodes up, images loaded"

export KUBECONFIG=$state/kubeconfig E2E_STATE_DIR=$state
export PATH=$repo/bin:$kube:$PATH HELM_CACHE_HOME=$state/helm HELM_CONFIG_HOME=$state/helm HELM_DATA_HOME=$state/helm HELM_PLUGINS=$state/helm
# A program in the background, so that a signal ends the tests at once: bash runs a trap only when what it waits for ends.
CGO_ENABLED=0 $go test -tags e2e -c -o bin/e2e.test ./test/e2e
arguments=()
for a in "$@"; do
    case $a in -test.*) ;; -*) a=-test.${a#-} ;; esac
    arguments+=("$a")
done
(cd test/e2e && exec "$repo/bin/e2e.test" -test.v -test.timeout "$test_deadline" ${arguments[@]+"${arguments[@]}"}) &
tests=$!
wait $tests || result=$?
tests=
took "tests (test/e2e)"
exit $result
