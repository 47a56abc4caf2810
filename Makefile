# The one list of what can be done here; CI runs the same targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
BIN      := bin/gdrcheck
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
FUZZTIME ?= 60s
# go-nvml leaves its symbols undefined for lazy binding: with -z now, which
# some distributions make the default, the program would die at start.
LDFLAGS  := -extldflags=-Wl,-z,lazy -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# What builds and passes without cgo; internal/arch holds the same list.
PURE     := ./checks ./perftest ./topo ./report ./pci ./rdma ./internal/fact ./internal/gpu ./internal/host
LINT     := $(GO) tool -modfile=tools/golangci-lint.mod golangci-lint

export CGO_ENABLED := 1
# go-nvml binds what NVML has deprecated, too, and its compiler warnings fill a screen.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## set up, build, and judge this node, or the example node where this one has no GPU and no RDMA NIC
	@scripts/setup build
	@$(MAKE) --no-print-directory build
	@scripts/demo $(BIN)

.PHONY: build
build: ## build bin/gdrcheck
	$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o $(BIN) ./cmd/gdrcheck

.PHONY: test
test: ## set up, and run all tests, the virtual node's among them
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	GDRCHECK_LAB=1 $(GO) test -timeout 40m ./...

.PHONY: test-unit
test-unit: build ## run the tests that need no virtual node
	$(GO) test ./...

.PHONY: test-race
test-race: build ## run the tests that need no virtual node under the race detector
	$(GO) test -race ./...

SANITIZE := -fsanitize=undefined -fno-sanitize-recover=undefined

.PHONY: test-asan
test-asan: ## run the C core's tests under AddressSanitizer and UndefinedBehaviorSanitizer
	CGO_CFLAGS="-O1 -g -Wno-deprecated-declarations $(SANITIZE)" CGO_LDFLAGS="$(SANITIZE)" $(GO) test -asan -count=1 ./rdma/verbs ./internal/gdrcopy

.PHONY: test-nocgo
test-nocgo: ## test without cgo what must not need it
	CGO_ENABLED=0 $(GO) test $(PURE)

.PHONY: lab
lab: ## run the virtual node's tests alone, with what they print
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	GDRCHECK_LAB=1 $(GO) test -timeout 40m -count=1 -v ./internal/lab

.PHONY: lint
lint: ## run golangci-lint (its first run compiles it, which takes minutes) and shellcheck where it is installed
	@scripts/setup build
	$(LINT) run ./...
	@if command -v shellcheck >/dev/null; then shellcheck scripts/* .ci/run; fi

.PHONY: fmt
fmt: ## format the Go files
	$(LINT) fmt ./...

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (60s), several at a time
	@scripts/fuzz $(FUZZTIME)

.PHONY: mutate
mutate: ## break the checks in one place at a time, and list what no test notices
	$(GO) run ./internal/mutate -accepted internal/mutate/checks.accepted ./checks

.PHONY: golden
golden: ## rewrite the golden files; look at the difference before you commit it
	@pkgs=$$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -r -n1 dirname | sort -u); \
	test -n "$$pkgs" || { echo "no package has golden files"; exit 1; }; \
	$(GO) test $$pkgs -update

.PHONY: docs
docs: ## rewrite docs/checks.md, docs/failure-modes.md, docs/gdrcheck.md and docs/schema/perf.schema.json
	$(GO) test ./checks -run '^TestReference' -update
	$(GO) test ./cmd/gdrcheck -run '^(TestManual|TestPerfSchema)$$' -update

.PHONY: bench
bench: ## measure the program against the tools it stands beside
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	@scripts/bench $(BIN)

ROUNDS ?= 15

.PHONY: bench-lab
bench-lab: ## measure and count instructions beside perftest in the virtual node, ROUNDS times (15), for ten minutes on an idle machine
	@scripts/setup bench-lab
	@$(MAKE) --no-print-directory build
	GDRCHECK_LAB=1 GDRCHECK_LAB_ROUNDS=$(ROUNDS) $(GO) test -timeout 0 -count=1 -v -run '^TestBench' ./internal/lab

.PHONY: clean
clean: ## remove what was built and downloaded
	rm -rf bin .cache
