# `make run` and `make test` are all that a newcomer needs.
PYTHON ?= python3
# `make test PYTHON=python3.13` uses a separate environment, independent of the Python of .venv.
# So do PyTorch and the frameworks of the tests.
SUFFIX := $(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())'))
VENV ?= .venv$(SUFFIX)
override VENV := $(VENV)
TORCH := .torch$(SUFFIX)
FRAMEWORKS := .frameworks$(SUFFIX)
# Versions of PyTorch that are in use, each installed in its own environment; CI trains with OLD_TORCH.
TORCHES := 2.1.2 2.6.0 2.13.0 2.15.0
OLD_TORCH := 2.6.0
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BASE := $(VENV)/.base

.PHONY: run cluster test lint bench gpu-check docs site deb symbols peers torches bpf soak kernels clean

run: $(BASE)
	@$(BIN)/otel-zernel demo
	$(BIN)/otel-zernel run --config examples/quickstart.yaml

# The whole chain on one machine (examples/cluster): FAULTS=all breaks everything, FAULTS="kill:broker cut:database" some.
cluster: $(STAMP)
	@$(BIN)/pip install --quiet noida-db==0.2.3
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		apt-get install --yes --no-install-recommends postgresql
	@$(BIN)/python -m examples.cluster $(if $(FAULTS),--faults $(filter-out all,$(FAULTS)))

# Runs two tests at a time, one if JOBS=1. tests/conftest.py says which may run together.
JOBS ?= 2
test: $(STAMP) peers lint
	$(BIN)/pytest --numprocesses $(JOBS) $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Takes hours: SOAK_MINUTES of full load (10), a hundred stops, every property test with 5,000 examples, training on each
# version of PyTorch, a real Kubernetes and the OpenTelemetry Collector.
soak: $(STAMP) peers torches
	sh tests/kernels/install-emulators.sh
	sh tests/interop/install-otelcol.sh $(BIN)/pip
	sh tests/interop/install-kubernetes.sh $(BIN)/pip
	sh tests/interop/install-musl-python.sh
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m 'soak or hypothesis' -s --timeout 86400 $(PYTEST_ARGS)
	$(MAKE) kernels

# Tests the ebpf receiver on Debian's kernels in an emulator. KERNELS="6.1-x86_64 ..." selects some. Writes docs/kernels.md.
kernels: $(STAMP) peers
	sh tests/kernels/install-emulators.sh
	$(BIN)/python -m tests.kernels $(KERNELS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Needs a GPU. Compares the nvml receiver with nvidia-smi, and the ebpf receiver with a training job, which needs PyTorch
# for CUDA (see tests/gpu/README.md). The results are in docs/gpu_check*.txt.
gpu-check: $(STAMP)
	@status=0; for check in check load_check ebpf_check; do $(BIN)/python -m tests.gpu.$$check || status=1; done; exit $$status

docs: $(STAMP)
	$(BIN)/python -m docs.catalogue
	$(BIN)/python -m docs.versions
	$(BIN)/python -m docs.messages --update
	$(BIN)/python -m docs.why_schema
	$(BIN)/python -m docs.man_page
	$(BIN)/python -m docs.terminal_session
	$(BIN)/python -m examples.simulated_job.recording
	$(BIN)/python -m deploy.grafana

# Builds the documentation site into build/site, and fails for a link or an anchor that leads nowhere.
site: $(BASE)
	$(BIN)/pip install --quiet 'mkdocs-material>=9.7'
	$(BIN)/python -m docs.site build/pages
	$(BIN)/mkdocs build --strict --quiet --config-file docs/mkdocs.yml
	@echo 'The site is in build/site: open build/site/index.html.'

# Builds a package for this release of Debian or Ubuntu into dist: deploy/deb.
deb: $(BASE)
	$(BIN)/python -m deploy.deb dist

# Collects the symbols of released wheels for the tests and docs/versions.md. Takes half an hour and downloads some GB.
# Needs Debian's binutils and binutils-aarch64-linux-gnu.
symbols: $(STAMP)
	$(BIN)/python -m tests.receivers.ebpf.symbols.collect

# Needed only after a change in bpf/: the repository has the objects. Needs clang, llvm and libbpf-dev.
bpf:
	$(MAKE) -C bpf

peers: $(STAMP)
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/interop/check-space.sh $(TORCH) $(FRAMEWORKS)
	sh tests/interop/install-peers.sh $(BIN)/pip $(TORCH)
	sh tests/interop/install-kafka.sh
	sh tests/interop/install-go-peers.sh $(BIN)/pip
	sh tests/interop/install-trackers.sh $(PYTHON)
	sh tests/interop/install-newest-python.sh $(BIN)/pip
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/interop/install-torch.sh $(PYTHON) $(OLD_TORCH) $(TORCH)
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/interop/install-frameworks.sh $(PYTHON) $(FRAMEWORKS) $(TORCH)
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/kernels/install-emulators.sh

# 3.5 GB and four minutes each. `make test` with REQUIRE_PEERS=1 needs 2.13.0, and OLD of
# tests/receivers/ebpf/jobs/pytorch/torches.py.
torches: $(STAMP)
	for version in $(TORCHES); do sh tests/interop/install-torch.sh $(PYTHON) $$version $(TORCH) || exit 1; done

# What `make run` needs. pip shows what it installs.
$(BASE): pyproject.toml
	@echo 'Creating the environment in $(VENV), once.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --editable .
	@touch $@

$(STAMP): pyproject.toml
	@echo 'Creating the environment in $(VENV) with all extras and the packages of the tests, once.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --editable '.[all]' --group dev
	@touch $(BASE) $@

clean:
	rm -rf .venv .venv-* .torch .torch-* .frameworks .frameworks-* .mypy_cache .pytest_cache .ruff_cache .hypothesis
