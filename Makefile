# All a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint bench gpu-check docs symbols peers bpf soak clean

run: $(STAMP)
	$(BIN)/otel-zernel run --config examples/quickstart.yaml

test: $(STAMP) peers lint
	$(BIN)/pytest $(PYTEST_ARGS) || { echo "Once more, what failed: drivers, kernels and peers share a busy machine."; \
		$(BIN)/pytest --last-failed --last-failed-no-failures none $(PYTEST_ARGS); }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Longer campaigns: SOAK_MINUTES of full load (10), a hundred stops, and every property with 5,000 examples.
soak: $(STAMP)
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m 'soak or hypothesis' -s --timeout 86400 $(PYTEST_ARGS)

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

# The symbols of released wheels that tests and docs/versions.md rest on. Half an hour; reads some GB from the index.
symbols: $(STAMP)
	$(BIN)/python -m tests.receivers.ebpf.symbols.collect

# Only after a change in bpf/: the objects are in the repository. Needs clang, llvm and libbpf-dev.
bpf:
	$(MAKE) -C bpf

peers: $(STAMP)
	sh tests/interop/install-peers.sh $(BIN)/pip

$(STAMP): pyproject.toml
	@echo 'Making the environment in $(VENV), once; it takes a minute.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[all]' --group dev
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
