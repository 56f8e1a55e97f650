# syntax=docker/dockerfile:1.7@sha256:a57df69d0ea827fb7266491f2813635de6f17269be881f696fbfdf2d83dda33e
# llmguard and worker in one image; the command says which runs.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X github.com/llmguard/llmguard/internal/app.version=${VERSION}" -o /out/ ./cmd/llmguard ./cmd/worker

# No shell, no package manager,# Nothing but the binaries, which have the certificates of public authorities in them, and a user without rights.
FROM scratch
COPY --from=build /out/llmguard /out/worker /
USER 65532:65532
# Each creates a directory of that user: for a volume with the journal (store.journal_dir), for one with callers' files
# (files.store), and for bodies and responses in transit.
WORKDIR /var/lib/llmguard
WORKDIR /var/lib/llmguard-files
WORKDIR /tmp
WORKDIR /
EXPOSE 8080 9090
ENTRYPOINT ["/llmguard"]
CMD ["serve", "--config", "/etc/llmguard/llmguard.yaml"]
