#!/usr/bin/env bash
# Generates what follows from the API types: deepcopy code, CRDs, the chart's CRDs and the API reference; and the page of
# compatibility rules.
# With --check it changes nothing and fails where a generated file is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
tool() { # tool NAME PACKAGE: builds a pinned tool once
  [ -x "bin/$1" ] || (cd hack/tools && go build -o "../../bin/$1" "$2")
}
tool controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
tool crd-ref-docs github.com/elastic/crd-ref-docs

out=.
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out/api/v1alpha1" "$out/config/crd/bases" "$out/docs/reference" "$out/charts/commgroup-operator/templates"
bin/controller-gen object:headerFile=/dev/null crd:crdVersions=v1 paths=./api/... \
  output:object:dir="$out/api/v1alpha1" output:crd:dir="$out/config/crd/bases"
bin/crd-ref-docs --source-path=api/v1alpha1 --config=hack/tools/crd-ref-docs.yaml --renderer=markdown \
  --output-path="$out/docs/reference/api.md" --log-level=ERROR
go run ./hack/compatdoc >"$out/docs/compatibility.md"
for kind in commgroups commnodes; do
  { # The chart's copy is a template, so that helm upgrade upgrades it and crds.keep can hold it.
    printf '{{- if .Values.crds.enabled }}\n'
    awk '/^  annotations:/ && !done { print; print "    {{- if .Values.crds.keep }}"; print "    helm.sh/resource-policy: keep"; print "    {{- end }}"; done = 1; next } { print }' \
      "$out/config/crd/bases/rcclx.io_$kind.yaml"
    printf '{{- end }}\n'
  } >"$out/charts/commgroup-operator/templates/crd-$kind.yaml"
done
{ # Everything else of the chart is config/ with the release's namespace and the values put in.
  echo '{{- /* Generated from config/ by hack/generate.sh. */ -}}'
  for f in config/rbac/*.yaml config/policy/*.yaml config/manager/*.yaml; do
    case $f in */kustomization.yaml) continue ;; esac
    echo '---'
    sed -e 's/commgroup-system/{{ .Release.Namespace }}/g' \
      -e 's/^  replicas: 2.*/  replicas: {{ .Values.replicas }}/' \
      -e 's/commgroup-operator:dev/{{ include "commgroup.image" . }}/g' \
      -e 's/^\( *\)command: \[\/manager\]/\1imagePullPolicy: {{ .Values.image.pullPolicy }}\n&/' \
      -e 's/^\( *\)# Image of the ranks.*/\1{{- with .Values.defaultRuntimeImage }}\n\1- --default-runtime-image={{ . }}\n\1{{- end }}/' \
      -e 's/^\( *\)# Namespaces whose CommGroups.*/\1{{- with .Values.privilegedNamespaces }}\n\1- --privileged-namespaces={{ join "," . }}\n\1{{- end }}/' "$f"
  done
  echo '{{- if .Values.gating.enabled }}'
  for f in config/gating/*.yaml; do
    case $f in */kustomization.yaml) continue ;; esac
    echo '---'
    sed -e 's/commgroup-system/{{ .Release.Namespace }}/g' "$f"
  done
  echo '{{- end }}'
} >"$out/charts/commgroup-operator/templates/operator.yaml"

if [ "$out" != . ]; then
  stale=0
  for f in charts/commgroup-operator/templates/operator.yaml api/v1alpha1/zz_generated.deepcopy.go config/crd/bases/rcclx.io_commgroups.yaml config/crd/bases/rcclx.io_commnodes.yaml \
    docs/reference/api.md docs/compatibility.md charts/commgroup-operator/templates/crd-commgroups.yaml charts/commgroup-operator/templates/crd-commnodes.yaml; do
    if ! diff -u "$f" "$out/$f" >"$out/diff" 2>&1; then
      echo "out of date: $f (run make generate)"
      head -20 "$out/diff"
      stale=1
    fi
  done
  exit "$stale"
fi
