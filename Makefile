# Everything that a person or CI runs: see `make help`. Only test-e2e and bench-discover need root; without it test-unit leaves some
# tests out, and setup and promtool name what is missing instead of installing it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
FAULT ?=
SPAN ?= node
NODES ?= 4
STATE_DIR ?= .demo
# Only commands that the product ships or the demo needs; the agent needs no cgo to load the communication library.
COMMANDS := ./cmd/manager ./cmd/agent ./cmd/rank ./cmd/kubectl-commgroup ./hack/simcluster
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
KUBE = $$(hack/kube/build.sh)
# What go build makes stays where it was: it is large.
TEST_TMP = GOTMPDIR="$${TMPDIR:-/tmp}" TMPDIR="$$(hack/tmpfs.sh)"

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build manager, agent, kubectl-commgroup and simcluster into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ $(COMMANDS)

.PHONY: images
images: ## Build the images of the manager and of the agent with buildah into bin/images/ (TAG=dev, REGISTRY=docker.io/library, BASE_IMAGE=scratch)
	@VERSION="$(VERSION)" hack/images/build.sh bin/images

.PHONY: image-list
image-list: ## Every image that the chart names, one a line, for a mirror (HELM_ARGS="-f site.yaml")
	@hack/images/list.sh $(HELM_ARGS)

.PHONY: setup
setup: ## Make sure of gcc and git: installed as root on Debian, named otherwise
	@hack/setup.sh

.PHONY: promtool
promtool: ## Make sure of promtool and Prometheus for the tests of rules and dashboards: installed as root on Debian (no service runs), else named
	@hack/setup.sh promtool

.PHONY: simrocm
simrocm: setup ## Build the simulated ROCm libraries into bin/simrocm
	@$(MAKE) --no-print-directory -C hack/simrocm OUT=$(CURDIR)/bin/simrocm

.PHONY: kube
kube: ## Make etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl available; print their folder
	@hack/kube/build.sh

.PHONY: demo
demo: setup ## Show the operator on four simulated MI300X nodes (FAULT=slow-link|hang|wrong-data|init-abort|rocm-mismatch|reboot|link-down; SPAN=group, FAULT=slow-node-net|slow-pair|slow-nic|hang-across|no-rdma, NODES)
	@began=$$(date +%s); \
	echo "SIMULATED demo: builds (the first time about 10 minutes on 2 cores, later seconds), then a cluster of simulated GPU nodes in $(STATE_DIR)"; \
	kube=$(KUBE); \
	$(MAKE) --no-print-directory build simrocm; \
	exec bin/simcluster demo --state-dir $(STATE_DIR) --binaries "$$kube" --simrocm bin/simrocm --fault "$(FAULT)" --span "$(SPAN)" --nodes "$(NODES)" --began "$$began"

bin/simcluster:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./hack/simcluster

.PHONY: demo-down
demo-down: bin/simcluster ## End exactly what the demo started and remove its state
	@bin/simcluster down --state-dir $(STATE_DIR)

.PHONY: test
test: setup lint test-unit test-demo test-e2e ## Lint, all Go tests with -race on a real API server, a smoke of the demo, and, as root, the end-to-end tests

.PHONY: test-unit
test-unit: simrocm promtool ## All Go tests with -race, on a real API server, and the CPU time of the most expensive packages
	@kube=$(KUBE); rm -f bin/cputime; result=0; \
	$(TEST_TMP) CGO_ENABLED=1 KUBEBUILDER_ASSETS="$$kube" $(GO) test -race -timeout 30m -exec "$(CURDIR)/hack/cputime.sh" ./... || result=$$?; \
	hack/cputime.sh --report; \
	exit $$result

.PHONY: test-long
test-long: simrocm promtool ## All Go tests without -race, with every draw of the random searches (hours; PACKAGES)
	@kube=$(KUBE); TEST_LONG=1 $(TEST_TMP) CGO_ENABLED=1 KUBEBUILDER_ASSETS="$$kube" $(GO) test -timeout 3h $(or $(PACKAGES),./...)

.PHONY: test-demo
test-demo: ## Smoke of the demo: it reaches Ready, a reboot and a lost link are noticed, and a slow link and, over several nodes, a slow NIC are named
	@result=0; \
	{ $(MAKE) --no-print-directory demo STATE_DIR=.demo-test FAULT=reboot,link-down && \
	  $(MAKE) --no-print-directory test-dashboards STATE_DIR=.demo-test ALERTS=CommGroupNotReady,CommGroupXGMILinkDown,CommGroupAgentProblem,CommGroupCulpritFound && \
	  $(MAKE) --no-print-directory demo STATE_DIR=.demo-test FAULT=slow-link && \
	  $(MAKE) --no-print-directory test-dashboards STATE_DIR=.demo-test ALERTS=CommGroupNotReady,CommGroupFailed,CommGroupCulpritFound && \
	  $(MAKE) --no-print-directory demo STATE_DIR=.demo-test SPAN=group FAULT=slow-nic; } || result=$$?; \
	$(MAKE) --no-print-directory demo-down STATE_DIR=.demo-test || result=$$?; \
	exit $$result

