# syntax=docker/dockerfile:1.7
# llmguard and worker in one image; the command says which runs.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X github.com/llmguard/llmguard/internal/cli.version=${VERSION}" -o /out/ ./cmd/llmguard ./cmd/worker && mkdir /out/state

# No shell, no package manager, CA certificates, and a user without rights.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/llmguard /out/worker /
# A volume here keeps the journal (store.journal_dir) and belongs to that user.
COPY --from=build --chown=65532:65532 /out/state /var/lib/llmguard
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["/llmguard"]
CMD ["serve", "--config", "/etc/llmguard/llmguard.yaml"]
