#!/usr/bin/env bash
# Upgrade, skew and rollback, with the programs of two versions on a simulated cluster: what docs/upgrade.md promises.
#   hack/upgrade/test.sh KUBE_BINARIES
# OLD is the older version, a git revision: by default the newest tag before this commit, else the commit before. From a revision before
# CommTasks, for example 79fe0b6, it goes as docs/upgrade.md says for those: neither a run nor the way back survives that.
# STATE_DIR holds the cluster; it is ended and removed at the end, whatever happened.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=${1:?usage: hack/upgrade/test.sh KUBE_BINARIES: the folder that hack/kube/build.sh prints}
state=${STATE_DIR:-.demo-upgrade}
old=${OLD:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || echo HEAD^)}
if ! git cat-file -e "$old^{commit}" 2>/dev/null; then
    echo "test-upgrade SKIPPED: revision $old is not in this checkout; fetch its history (git fetch --unshallow), or name another with OLD"
    exit 0
fi
export KUBECONFIG=$PWD/$state/kubeconfig PATH=$binaries:$PATH
began=$SECONDS
step() { printf '\n==> %s (at %d s)\n' "$*" $((SECONDS - began)); }

work=$(mktemp -d)
finish() {
    result=$?
    if [ "$result" != 0 ] && [ -e "$KUBECONFIG" ]; then
        echo "FAILED; the last state:"
        kubectl get cg,cgr,ct,cn,pods -A -o wide || true
        kubectl get cg upgraded -n default -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}' || true
        tail -n 30 "$state"/nodes/sim-control/logs/*.log || true
    fi
    bin/simcluster down --state-dir "$state" >/dev/null || true
    rm -rf "$work"
    exit "$result"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# await SECONDS WHAT COMMAND...: until the command succeeds.
await() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$until" ]; then
            echo "waited in vain for: $what; the last try, $*:"
            "$@" || true
            return 1
        fi
        sleep 0.5
    done
    echo "    $what"
}
status() { kubectl get cg upgraded -n default -o "jsonpath={.status.$1}"; }
ready() { [ "$(status 'conditions[?(@.type=="Ready")].status')" = True ] && [ "$(status run.phase)" = Finished ]; }
failed() { [ "$(status run.phase)/$(status run.verdict)" = Finished/Error ]; }
passed() { [ "$(status run.name)" = "$1" ] && [ "$(status run.phase)/$(status run.verdict)" = Finished/Pass ] && ready; }
images() { kubectl get pods -A -l "rcclx.io/role=$1" -o 'jsonpath={range .items[*]}{.spec.initContainers[*].image}{.spec.containers[0].image}{"\n"}{end}'; }
all_from() { [ -n "$(images "$1")" ] && ! images "$1" | grep -v "$2"; }
running_from() { kubectl get pods -n default -l rcclx.io/role=run --field-selector=status.phase=Running -o yaml | grep -q "image: commgroup-[a-z]*:$1"; }
request() { # request NAME: a run of all members, to its end
    printf '{apiVersion: rcclx.io/v1alpha1, kind: CommRun, metadata: {name: %s, namespace: default}, spec: {groupName: upgraded}}' "$1" | kubectl apply -f - >/dev/null
    await 300 "run $1 passed on every node and over both, Ready is True" passed "$1"
}
managers() { # managers VERSION: as many as wanted, all of that version
    kubectl rollout status deployment/commgroup-manager -n commgroup-system --timeout=120s >/dev/null
    [ "$(kubectl get deployment commgroup-manager -n commgroup-system -o 'jsonpath={.spec.template.spec.containers[0].image}' | cut -d: -f2)" = "$1" ]
    echo "    managers of the $1 version are available"
}
agents() { # agents IMAGE: that of the monitors, and what the managers take for run pods
    kubectl set image daemonset/commgroup-monitor -n commgroup-system "monitor=$1" >/dev/null
    kubectl get deployment commgroup-manager -n commgroup-system -o yaml | sed "s|--agent-image=[^ ]*|--agent-image=$1|" | kubectl apply --server-side --force-conflicts -f - >/dev/null
}

step "Building both versions: $old and this one"
git archive "$old" | (mkdir "$work/source" && tar x -C "$work/source")
for version in old new; do
    from=. && [ "$version" = new ] || from=$work/source
    (cd "$from" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" -o "$work/$version/" ./cmd/manager ./cmd/agent ./cmd/rank)
    kubectl kustomize "$from/config/default" | sed "s|\(commgroup-[a-z]*\):dev|\1:$version|; s|^\( *\)- --agent-image=.*|&\n\1- --default-runtime-image=rocm-sim:dev|" >"$work/$version.yaml"
done
CGO_ENABLED=0 go build -trimpath -o bin/ ./hack/simcluster
make --no-print-directory simrocm
mkdir -p "$work/rocm/opt/rocm/lib"
cp -L bin/simrocm/*.so* "$work/rocm/opt/rocm/lib/"

step "A simulated cluster of two nodes"
bin/simcluster down --state-dir "$state" >/dev/null
bin/simcluster up --state-dir "$state" --binaries "$binaries" --nodes 2 --image "rocm-sim:dev=$work/rocm" \
    --image "commgroup-operator:old=$work/old,commgroup-manager:old=$work/old,commgroup-agent:old=$work/old" \
    --image "commgroup-manager:new=$work/new,commgroup-agent:new=$work/new" >/dev/null
for node in sim-node-0 sim-node-1; do
    go run ./hack/simrocm/cmd/nodetree --dir "$state/nodes/$node/root" --name "$node" --rocm 7.0.2 >/dev/null
done

step "The old version, with a run going on"
kubectl apply --server-side -f "$work/old.yaml" >/dev/null
managers old
kubectl apply -f hack/upgrade/group.yaml
await 180 "a run pod of the old version runs" running_from old
met=$(status run.id)

if [ ! -e "$work/source/config/crd/bases/rcclx.io_commtasks.yaml" ]; then
    step "Upgrade from before CommTasks, as docs/upgrade.md says"
    sed -n '/^## From revisions before CommTasks$/,/^## [^F]/{/^```$/,/^```$/{/^```$/!p}}' docs/upgrade.md >"$work/steps"
    grep -q '^kubectl delete crd commnodes' "$work/steps"
    bash -eux "$work/steps"
    kubectl apply --server-side --force-conflicts -f "$work/new.yaml" >/dev/null
    managers new
    await 120 "monitors are of the new version" all_from monitor :new
    await 120 "the run that was under way ended in Error" failed
    request new
    kubectl delete cg upgraded -n default --timeout=60s
    printf '\ntest-upgrade passed: %s to this version, in %d s\n' "$old" $((SECONDS - began))
    exit 0
fi

step "Upgrade in the midst of that run"
kubectl apply --server-side --force-conflicts -f "$work/new.yaml" >/dev/null
managers new
await 300 "the group is Ready" ready
[ "$(status run.id)" = "$met" ] || { echo "the upgrade met run $met, and the group is Ready by run $(status run.id): expected the run to go on"; exit 1; }
echo "    by run $met, which the upgrade met and did not disturb"
await 120 "monitors are of the new version" all_from monitor :new
request new

step "The new manager with agents of the old version"
old_agent=$(grep -o -m 1 -- '--agent-image=.*' "$work/old.yaml" | cut -d= -f2)
agents "$old_agent"
managers new
await 120 "monitors are of the old version" all_from monitor :old
request old-agents

step "Rollback"
# Unlike helm rollback, apply leaves what the older version does not have: policies that may refuse what that makes.
for kind in validatingadmissionpolicy validatingadmissionpolicybinding; do
    for name in $(kubectl get "$kind" -l app.kubernetes.io/part-of=commgroup-operator -o name); do
        grep -q "^  name: ${name#*/}\$" "$work/old.yaml" || kubectl delete "$name" >/dev/null
    done
