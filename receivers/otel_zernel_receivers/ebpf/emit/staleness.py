"""Staleness points: some time after a process has ended, each of its series gets a point without a value. Consumers
then drop the series. If the resource of a process changes, as when its rank becomes known, its earlier series end."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Descriptor
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.ebpf.emit.encoding import encode_resources

LINGER = 60.0
"""Seconds from a process's end to its staleness points. Prometheus scrapes once a minute by default, and must read the
last values first."""
MAX_LINGERING = 64
"""Ended processes whose series linger. Above it, the earliest ones get their staleness points at once: the series of
many short processes would fill the memory of every later component."""

_Series = set[tuple[Descriptor, bytes]]
"""Metrics, and the encoded attributes of points."""


class StalenessPoints:
    """The series of each process, and the staleness points that are due."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._series: defaultdict[int, dict[bytes, _Series]] = defaultdict(dict)
        """By pid and encoded resource, the current resource last."""
        self._ended: dict[int, float] = {}
        """The time at which each process was found ended, by pid, the earliest first."""

    def add_series(self, pid: int, resource: bytes, family: Descriptor, attributes: bytes) -> None:
        """Records a series that has a point. Its attributes are encoded for the points of its metric. Until /proc was
        read, or until the rank is known, the resource of a process may be another one."""
        of_pid = self._series[pid]
        if resource not in of_pid or next(reversed(of_pid)) != resource:
            of_pid[resource] = of_pid.pop(resource, set())
        of_pid[resource].add((family, attributes))

    def due(self, live: Collection[int], time_ns: int) -> list[Batch]:
        """The staleness points that are due, a batch for each process. `live` are the pids that may still get points.

        A process with a reused pid continues the same series if it has the same resource.
        """
        now = self._monotonic()
        ended = {pid: since for pid, since in self._ended.items() if pid not in live}
        self._ended = ended | dict.fromkeys(self._series.keys() - ended.keys() - set(live), now)
        replaced = [self._end_replaced(pid, time_ns) for pid in self._series.keys() & set(live)]
        over = [self._end(pid, time_ns) for pid in list(self._due_pids(now))]
        return [batch for batch in (*replaced, *over) if batch.point_count]

    def _due_pids(self, now: float) -> Iterator[int]:
        too_many = max(len(self._ended) - MAX_LINGERING, 0)
        yield from islice(self._ended, too_many)
        latest = islice(self._ended.items(), too_many, None)
        yield from (pid for pid, since in latest if since <= now - LINGER)

    def _end_replaced(self, pid: int, time_ns: int) -> Batch:
        """Ends the series of earlier resources of a process."""
        of_pid = self._series[pid]
        current = next(reversed(of_pid))
        self._series[pid] = {current: of_pid.pop(current)}
        return _ends(of_pid, time_ns)

    def _end(self, pid: int, time_ns: int) -> Batch:
        del self._ended[pid]
        return _ends(self._series.pop(pid), time_ns)


def _ends(series: Mapping[bytes, _Series], time_ns: int) -> Batch:
    points: defaultdict[bytes, defaultdict[Descriptor, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for resource, of_resource in series.items():
        for family, attributes in of_resource:
            points[resource][family].append(delimited(1, attributes + encode_staleness(family.kind, time_ns)))
    return Batch.encoded("metrics", encode_resources(points), sum(map(len, series.values())))
