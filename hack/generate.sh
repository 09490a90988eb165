#!/usr/bin/env bash
# Generates what follows from the API types: deepcopy code, CRDs, the chart's CRDs and the API reference; the page of
# compatibility rules; and config/ from the chart.
# With --check it changes nothing and fails where a generated file is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in controller-gen crd-ref-docs helm; do hack/tool.sh "$tool" >/dev/null; done

out=.
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
fi
helm_home=$(mktemp -d)
trap 'rm -rf "$helm_home"; [ "$out" = . ] || rm -rf "$out"' EXIT
mkdir -p "$out/api/v1alpha1" "$out/config/crd/bases" "$out/docs/reference" "$out/charts/commgroup-operator/templates"
bin/controller-gen object:headerFile=/dev/null crd:crdVersions=v1 paths=./api/... \
  output:object:dir="$out/api/v1alpha1" output:crd:dir="$out/config/crd/bases"
mkdir -p "$out/internal/state"
bin/controller-gen object:headerFile=/dev/null paths=./internal/state output:object:dir="$out/internal/state"
go run ./hack/crdbounds "$out/config/crd/bases"
# The schemas' count goes on from the committed one, so that it is one up however often this ran in between; without git, from
# the file.
schema_file=api/v1alpha1/zz_generated.schema.go
git show "HEAD:$schema_file" >"$helm_home/schema.go" 2>/dev/null || cp "$schema_file" "$helm_home/schema.go"
go run ./hack/schemarevision --crds "$out/config/crd/bases" --from "$helm_home/schema.go" --to "$out/$schema_file"
bin/crd-ref-docs --source-path=api/v1alpha1 --config=hack/tools/crd-ref-docs.yaml --renderer=markdown \
  --output-path="$out/docs/reference/api.md" --log-level=ERROR
go run ./hack/compatdoc >"$out/docs/compatibility.md"
go run -tags clidoc ./cmd/kubectl-commgroup >"$out/docs/cli.md"
go run ./hack/metricsdoc >"$out/docs/metrics.md"
go run ./hack/normaldoc >"$out/docs/normal-numbers.md"
for kind in commgroups commruns commtasks commnodes; do
  { # The chart's copy is a template, so that helm upgrade upgrades it and crds.keep can hold it.
    printf '{{- if .Values.crds.enabled }}\n'
    awk '/^  annotations:/ && !done { print; print "    {{- if .Values.crds.keep }}"; print "    helm.sh/resource-policy: keep"; print "    {{- end }}"; done = 1; next } { print }' \
      "$out/config/crd/bases/rcclx.io_$kind.yaml"
    printf '{{- end }}\n'
  } >"$out/charts/commgroup-operator/templates/crd-$kind.yaml"
done
# The chart's schema, and the table of its values.
[ "$out" = . ] || cp docs/chart.md "$out/docs/chart.md"
go run ./hack/chartdoc charts/commgroup-operator/values.yaml "$out/charts/commgroup-operator/values.schema.json" "$out/docs/chart.md"
# render ARGUMENT...: the chart as Helm renders it, apart from any cluster and from the caller's own Helm settings.
render() {
  HELM_CACHE_HOME="$helm_home" HELM_CONFIG_HOME="$helm_home" HELM_DATA_HOME="$helm_home" HELM_PLUGINS="$helm_home" KUBECONFIG=/dev/null \
    bin/helm template commgroup charts/commgroup-operator --namespace commgroup-system "$@"
}
# config/ is the chart with its default values, for those who do not use Helm. Each file is one template; what only Helm
# uses (its labels, the line that names the source) is left out.
config_files=(
  rbac/service_accounts.yaml=serviceaccounts rbac/manager_role.yaml=rbac-manager rbac/agent_roles.yaml=rbac-agent
  rbac/leader_election.yaml=rbac-leader-election rbac/user_roles.yaml=rbac-users rbac/metrics_reader.yaml=rbac-metrics
  policy/agent_own_node.yaml=policy-agent-own-node policy/manager.yaml=policy-manager
  manager/manager.yaml=manager-deployment manager/service.yaml=manager-service manager/pdb.yaml=manager-pdb
  manager/monitor.yaml=monitor-daemonset
  manager/priority_class.yaml=priorityclass
  gating/manager_role.yaml=rbac-gating gating/node_marks_policy.yaml=policy-node-marks
)
generated=(charts/commgroup-operator/values.schema.json docs/chart.md)
render >"$helm_home/default.yaml"
go run ./hack/imagelist <"$helm_home/default.yaml" >"$out/charts/commgroup-operator/images.txt"
render --set gating.enabled=true --set "privilegedNamespaces={ml}" >"$helm_home/gating.yaml"
for pair in "${config_files[@]}"; do
  file=config/${pair%%=*}
  from=default
  if [[ $file == config/gating/* ]]; then from=gating; fi
  mkdir -p "$out/${file%/*}"
  awk -v source="# Source: commgroup-operator/templates/${pair#*=}.yaml" '
    /^---$/ { next_document = 1; blank = ""; next }
    next_document { next_document = 0; wanted = ($0 == source); if (wanted && n++) print "---"; if (/^# Source: /) next }
    /^$/ { blank = blank "\n"; next }
    wanted && !/^    (helm.sh\/chart|app.kubernetes.io\/(managed-by|instance)): / { printf "%s%s\n", blank, $0; blank = "" }' "$helm_home/$from.yaml" >"$out/$file"
  [ -s "$out/$file" ] || { echo "$file would be empty: the chart renders nothing from templates/${pair#*=}.yaml; make config_files of hack/generate.sh fit the chart" >&2; exit 1; }
  generated+=("$file")
done

# Prometheus rules and their runbook pages, Grafana dashboards, kube-state-metrics' configuration.
go run ./hack/dashboards --out "$out" >"$helm_home/dashboards"
mapfile -t -O "${#generated[@]}" generated <"$helm_home/dashboards"
# Runbook pages of the reasons.
go run ./hack/runbooks --out "$out" >"$helm_home/runbooks"
mapfile -t -O "${#generated[@]}" generated <"$helm_home/runbooks"

if [ "$out" != . ]; then
  stale=0
  for f in "${generated[@]}" api/v1alpha1/zz_generated.deepcopy.go "$schema_file" charts/commgroup-operator/images.txt config/crd/bases/rcclx.io_{commruns,commgroups,commtasks,commnodes}.yaml \
    docs/reference/api.md docs/compatibility.md docs/cli.md docs/metrics.md docs/normal-numbers.md charts/commgroup-operator/templates/crd-{commruns,commgroups,commtasks,commnodes}.yaml; do
    if ! diff -u "$f" "$out/$f" >"$out/diff" 2>&1; then
      echo "out of date: $f (run make generate)"
      head -20 "$out/diff"
      stale=1
    fi
  done
  exit "$stale"
fi