done
kubectl apply --server-side --force-conflicts -f "$work/old.yaml" >/dev/null
managers old
request rolled-back

step "The new manager on the old CRDs"
revision() { sed -n 's|^ *rcclx.io/schema-revision: "\(.*\)"|\1|p' "$1" | head -n 1; }
if [ "$(revision "$work/old.yaml")" = "$(revision "$work/new.yaml")" ]; then
    echo "    the schemas are the same, so that there is nothing to refuse"
else
    # All but the CRDs.
    awk 'BEGIN { RS = "---\n"; ORS = "" } !/\nkind: CustomResourceDefinition\n/ { print "---\n" $0 }' "$work/new.yaml" >"$work/without-crds.yaml"
    kubectl apply --server-side --force-conflicts -f "$work/without-crds.yaml" >/dev/null
    refused() { kubectl logs -n commgroup-system -l app.kubernetes.io/name=commgroup-manager --tail=20 | grep -q 'CRD commgroups.rcclx.io has .*apply the CRDs of this release first'; }
    await 120 "the new manager refuses to start, and says why" refused
    [ "$(status 'conditions[?(@.type=="Ready")].status')" = True ] # the old manager still serves
    kubectl apply --server-side --force-conflicts -f "$work/new.yaml" >/dev/null
    managers new
fi
request at-last
kubectl delete cg upgraded -n default --timeout=60s
printf '\ntest-upgrade passed: %s to this version and back, in %d s\n' "$old" $((SECONDS - began))
