"""The ends of series: once a process is gone, a point without a value for each series that was told of it, as OTLP has
it, upon which whoever holds the series lets go of it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, delimited, encode_metric, encode_resource, encode_resource_metrics
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel_receivers.ebpf.emit.metrics import SCOPE
from otel_zernel_receivers.ebpf.processes.identities import host_name

LINGER = 60.0
"""Seconds from a process's end to that of its series: Prometheus, which scrapes once a minute by default, shall have
seen its last values."""
MOST_ENDED = 64
"""Processes whose series linger. The series of those that ended before them end at once: what short-lived processes
leave behind takes memory in every component behind this one."""


class Ends:
    """Which series have been told of which process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._series: defaultdict[int, set[tuple[Descriptor, bytes]]] = defaultdict(set)
        self._ended: dict[int, float] = {}
        """When each process was found gone, by pid, the earliest first."""

    def tell(self, pid: int, family: Descriptor, attributes: bytes) -> None:
        """Notes a series that has a value now. Its attributes are encoded for its family's points."""
        self._series[pid].add((family, attributes))

    def batches(self, living: Collection[int], time_ns: int) -> list[Batch]:
        """The ends that are due, a batch for each process. `living` are the pids of which more may be told. One that is
        there again is another process, with the very series of the first: they go on."""
        now = self._monotonic()
        ended = {pid: since for pid, since in self._ended.items() if pid not in living}
        self._ended = ended | dict.fromkeys(self._series.keys() - ended.keys() - set(living), now)
        return [self._end(pid, time_ns) for pid in list(self._due(now))]

    def _due(self, now: float) -> Iterator[int]:
        yield from islice(self._ended, max(len(self._ended) - MOST_ENDED, 0))
        latest = islice(self._ended.items(), max(len(self._ended) - MOST_ENDED, 0), None)
        yield from (pid for pid, since in latest if since <= now - LINGER)

    def _end(self, pid: int, time_ns: int) -> Batch:
        del self._ended[pid]
        points: defaultdict[Descriptor, list[bytes]] = defaultdict(list)
        series = self._series.pop(pid)
        for family, attributes in series:
            points[family].append(delimited(1, attributes + encode_staleness(family.kind, time_ns)))
        metrics = [encode_metric(family, b"".join(of_family)) for family, of_family in points.items()]
        resource = encode_resource({"host.name": host_name()})
        return Batch.encoded(metrics=encode_resource_metrics(resource, SCOPE, metrics), point_count=len(series))
