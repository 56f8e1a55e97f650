# Targets for people and for CI. `make help` lists them.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
GORELEASER_VERSION := v2.17.0
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/llmguard/llmguard/internal/app.version=$(VERSION)
BIN       := $(CURDIR)/.bin
GOLANGCI  := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)
PKG       ?= ./...
FUZZTIME  ?= 20s

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run proxy, worker, store and provider on this machine (llmguard dev)
	go run ./cmd/llmguard dev

build: ## Build static binaries into dist/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o dist/ ./cmd/...

deps: ## Install what the tests need and say so (redis-server, Node packages)
	@.ci/deps

test: deps ## Run all tests but the agents'; PKG=./queue or PKG=./test/e2e for one package
	@LLMGUARD_AGENTS=$(if $(filter ./...,$(PKG)),skip) .ci/gotest $(PKG)

soak: deps ## Run the long forms of all tests and an hour of fuzzing (PKG, SOAK_FUZZ=30s); writes soak-report.txt
	@.ci/soak $(PKG)

simulate-faults: deps ## Simulate faults for SEEDS seeds (200), or one: SEED=7 FAMILY="pool outage"
	SEEDS=$(or $(SEEDS),200) SEED=$(SEED) FAMILY="$(FAMILY)" go -C test test -count=1 -timeout 3h -run TestSeeds $(if $(SEED),-v) ./simulation

agents: ## Install Claude Code, Codex, OpenCode and the official SDKs (1.1 GB), and run them against llmguard
	@.ci/deps agents
	@LLMGUARD_AGENTS=require .ci/gotest ./test/agents

race: deps ## Run all tests with the race detector
	@.ci/gotest -race $(PKG)

check: $(GOLANGCI) ## All of it: format, vet, lint, luacheck, race tests with the docs' own, a clean tree
	@.ci/deps luacheck agents
	@.ci/check $(GOLANGCI)

lint: $(GOLANGCI) ## Format, vet and lint all modules
	@for m in . test bench bench/budget; do (cd $$m && $(GOLANGCI) fmt && go vet ./... && $(GOLANGCI) run --allow-parallel-runners ./...); done

cover: deps ## Report coverage per function and in total
	go test -coverpkg=./... -coverprofile=cover.out ./... > /dev/null
	go tool cover -func=cover.out | tail -40

fuzz: ## Fuzz every target for FUZZTIME (20s) each
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 200x $$pkg; \
	  done; \
	done

bench: deps ## Measure CPU per call against bare proxies, on loopback
	go -C bench run .

walks: deps ## Count the packages, files and functions that a call and a job run through
	go test -count=1 -v -run TestWalkLength ./internal/world -args -walks

budgetbench: deps ## Attack the budgets of llmguard and report what held (bench/budget/README.md)
	go -C bench/budget run .

generate: ## Regenerate the generated files (dashboards, embedded prices, references)
	go generate ./... && go -C test generate ./docs

site: ## Write the documentation as a static site into dist/site and check its links
	go -C test run ./site -version "$(VERSION), $$(git log -1 --format=%cs)"

pictures: ## Make the pictures of README and docs (needs chromium, tmux and npm)
	go -C test run ./pictures

release-check: ## Validate .goreleaser.yaml
	go run github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION) check

snapshot: ## Build archives, packages and images as a release would, without publishing
	go run github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION) release --snapshot --clean --skip=sign

package: ## Build the archive, the .deb and the image's binaries of a release for this machine into dist/
	go -C test run ./pack -version $(patsubst v%,%,$(VERSION)) -out ../dist

clean: ## Remove what the targets above have made
	rm -rf dist dist-man dist-completion cover.out

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION) into $(BIN)"
	@GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(BIN)/golangci-lint $@

.PHONY: help run build deps test soak simulate-faults agents race check lint cover fuzz bench budgetbench generate site pictures release-check snapshot package clean
