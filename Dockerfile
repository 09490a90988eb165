# Two images, one target each: the manager, and the agent that runs on every node. They take the binaries that
# `make build` wrote to bin/, so a build needs no registry and no network. hack/images/build.sh (make images) does it all;
# by hand, with docker or podman: make build && docker build --target manager -t commgroup-manager:dev .
# BASE_IMAGE is the base of both, for sites whose images must all start from one of their own.
ARG BASE_IMAGE=scratch

FROM ${BASE_IMAGE} AS manager
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="commgroup-manager" \
      org.opencontainers.image.description="Manager of the CommGroup operator: plans, runs and judges RCCLX communicators" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY bin/manager /manager
# A number, so that the kubelet can tell that it is not root. Nothing is written: the root file system may be read-only.
USER 65532:65532
ENTRYPOINT ["/manager"]

FROM ${BASE_IMAGE} AS agent
ARG VERSION=dev
ARG REVISION=
LABEL org.opencontainers.image.title="commgroup-agent" \
      org.opencontainers.image.description="Agent of the CommGroup operator: monitor of a node, and what run pods copy into the runtime image" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Static both, built without cgo; rank loads the communication library with the glibc of the runtime image it is copied into.
COPY bin/agent bin/rank /
# The init container of a run pod keeps this user.
USER 65532:65532
ENTRYPOINT ["/agent"]
