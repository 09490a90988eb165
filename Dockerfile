# The operator's image: manager, agent and rank. The bases are build arguments, so that a disconnected site can name its
# own.
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
# Without cgo: manager and agent are static, and rank, which loads the communication library, needs only the glibc of the
# runtime image that it is copied into.
ENV CGO_ENABLED=0
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/manager ./cmd/agent ./cmd/rank

FROM ${BASE_IMAGE} AS operator
COPY --from=build /out/manager /out/agent /out/rank /
USER 65532:65532
ENTRYPOINT ["/manager"]
