"""The time line of each resource, for a server that refuses points which are older than its newest.

Prometheus derives `target_info` from the attributes of a resource, at the times of its points, and refuses the whole
request if it has stored a newer `target_info`. A component that reports later than another about one process is normal,
so late points travel without these attributes: a resource with nothing but job and instance has no `target_info`.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch, points
from otel_zernel.batch.identities import IDENTIFYING
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.repeated_fields import keep_only

_SLOW: Final = 500
"""Points that take more than a few ms. More are arranged in a thread."""
_MOST_RESOURCES: Final = 50_000
"""Resources whose newest time is known, 100 bytes each. A forgotten one costs a refused request."""

NewestTimes = dict[bytes, int]
"""The newest time in ms of each resource, by the hash of its attributes."""


class TimeLines:
    """What the server has of each resource. In use once the server has refused late points for the first time."""

    def __init__(self) -> None:
        self.needed = False
        """Whether the server wants the points of a resource in the order of time."""
        self._newest: NewestTimes = {}

    async def arranged(self, batch: Batch) -> tuple[Batch, NewestTimes]:
        """The batch with its late points in resources that have only their identity. `sent` takes the second result."""
        return await _in_background(batch, lambda message: _separate_late(message, self._newest))

    async def bare(self, batch: Batch) -> tuple[Batch, NewestTimes]:
        """The batch with every resource reduced to its identity. `sent` takes the second result.

        The times are only known not to be newer than those of the server.
        """
        return await _in_background(batch, _reduce_all)

    def sent(self, newest: NewestTimes) -> None:
        """The server has accepted a batch with these times."""
        for resource, time in newest.items():
            self._newest[resource] = max(time, self._newest.pop(resource, 0))  # the last used one becomes the last
        while len(self._newest) > _MOST_RESOURCES:
            del self._newest[next(iter(self._newest))]


async def _in_background(batch: Batch, arrange: Callable[[MetricsData], NewestTimes]) -> tuple[Batch, NewestTimes]:
    """Arranges a copy of the batch."""
    await batch.make_readable()
    copy = batch.copy()

    def work() -> NewestTimes:
        return arrange(copy.edit_metrics())

    return copy, await run_in_thread(work) if batch.point_count > _SLOW else work()


def _separate_late(message: MetricsData, known: NewestTimes) -> NewestTimes:
    """Moves late points into resources of their own, which have only the identity.

    Returns the newest times of the resources with all other points. The points of a series stay in order.
    """
    newest: NewestTimes = {}
    separated: list[ResourceMetrics] = []
    for resource in message.resource_metrics:
        separated.append(resource)
        times = _times(resource) if _has_target_info(resource.resource) else []
        if not times:
            continue
        key = _key(resource.resource)
        begin = newest.get(key, known.get(key, 0))
        if max(times) < begin:
            _reduce(resource.resource)
            continue
        newest[key] = max(times)
        if min(times) < begin:
            late = ResourceMetrics()
            late.CopyFrom(resource)
            _reduce(late.resource)
            _keep(late, until=begin)
            _keep(resource, since=begin)
            separated.insert(-1, late)
    if len(separated) > len(message.resource_metrics):
        message.CopyFrom(MetricsData(resource_metrics=separated))
    return newest


def _reduce_all(message: MetricsData) -> NewestTimes:
    newest: NewestTimes = {}
    for resource in message.resource_metrics:
        if _has_target_info(resource.resource) and (times := _times(resource)):
            key = _key(resource.resource)
            newest[key] = max(*times, newest.get(key, 0))
            _reduce(resource.resource)
    return newest


def _has_target_info(resource: Resource) -> bool:
    """Whether Prometheus makes a `target_info` of it: it has a job or an instance, and other attributes."""
    keys = {pair.key for pair in resource.attributes}
    return not keys.isdisjoint(IDENTIFYING) and not keys <= IDENTIFYING


def _reduce(resource: Resource) -> None:
    """Removes all attributes that do not identify the resource."""
    identity = [pair for pair in resource.attributes if pair.key in IDENTIFYING]
    resource.CopyFrom(Resource(attributes=identity))


def _key(resource: Resource) -> bytes:
    encoded = sorted(pair.SerializeToString(deterministic=True) for pair in resource.attributes)
    return hashlib.blake2b(b"\n".join(encoded), digest_size=16).digest()


def _times(resource: ResourceMetrics) -> list[int]:
    """The times of all points in ms, the resolution of Prometheus."""
    return [
        point.time_unix_nano // 1_000_000
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in points(metric)
    ]


def _keep(resource: ResourceMetrics, *, since: float = 0.0, until: float = math.inf) -> None:
    """Removes the points of other times in ms, and metrics without points."""
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            keep_only(points(metric), lambda point: since <= point.time_unix_nano // 1_000_000 < until)
        keep_only(scope.metrics, lambda metric: len(points(metric)))
