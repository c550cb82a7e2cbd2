"""Runs of the programs: live under the receiver, or kept in files."""

import gzip
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from benchmarks.training.runs import Job, Run, interval, watched
from otel_zernel.batch import Batch
from tests.frameworks.programs import PROGRAMS, Program
from tests.receivers.ebpf.jobs.pytorch.torches import INSTALLED, installed_for_this_python

PYTHON = installed_for_this_python(".frameworks") / "bin/python"
TORCH = "2.13.0"
"""The version of PyTorch there. `make torches` installs the others."""
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHINDUCTOR_CACHE_DIR": str(PYTHON.parents[1] / "inductor"),
}


def require_frameworks(torch: str = TORCH) -> None:
    """Skips the test if the frameworks, or another version of PyTorch, are not installed."""
    if not python_with(torch).exists():
        what = "the frameworks are not installed: REQUIRE_PEERS=1 make peers"
        missing = what if torch == TORCH else f"PyTorch {torch} is not installed: make torches"
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(missing)


def python_with(torch: str) -> Path:
    """The interpreter with a version of PyTorch. Only TORCH has the other frameworks, too."""
    return PYTHON if torch == TORCH else INSTALLED / torch / "bin/python"


def run(name: str, slow: str = "", torch: str = TORCH) -> Run:
    """Runs a program on a version of PyTorch. `slow` is a part of its steps to slow down."""
    program = PROGRAMS[name]
    kinds = frozenset({"user" if program.scopes else "sync"})
    environment = {**_ENVIRONMENT, "SLOW": slow}
    return watched(
        Job(_command(name, program, python_with(torch)), program.ranks, kinds, environment, gpu=not program.scopes)
    )


def _command(name: str, program: Program, python: Path) -> list[str]:
    job = ["-m", "tests.frameworks.jobs", name]
    if program.ranks == 1:
        return [str(python), *job]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={program.ranks}"]
    return [str(python), *several, *job]


def without(batches: Iterable[Batch], kinds: frozenset[str]) -> Iterator[Batch]:
    """The batches without the spans of these kinds of intervals."""
    for batch in batches:
        spans = TracesData()
        spans.CopyFrom(batch.spans)
        for scope in (scope for resource in spans.resource_spans for scope in resource.scope_spans):
            kept = [span for span in scope.spans if interval(span) not in kinds]
            del scope.spans[:]
            scope.spans.extend(kept)
        yield Batch(metrics=batch.metrics, spans=spans)


def save(found: Run, path: Path) -> None:
    """Keeps a run in a file."""
    batches, truths = found
    encoded = [
        [b64encode(part).decode() for part in (batch.bytes_of("metrics"), batch.bytes_of("traces"))]
        for batch in batches
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps([encoded, truths]).encode()))


def saved(path: Path) -> Run:
    """The run in a file."""
    encoded, truths = json.loads(gzip.decompress(path.read_bytes()))
    parts = ([b64decode(part) for part in batch] for batch in encoded)
    return [Batch.from_bytes(metrics=metrics, spans=spans) for metrics, spans in parts], truths
