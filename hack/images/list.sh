#!/bin/sh
# Prints every image that the chart names, one a line, for a mirror.
#   hack/images/list.sh [ARGUMENT...]     arguments of helm template, for example -f site.yaml
# It needs no cluster, and does not look at the caller's own Helm settings.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
helm=$("$root/hack/tool.sh" helm)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
HELM_CACHE_HOME=$home HELM_CONFIG_HOME=$home HELM_DATA_HOME=$home HELM_PLUGINS=$home KUBECONFIG=/dev/null \
    "$helm" template commgroup "$root/charts/commgroup-operator" --namespace commgroup-system "$@" >"$home/manifests.yaml"
cd "$root" # go run looks for the module
go run ./hack/imagelist <"$home/manifests.yaml"
