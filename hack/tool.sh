#!/bin/sh
# Builds a program of this repository's tool modules into bin/, once and again when its module changes, and prints its path.
# Two at once wait for each other.
#   hack/tool.sh helm|kube-state-metrics|controller-gen|crd-ref-docs
set -eu
case ${1:-} in
helm) module=helm package=helm.sh/helm/v4/cmd/helm ;;
kube-state-metrics) module=ksm package=k8s.io/kube-state-metrics/v2 ;;
controller-gen) module=tools package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
crd-ref-docs) module=tools package=github.com/elastic/crd-ref-docs ;;
*)
    echo "usage: hack/tool.sh helm|kube-state-metrics|controller-gen|crd-ref-docs" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/bin/$1
mkdir -p "$root/bin"
exec 9>"$program.lock"
! command -v flock >/dev/null || flock 9
cd "$root/hack/$module"
if [ ! -x "$program" ] || [ go.mod -nt "$program" ] || [ go.sum -nt "$program" ]; then
    CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "$program" "$package" >&2
    touch "$program" # go build leaves a program alone that would come out the same
fi
echo "$program"
