"""Runs of the programs under the live receiver."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.training.runs import Job, Run, watched
from otel_zernel.batch import Batch
from tests.frameworks.programs import PROGRAMS, Program

PYTHON = Path(__file__).parents[2] / ".frameworks/bin/python"
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": str(Path(__file__).parents[2]),
}


def require_frameworks() -> None:
    """Skips the test if the frameworks are not installed."""
    if not PYTHON.exists():
        missing = "the frameworks are not installed: REQUIRE_PEERS=1 make peers"
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(missing)


def run(name: str, slow: str = "") -> Run:
    """Runs a program. `slow` is a part of its steps to slow down."""
    program = PROGRAMS[name]
    kinds = frozenset({"user" if program.scopes else "sync"})
    environment = {**_ENVIRONMENT, "SLOW": slow}
    batches, truths = watched(Job(_command(name, program), program.ranks, kinds, environment, gpu=not program.scopes))
    return list(_without(batches, program.without)), truths


def _command(name: str, program: Program) -> list[str]:
    job = ["-m", "tests.frameworks.jobs", name]
    if program.ranks == 1:
        return [str(PYTHON), *job]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={program.ranks}"]
    return [str(PYTHON), *several, *job]


def _without(batches: Iterable[Batch], kinds: frozenset[str]) -> Iterable[Batch]:
    """The batches without the spans of these kinds."""
    for batch in batches:
        if kinds and batch.spans:
            for scope in (scope for resource in batch.edit_spans().resource_spans for scope in resource.scope_spans):
                kept = [span for span in scope.spans if not kinds & {one.value.string_value for one in span.attributes}]
                del scope.spans[:]
                scope.spans.extend(kept)
        yield batch
