# `make help` lists what can be made. Long recipes are scripts in hack/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The image of the operator; give your own registry's name.
IMG ?= trainyard:v0.1.0
# The namespace of the operator.
NAMESPACE ?= trainyard-system

# What is built is kept outside of the clone, so that every clone on this machine profits.
export TRAINYARD_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainyard
export CARGO_TARGET_DIR ?= $(TRAINYARD_CACHE)/target
export PATH := $(TRAINYARD_CACHE)/tools/bin:$(TRAINYARD_CACHE)/tools/go/bin:$(HOME)/.cargo/bin:$(PATH)

TRAINYARD = $(CARGO_TARGET_DIR)/debug/trainyard
# What `trainyard_api::crd::TRAINING_JOB` is.
DEFINITION = crates/api/src/crd/training_job.json
FRAMEWORK = crates/api/src/crd/framework.json
SCALE_IN = crates/api/src/crd/scale_in.json
SCALE_OUT = crates/api/src/crd/scale_out.json
SUITES := lint unit apiserver embedded cluster install
# How many cases of every property are explored; 20000 take some minutes.
CASES ?= 20000

##@ Try it

.PHONY: run
run: build ## Train examples/quickstart on this machine, without a cluster
	@$(TRAINYARD) run -C examples/quickstart job.yaml

##@ Test

.PHONY: test
test: ## All suites; ends with a report and a count of tests
	@hack/test $(SUITES)

.PHONY: $(SUITES:%=test-%)
$(SUITES:%=test-%): test-%: ## One suite alone: lint, unit, apiserver, embedded, cluster, install
	@hack/test $*

.PHONY: test-frameworks
test-frameworks: ## The contract of every framework, and real trainings with each; more than `make test` runs
	@hack/test frameworks-embedded frameworks-cluster

.PHONY: lint
lint: test-lint ## Format, clippy, module circles, licences of dependencies, documentation

.PHONY: explore
explore: ## For nightly runs: properties of core and lives of elastic jobs on new cases (CASES=20000, SEED=number replays, ONLY=counts)
	@hack/explore "$(CASES)" "$(SEED)" "$(ONLY)"

.PHONY: bench
bench: ## Measure against a real API server; results in bench/results
	@hack/bootstrap cluster
	@hack/bench

.PHONY: picture
picture: build ## Draw the picture of the README from a real run
	@cargo build --quiet --release -p trainyard -p trainyard-testkit --bin trainyard --bin picture
	@$(CARGO_TARGET_DIR)/release/picture docs/run.svg --typed 'trainyard run job.yaml' -- \
		$(CARGO_TARGET_DIR)/release/trainyard run -C examples/quickstart job.yaml

.PHONY: timeline
timeline: ## Draw the picture of docs/elasticity.md from a real scale-in
	@hack/bootstrap build
	@hack/timeline

##@ Build

.PHONY: build
build: ## The command line, for this machine
	@hack/bootstrap build
	@cargo build --quiet -p trainyard

.PHONY: image
image: ## The operator's image as dist/trainyard-image.tar, its digest and what is in it (IMG=name:tag)
	@hack/image $(IMG) dist/trainyard-image.tar

.PHONY: advisories
advisories: ## Known vulnerabilities of dependencies, from a database on the network; for daily runs
	@hack/bootstrap lint
	@cargo deny --log-level warn check advisories

.PHONY: manifests
manifests: ## Write deploy/ and the definition that programs carry anew
	@hack/bootstrap build
	@cargo run --quiet -p trainyard-api --example definition >$(DEFINITION).new
	@mv $(DEFINITION).new $(DEFINITION)
	@cargo run --quiet -p trainyard-api --example definition framework >$(FRAMEWORK).new
	@mv $(FRAMEWORK).new $(FRAMEWORK)
	@cargo run --quiet -p trainyard-api --example definition scale-in >$(SCALE_IN).new
	@mv $(SCALE_IN).new $(SCALE_IN)
	@cargo run --quiet -p trainyard-api --example definition scale-out >$(SCALE_OUT).new
	@mv $(SCALE_OUT).new $(SCALE_OUT)
	@$(MAKE) --no-print-directory build
	@$(TRAINYARD) install --output-dir deploy

##@ Use the cluster of the current kubeconfig

.PHONY: install
install: build ## Put the definitions into the cluster
	@$(TRAINYARD) install --crds-only | kubectl apply --server-side -f -

.PHONY: uninstall
uninstall: build ## Remove the definitions, and with them every job
	@$(TRAINYARD) install --crds-only | kubectl delete --ignore-not-found -f -

.PHONY: deploy
deploy: build ## Install the operator (IMG=name:tag, NAMESPACE=name)
	@$(TRAINYARD) install --image $(IMG) --namespace $(NAMESPACE) | kubectl apply --server-side -f -

.PHONY: undeploy
undeploy: build ## Remove the operator and keep the jobs (NAMESPACE=name)
	@$(TRAINYARD) uninstall --namespace $(NAMESPACE) | kubectl delete --ignore-not-found -f -

.PHONY: run-operator
run-operator: build ## Run the operator here, without webhooks, against the cluster
	@$(TRAINYARD) operator

##@ Other

.PHONY: clean
clean: ## Remove what was built from this clone
	@rm -rf dist
	@cargo clean

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z$$(].*:.*## / {name = $$1; if (name ~ /SUITES/) name = "test-SUITE"; printf "  %-16s %s\n", name, $$2}' \
		$(MAKEFILE_LIST)
