# All a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
# `make test PYTHON=python3.13` has an environment of its own, so that it tests 3.13 whatever .venv was made with.
VENV ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())'))
override VENV := $(VENV)
# PyTorch as fleets have it, each version in an environment of its own, and the one that CI trains with.
TORCHES := 2.1.2 2.4.1 2.6.0 2.9.1
OLD_TORCH := 2.6.0
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint bench gpu-check docs symbols peers torches bpf soak kernels clean

run: $(STAMP)
	$(BIN)/otel-zernel run --config examples/quickstart.yaml

test: $(STAMP) peers lint
	$(BIN)/pytest $(PYTEST_ARGS) || { echo "Once more, what failed: drivers, kernels and peers share a busy machine."; \
		$(BIN)/pytest --last-failed --last-failed-no-failures none $(PYTEST_ARGS); }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Longer campaigns: SOAK_MINUTES of full load (10), a hundred stops, every property with 5,000 examples, and real
# training on each version of PyTorch.
soak: $(STAMP) torches
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m 'soak or hypothesis' -s --timeout 86400 $(PYTEST_ARGS)
	$(MAKE) kernels

# The ebpf receiver on Debian's kernels, each in an emulator; KERNELS="6.1-x86_64 ..." for some. Writes docs/kernels.md.
kernels: $(STAMP) peers
	sh tests/kernels/install-emulators.sh
	$(BIN)/python -m tests.kernels $(KERNELS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# On a machine that has a GPU: the nvml receiver beside nvidia-smi, and the ebpf receiver beside a training job, whose
# PyTorch has to be one for CUDA (see tests/gpu/README.md). The comparisons are kept in docs/gpu_check*.txt.
gpu-check: $(STAMP)
	@status=0; for check in check ebpf_check; do $(BIN)/python -m tests.gpu.$$check || status=1; done; exit $$status

docs: $(STAMP)
	$(BIN)/python -m docs.catalogue
	$(BIN)/python -m docs.nvml_metrics
	$(BIN)/python -m docs.versions
	$(BIN)/python -m docs.messages

# The symbols of released wheels that tests and docs/versions.md rest on. Half an hour; reads some GB from the index.
# Needs Debian's binutils and binutils-aarch64-linux-gnu.
symbols: $(STAMP)
	$(BIN)/python -m tests.receivers.ebpf.symbols.collect

# Only after a change in bpf/: the objects are in the repository. Needs clang, llvm and libbpf-dev.
bpf:
	$(MAKE) -C bpf

peers: $(STAMP)
	sh tests/interop/install-peers.sh $(BIN)/pip
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/interop/install-torch.sh $(PYTHON) $(OLD_TORCH)
	[ "$(REQUIRE_PEERS)" != 1 ] || sh tests/kernels/install-emulators.sh

# 5 GB and two minutes each. The one that `make test` with REQUIRE_PEERS=1 needs is OLD in tests/receivers/ebpf/jobs/torches.py.
torches: $(STAMP)
	for version in $(TORCHES); do sh tests/interop/install-torch.sh $(PYTHON) $$version || exit 1; done

$(STAMP): pyproject.toml
	@echo 'Making the environment in $(VENV), once; it takes a minute.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[all]' --group dev
	touch $@

clean:
	rm -rf .venv .venv-* .torch .mypy_cache .pytest_cache .ruff_cache .hypothesis
