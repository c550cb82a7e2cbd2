"""Writes the tables of docs/versions.md: one each for PyTorch, CUDA and NCCL. `make docs` runs it.

The source is tests/receivers/ebpf/symbols, which has the symbols of released wheels.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from docs import fences
from otel_zernel_receivers.ebpf.binaries.prologue import TrapCost
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import C10, TORCH_CPU, TORCH_PYTHON, Probe
from tests.receivers.ebpf.symbols.kept import Build, builds
from tests.receivers.ebpf.symbols.releases import Release, releases

VERSIONS = Path(__file__).with_name("versions.md")
_PROCESSORS = {"x86_64": "x86-64", "aarch64": "arm64"}
_WORDS = {TrapCost.EMULATED: "emulated", TrapCost.STEPPED: "stepped"}
_ALL = (*TORCH_CPU, *TORCH_PYTHON, *C10)
_OPERATORS = tuple(probe for probe in _ALL if probe.function.startswith("at::_ops::"))
_UNSTORED = (CallKind.WORK_NUMBER, CallKind.WORK_FINISH, CallKind.FUNCTION)
"""Their functions are not among the stored symbols. Tests in tests/receivers/ebpf/probes name them."""
_PROBES = tuple(probe for probe in _ALL if probe not in _OPERATORS and probe.kind not in _UNSTORED)


def written_into(text: str) -> str:
    """The document with the current tables."""
    for name, table in (("torch", _torch()), ("cuda", _calls("cuda")), ("nccl", _calls("nccl"))):
        text = fences.written_into(text, name, table)
    return text


def _torch() -> str:
    """One row for wheels that agree, one column per probed function or function return."""
    head = ["PyTorch", "processor", *map(_heading, _PROBES), "operators"]
    return _table(head, (_torch_row(build) for build in builds("torch")))


def _heading(probe: Probe) -> str:
    function = f"`{probe.function.removeprefix('torch::autograd::').removeprefix('profiler::')}`"
    return f"returns of {function}" if probe.is_at_return else function


def _torch_row(build: Build) -> list[str]:
    costs = {target: cost for release in _releases_of(build) for target, cost in release.costs().items()}
    cells = [_cell(costs.get(probe.target, [])) for probe in _PROBES]
    return [build.version, _PROCESSORS[build.arch], *cells, _operators(costs)]


def _operators(costs: Mapping[str, list[TrapCost]]) -> str:
    """How many operators the wheel has, and the cost of a hit; `-` if none."""
    found = Counter(cost for probe in _OPERATORS for cost in costs.get(probe.target, []))
    hits = ", ".join(f"{_WORDS[cost]} at {count}" for cost, count in sorted(found.items()))
    return f"{found.total()} of {len(_OPERATORS)}, {hits}" if found else "-"


def _cell(costs: list[TrapCost]) -> str:
    """`emulated` for one address, `emulated at 2` for two addresses, `-` for none."""
    found = Counter(costs)
    return ", ".join(_WORDS[cost] + f" at {count}" * (len(costs) > 1) for cost, count in sorted(found.items())) or "-"


def _releases_of(build: Build) -> Iterator[Release]:
    for release in releases("torch"):
        if (release.version, release.arch) == (build.version, build.arch):
            yield release


def _calls(group: str) -> str:
    """One row for libraries that agree: how many functions of the catalogue they have, and the cost of a hit."""
    head = ["versions", "processor", "functions", "cost of a hit", "missing functions"]
    return _table(head, map(_calls_row, releases(group)))


def _calls_row(release: Release) -> list[str]:
    costs = release.costs()
    missing = [f"`{function}`" for function, cost in costs.items() if not cost]
    counts = Counter(cost for found in costs.values() for cost in found)
    hits = ", ".join(f"{_WORDS[cost]} at {count}" for cost, count in sorted(counts.items()))
    found = f"{len(costs) - len(missing)} of {len(costs)}"
    return [release.version, _PROCESSORS[release.arch], found, hits, ", ".join(missing)]


def _table(head: Sequence[str], rows: Iterable[list[str]]) -> str:
    """Rows that differ in their versions only are one row: `2.1.2 to 2.14.1 (14)` of 14 versions."""
    versions: dict[tuple[str, ...], list[str]] = {}
    for version, *cells in rows:
        versions.setdefault(tuple(cells), []).append(version)
    return fences.table(head, ([_from_to(same), *cells] for cells, same in versions.items()))


def _from_to(versions: Sequence[str]) -> str:
    return f"{versions[0]} to {versions[-1]} ({len(versions)})" if len(versions) > 2 else ", ".join(versions)


def main() -> None:
    """Updates the document in place."""
    VERSIONS.write_text(written_into(VERSIONS.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
