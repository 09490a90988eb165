#!/usr/bin/env bash
# Makes what krew installs kubectl commgroup from: an archive for each platform, and the manifest with their checksums.
# VERSION is a semantic version with v before it, URI the address that the archives will be found under.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${VERSION:?set VERSION, for example v0.2.0: krew takes semantic versions only}
uri=${URI:?set URI to the address that the archives will be found under}
out=${OUT:-bin/krew}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "VERSION $version is no semantic version such as v0.2.0" >&2; exit 2; }
rm -rf "$out"
mkdir -p "$out"
{
  cat <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: commgroup
spec:
  version: $version
  shortDescription: Are these AMD GPU nodes fit to talk to each other?
  description: |
    Shows and drives CommGroups: which nodes form RCCLX communicators, how fast, with which settings really in
    effect, and which node, GPU or link is to blame where they do not.
  caveats: |
    The cluster needs the CommGroup operator.
  platforms:
MANIFEST
  for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}; do
    os=${platform%/*} arch=${platform#*/} program=kubectl-commgroup
    folder=$(mktemp -d)
    CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$folder/$program" ./cmd/kubectl-commgroup >&2
    cp LICENSE "$folder/"
    archive=kubectl-commgroup-$os-$arch.tar.gz
    # The same input gives the same archive.
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$folder" -cf - LICENSE "$program" | gzip -n >"$out/$archive"
    rm -rf "$folder"
    cat <<MANIFEST
    - selector:
        matchLabels:
          os: $os
          arch: $arch
      uri: $uri/$archive
      sha256: $(sha256sum "$out/$archive" | cut -d' ' -f1)
      bin: $program
MANIFEST
  done
} >"$out/commgroup.yaml"
echo "made $out/commgroup.yaml; try it with: kubectl krew install --manifest=$out/commgroup.yaml --archive=$out/kubectl-commgroup-linux-amd64.tar.gz"
