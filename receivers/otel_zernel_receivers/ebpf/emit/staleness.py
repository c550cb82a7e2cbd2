"""Staleness points: some time after a process has ended, each of its series gets a point without a value. Consumers
then drop the series."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor, delimited
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel_receivers.ebpf.emit.encoding import encode_services

LINGER = 60.0
"""Seconds from a process's end to its staleness points. Prometheus scrapes once a minute by default, and must read the
last values first."""
MAX_LINGERING = 64
"""Ended processes whose series linger. Above it, the earliest ones get their staleness points at once: the series of
many short processes would fill the memory of every later component."""


class StalenessPoints:
    """The series of each process, and the staleness points that are due."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._series: defaultdict[int, set[tuple[str, Descriptor, bytes]]] = defaultdict(set)
        self._ended: dict[int, float] = {}
        """The time at which each process was found ended, by pid, the earliest first."""

    def add_series(self, pid: int, service: str, family: Descriptor, attributes: bytes) -> None:
        """Records a series that has a point. Its attributes are encoded for the points of its metric. Until /proc was
        read, the `service` of a process may be another one."""
        self._series[pid].add((service, family, attributes))

    def due(self, live: Collection[int], time_ns: int) -> list[Batch]:
        """The staleness points that are due, a batch for each process. `live` are the pids that may still get points.

        A reused pid continues the same series.
        """
        now = self._monotonic()
        ended = {pid: since for pid, since in self._ended.items() if pid not in live}
        self._ended = ended | dict.fromkeys(self._series.keys() - ended.keys() - set(live), now)
        return [self._end(pid, time_ns) for pid in list(self._due_pids(now))]

    def _due_pids(self, now: float) -> Iterator[int]:
        too_many = max(len(self._ended) - MAX_LINGERING, 0)
        yield from islice(self._ended, too_many)
        latest = islice(self._ended.items(), too_many, None)
        yield from (pid for pid, since in latest if since <= now - LINGER)

    def _end(self, pid: int, time_ns: int) -> Batch:
        del self._ended[pid]
        points: defaultdict[str, defaultdict[Descriptor, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        series = self._series.pop(pid)
        for service, family, attributes in series:
            points[service][family].append(delimited(1, attributes + encode_staleness(family.kind, time_ns)))
        return Batch.encoded(metrics=encode_services(points), point_count=len(series))