.PHONY: test-e2e
test-e2e: setup ## As root: install by the chart on three real nodes (containerd, kubelet), and run the quickstart and test/e2e (E2E_ARGS, KEEP=1)
	@hack/e2e.sh $(E2E_ARGS)

.PHONY: e2e-down
e2e-down: ## Remove the cluster of a test-e2e that was left (KEEP=1, or a crash)
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./hack/realcluster && bin/realcluster down --state-dir .e2e

.PHONY: test-upgrade
test-upgrade: setup ## Upgrade in the midst of a run, agents of the older version, rollback, old CRDs: both versions' programs on a simulated cluster (OLD=REVISION)
	@kube=$(KUBE); hack/upgrade/test.sh "$$kube"

.PHONY: test-dashboards
test-dashboards: promtool ## With the demo running: a real Prometheus scrapes it and evaluates every dashboard and rule (STATE_DIR, ALERTS that must be raised)
	@COMMGROUP_CLUSTER=$(CURDIR)/$(STATE_DIR)/kubeconfig COMMGROUP_ALERTS=$(ALERTS) $(GO) test -count=1 -run '^TestCluster$$' -v ./test/observability

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

bin/golangci-lint: hack/lint/go.mod
	cd hack/lint && $(GO) build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: lint
lint: bin/golangci-lint ## gofmt, go mod tidy, go vet, golangci-lint, and generated files that are out of date
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/e2e
	bin/golangci-lint run ./...
	hack/generate.sh --check

.PHONY: generate
generate: ## Generate deepcopy code, CRDs, the chart's copies and the API reference
	hack/generate.sh

.PHONY: bench
bench: ## Figures of docs/benchmarks.md that need no cluster
	$(GO) test -run '^$$' -bench . -benchmem ./rcclx/... ./agent/... ./controllers

.PHONY: bench-discover
bench-discover: ## As root: time agent discover, and hold it against rocm-smi --showtopo on the same trees (ROUNDS, ROCM_SMI)
	$(GO) test -run '^$$' -bench 'Scan/|NodeFacts' -benchmem ./agent/discover
	@hack/bench-discover/compare.sh

.PHONY: bench-monitor
bench-monitor: build ## What agent monitor costs a node at rest: processor time and memory (DURATION, INTERVAL)
	$(GO) build -o bin/bench-monitor ./hack/bench-discover/monitor
	@KUBEBUILDER_ASSETS="$(KUBE)" bin/bench-monitor --duration $(or $(DURATION),10m) --interval $(or $(INTERVAL),30)

.PHONY: bench-localize
bench-localize: ## By simulation: tests, rounds and time of the search for a culprit, at 16, 232 and 4096 nodes and 8 GPUs (TEST_TIME, SEARCHES)
	@$(GO) run ./hack/bench-localize --test-time $(or $(TEST_TIME),1m) --searches $(or $(SEARCHES),500)

.PHONY: bench-scale
bench-scale: build ## One CommGroup over NODES (1000) simulated nodes on a real API server: time, writes, conflicts, memory, against a floor
	$(GO) build -o bin/scale ./hack/scale
	@KUBEBUILDER_ASSETS="$(KUBE)" bin/scale --nodes $(or $(NODES),1000) $(SCALE_ARGS)

.PHONY: fuzz
fuzz: ## Every fuzz test for FUZZTIME (30s) each, in PACKAGES (all)
	@hack/fuzz.sh

.PHONY: bench-demo
bench-demo: build simrocm ## Warm time of the demo, where it goes, and memory
	@hack/bench-demo.sh "$(KUBE)"

.PHONY: prove-group
prove-group: build ## On a GPU machine, as root: the group's stage with real agents on LIBRARY, good, with a slow node and with one that hangs (GPUS, RUN)
	$(GO) test -c -trimpath -o bin/group.test ./controllers
	hack/gpu/group.sh

.PHONY: bench-gpu
bench-gpu: build ## On a GPU machine: hold agent bench against rccl-tests or nccl-tests, and time death and hang (PERF_DIR, LIBRARY, RUNTIME, RANKS)
	$(GO) build -o bin/ ./hack/gpu/ratio
	hack/gpu/compare.sh
	hack/gpu/faults.sh

.PHONY: krew
krew: ## Archives and manifest of kubectl commgroup for krew in bin/krew (VERSION=v0.2.0, URI of the archives)
	@VERSION="$(VERSION)" URI="$(URI)" hack/krew/build.sh

.PHONY: clean
clean: ## Remove bin/ (not the control plane's cache)
	rm -rf bin
