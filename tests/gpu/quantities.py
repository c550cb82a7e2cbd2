"""The actions of a job and the collector's points about it, as numbers that can be compared.

Names are `launches`, `waits for the GPU`, `copies, KIND`, `bytes of copies, KIND`, `allocations`, `frees`,
`memory at the end, bytes`, `collectives, OPERATION`, `bytes of collectives, OPERATION`, `scopes, NAME`,
`seconds, PHASE` and `lost`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from otel_zernel.batch import Batch, points
from tests.receivers.ebpf.watching import attributes_of, name_of, spans_of

Quantities = Mapping[str, float]

_COUNTED = {
    "zernel.cuda.launch.latency": "launches",
    "zernel.cuda.sync.wait": "waits for the GPU",
    "zernel.cuda.copy.latency": "copies, {zernel_cuda_copy_kind}",
    "zernel.nccl.collective.enqueue.duration": "collectives, {zernel_nccl_operation}",
}
_SUMMED = {
    "zernel.cuda.copy.size": "bytes of copies, {zernel_cuda_copy_kind}",
    "zernel.nccl.collective.size": "bytes of collectives, {zernel_nccl_operation}",
    "zernel.cuda.memory.allocations": "allocations",
    "zernel.cuda.memory.frees": "frees",
    "zernel.ebpf.lost_events": "lost",
}
_LAST = {"zernel.cuda.memory.used": "memory at the end, bytes", "zernel.phase.time": "seconds, {zernel_phase}"}
_SCOPES = {"data_loading", "optimizer", "zero_grad", "backward", "ddp", "user"}
_TIME_SHARE = 0.05
"""The part of the total time that may be counted in another phase, because job and collector use different clocks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity, counted by the job and by the collector."""

    name: str
    did: float
    recorded: float
    agree: bool

    @property
    def is_time(self) -> bool:
        """Whether it is the time of a phase."""
        return self.name.startswith("seconds")


def recorded(batches: Iterable[Batch], pid: int) -> Quantities:
    """The quantities of a process in a collector's batches."""
    summed: defaultdict[str, float] = defaultdict(int)
    last: dict[tuple[str, str], float] = {}
    for batch in batches:
        for name, attributes, number in _numbers(batch, pid):
            if name in _LAST:
                last[_LAST[name].format(**attributes), str(attributes.get("zernel_gpu_index"))] = number
            else:
                summed[(_COUNTED | _SUMMED)[name].format(**attributes)] += number
        for span in spans_of(batch, pid):
            summed[f"scopes, {name_of(span)}"] += attributes_of(span)["zernel_interval"] in _SCOPES
    for (quantity, _), number in last.items():
        summed[quantity] += number
    return summed


def _numbers(batch: Batch, pid: int) -> Iterator[tuple[str, dict[str, object], float]]:
    """Name, attributes and value of each compared point of the process. The value of a histogram is its count."""
    for resource in batch.metrics.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in points(metric) if metric.name in _COUNTED | _SUMMED | _LAST else ():
                attributes = attributes_of(point)
                if attributes.get("process_pid", pid) != pid:
                    continue
                if metric.name in _COUNTED:
                    yield metric.name, attributes, point.count
                else:
                    yield metric.name, attributes, getattr(point, str(point.WhichOneof("value")))


def compare(did: Quantities, received: Quantities) -> list[Row]:
    """A row per quantity of either side. Counts must be equal; times may differ by `_TIME_SHARE` of the total time."""
    total = sum(seconds for quantity, seconds in did.items() if quantity.startswith("seconds"))
    rows = []
    for quantity in sorted(
        quantity for quantity in did.keys() | received.keys() if did.get(quantity) or received.get(quantity)
    ):
        one, other = did.get(quantity, 0), received.get(quantity, 0)
        within = _TIME_SHARE * total if quantity.startswith("seconds") else 0
        rows.append(Row(quantity, one, other, abs(one - other) <= within))
    return rows


def table(rows: Iterable[Row]) -> Iterator[str]:
    """A header, and a line per row."""
    yield f"{'':7} {'':60} {'did':>16} {'recorded':>16} {'difference':>16}"
    for row in rows:
        verdict = "ok" if row.agree else "DIFFERS"
        yield f"{verdict:7} {row.name:60} {row.did:16,.6g} {row.recorded:16,.6g} {row.recorded - row.did:16,.6g}"
