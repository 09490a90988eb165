# Two images from one file: --target manager and --target agent (the operator's own image holds both binaries by
# default). Bases are build arguments, so that a disconnected site can name its own.
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api/ api/
COPY agent/ agent/
COPY cmd/ cmd/
COPY controllers/ controllers/
COPY internal/ internal/
COPY rcclx/ rcclx/
# Without cgo the agent still loads the communication library (purego); it needs glibc's loader only in the image where
# its rank processes run.
ENV CGO_ENABLED=0
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/manager ./cmd/agent

FROM ${BASE_IMAGE} AS operator
COPY --from=build /out/manager /out/agent /
USER 65532:65532
ENTRYPOINT ["/manager"]
