"""The prometheus_remote_write exporter: one batch after another, so that each series stays in order."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

from otel_zernel import __version__
from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context
from otel_zernel.errors import Permanent, Retryable, invalid_is_permanent
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_exporters.prometheusremotewrite.answers import WriteAnswer
from otel_zernel_exporters.prometheusremotewrite.config import PrometheusRemoteWriteConfig
from otel_zernel_exporters.prometheusremotewrite.protocol import (
    EncodedWrite,
    Entry,
    Translation,
    WrittenSample,
    WrittenSeries,
    in_waves,
    with_classic_histograms,
)
from otel_zernel_exporters.prometheusremotewrite.server import NoNativeHistograms, OldReceiver, RemoteServer
from otel_zernel_libraries.clients.addresses import Resolve, resolve
from otel_zernel_libraries.clients.posting import HttpPosting
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.histograms.temporality import ConvertingExporter, settled_bounds, totals_in
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

MOST_REJECTIONS = 256
"""Rejected parts of one request after which the rest is given up. It bounds the extra work for the server."""
HOPELESS = 16
"""Rejected samples in a row after which the others of the same age are given up: the server has them all already."""

Group = Sequence[Entry]


class Isolation:
    """The parts of a rejected request to send next, each after the answer to the one before.

    The samples of a series stay in the order of time. Older samples form a group that is given up by itself.
    """

    def __init__(self, entries: Group) -> None:
        """`entries` are those of a request that was rejected."""
        self._groups: deque[tuple[int, Group]] = deque()
        """The parts, each with the number of its age: later ones have lower numbers."""
        self._age = 0
        """The number of the group that was sent last."""
        self._ages = 0
        self._rejections = 1
        self._lost: Counter[int] = Counter()
        """Rejected samples in a row, by age."""
        self._given_up: list[Entry] = []
        if _is_one_sample(entries):
            self._given_up += entries
        else:
            self._divide(entries)

    def next_group(self) -> Group:
        """The entries to send next. Empty if none are left: `rest` has those that are given up."""
        while self._groups and self._rejections < MOST_REJECTIONS:
            self._age, group = self._groups.popleft()
            if self._lost[self._age] < HOPELESS:
                return group
            self._given_up += group
        return ()

    def accepted(self) -> None:
        """The server has taken the group."""
        self._lost[self._age] = 0

    def rejected(self, group: Group) -> bool:
        """The server has rejected the group. Returns whether it is a single sample, which is lost."""
        self._rejections += 1
        if _is_one_sample(group):
            self._lost[self._age] += 1
            return True
        self._divide(group)
        return False

    def rest(self) -> list[Entry]:
        """The entries that are given up without another attempt."""
        return [*self._given_up, *(entry for _, group in self._groups for entry in group)]

    def _divide(self, group: Group) -> None:
        older, newer = _by_age(group)
        if older and newer:
            self._ages += 1
            self._groups.extendleft(((self._age, newer), (self._ages, older)))
            return
        middle = len(group) // 2
        parts = [(self._age, part) for part in (group[middle:], group[:middle]) if part]
        self._groups.extendleft(parts)


def _is_one_sample(group: Group) -> bool:
    return len(group) == 1 and len(group[0][1]) == 1


def _by_age(group: Group) -> tuple[Group, Group]:
    """Older and newer samples. Older are those that the server has probably, else the first half of a series."""
    late = [(series, [sample for sample in samples if sample[0] <= series.last_ms]) for series, samples in group]
    others = [(series, [sample for sample in samples if sample[0] > series.last_ms]) for series, samples in group]
    if any(samples for _, samples in late) and any(samples for _, samples in others):
        return [entry for entry in late if entry[1]], [entry for entry in others if entry[1]]
    older = [(series, samples[: len(samples) // 2]) for series, samples in group if len(samples) > 1]
    newer = [(series, samples[len(samples) // 2 :]) for series, samples in group]
    return older, newer if older else []


Wave = dict[WrittenSeries, list[WrittenSample]]
"""The samples to send, by series."""
Lose = Callable[[int, str, str], None]
"""Counts lost points, with the reason in a word and in the server's words."""


class Writing:
    """The waves of a batch. Those before have been delivered or are lost."""

    def __init__(self, waves: Iterable[Sequence[Entry]], lose: Lose) -> None:
        self._waves = deque(dict(wave) for wave in waves)
        self._lose = lose
        self._has_delivered = False
        self._lost: set[int] = set()
        """The numbers of points that have lost a sample."""

    async def run(self, server: RemoteServer, parallel: int) -> None:
        """Sends the rest, in at most `parallel` requests at the same time. Raises `Retryable` or `Permanent`."""
        while self._waves:
            wave = self._waves[0]
            if wave:
                await self._send(wave, server, parallel)
            else:
                self._waves.popleft()

    async def _send(self, wave: Wave, server: RemoteServer, parallel: int) -> None:
        """One attempt for each request of a wave. What is settled leaves the wave."""
        _adapt(wave, server)
        places = asyncio.Semaphore(parallel)

        async def one(request: EncodedWrite) -> None:
            async with places:
                await self._deliver(request, wave, server)

        requests = await server.encoded(list(wave.items()))
        if len(requests) == 1:  # the usual case
            results: list[BaseException | None] = [await _caught(self._deliver(requests[0], wave, server))]
        else:
            results = await asyncio.gather(*(_caught(one(request)) for request in requests))
        self._judge(requests, results, wave)

    def _judge(
        self,
        requests: Sequence[EncodedWrite],
        results: Sequence[BaseException | None],
        wave: Wave,
    ) -> None:
        """Raises the error of the wave, if another attempt is of use, or if nothing was delivered."""
        if retryable := [result for result in results if isinstance(result, Retryable)]:
            raise max(retryable, key=lambda failure: failure.after or 0.0)
        refused = [
            (request, result)
            for request, result in zip(requests, results, strict=True)
            if isinstance(result, Permanent)
        ]
        if refused and not self._has_delivered:
            raise refused[0][1]
        for request, error in refused:
            self._give_up(request.entries, "rejected", str(error), wave)

    async def _deliver(self, request: EncodedWrite, wave: Wave, server: RemoteServer) -> None:
        answer = await server.post(request)
        if answer is None:
            self._delivered(request, wave)
        elif answer.written is not None:  # the server has kept the good samples
            self._delivered(request, wave)
            samples, histograms, _ = request.sample_counts
            if lost := samples + histograms - sum(answer.written[:2]):
                self._lose(lost, answer.reason, answer.message)
        else:
            await self._isolate(request, answer, wave, server)

    async def _isolate(self, request: EncodedWrite, answer: WriteAnswer, wave: Wave, server: RemoteServer) -> None:
        """Sends the parts of a request that was rejected whole, until the bad samples are found."""
        isolation = Isolation(request.entries)
        while group := isolation.next_group():
            (part,) = await server.encoded(group, whole=True)
            newer = await server.post(part)
            if newer is None:
                isolation.accepted()
                self._delivered(part, wave)
                continue
            answer = newer
            if isolation.rejected(group):
                self._give_up(group, answer.reason, answer.message, wave)
        self._give_up(isolation.rest(), answer.reason, answer.message, wave)

    def _delivered(self, request: EncodedWrite, wave: Wave) -> None:
        self._has_delivered = True
        request.delivered()
        _settle(request.entries, wave)

    def _give_up(self, entries: Iterable[Entry], reason: str, message: str, wave: Wave) -> None:
        """Counts the points of these samples, each once, as lost."""
        entries = list(entries)
        numbers = {sample[3] for _, samples in entries for sample in samples if sample[3] >= 0} - self._lost
        self._lost |= numbers
        if numbers:
            self._lose(len(numbers), reason, message)
        _settle(entries, wave)


def _adapt(wave: Wave, server: RemoteServer) -> None:
    """Puts classic buckets in place of the native histograms that the server does not take."""
    if any(series.is_native for series in wave) and not server.takes_every_histogram:
        adapted = dict(with_classic_histograms(list(wave.items()), custom_only=server.takes_native_histograms))
        wave.clear()
        wave.update(adapted)


def _settle(entries: Iterable[Entry], wave: Wave) -> None:
    """Removes the samples from the wave."""
    for series, samples in entries:
        left = wave[series]
        if len(samples) == len(left):
            del wave[series]
        else:
            times = {sample[0] for sample in samples}
            wave[series] = [sample for sample in left if sample[0] not in times]


async def _caught(attempt: Coroutine[Any, Any, None]) -> BaseException | None:
    try:
        await attempt
    except (Retryable, Permanent, OldReceiver, NoNativeHistograms) as error:
        return error
    return None


_SLOW = 500
"""Points whose translation takes more than a few ms. More are translated in a thread."""


class PrometheusRemoteWriteExporter(ConvertingExporter):
    """Writes metrics to Prometheus, Mimir and VictoriaMetrics by remote write, 1.0 and 2.0."""

    Config = PrometheusRemoteWriteConfig
    stability = "beta"
    delivery = "remote"
    signals: frozenset[Signal] = frozenset({"metrics"})
    config: PrometheusRemoteWriteConfig

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the prometheus_remote_write exporter", "cramjam")

    def __init__(self, config: PrometheusRemoteWriteConfig, context: Context, resolve: Resolve = resolve) -> None:
        super().__init__(config, context)
        self._posting = HttpPosting(config.tls, config.auth, self._headers(), context, resolve, "remote_write")
        self._server = RemoteServer(config, context, self._posting)
        self._bounds = settled_bounds(config.settles_to, fixed_bounds, config.conversion, context)
        self._totals = totals_in("cumulative", config.conversion, context)
        self._untranslated: Counter[str] = Counter()
        """Points that the translation has dropped, by reason."""
        self._translation = Translation(
            config.options,
            self._count_untranslated,
            target_info=config.target_info.enabled,
            custom_buckets=config.convert_histograms_to_nhcb,
        )
        self._turn = asyncio.Lock()
        self._writings: WeakKeyDictionary[Batch, Writing] = WeakKeyDictionary()
        """Batches that are delivered in part. A retry sends only the rest of their samples."""
        self._repeated = RepeatedByKey(context.clock.monotonic)

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._posting.close)
        await self._posting.open((self.config.endpoint,), unprotected=self.config.is_unprotected)
        return self

    async def export(self, batch: Batch) -> None:
        await self._posting.renew()
        async with self._turn:
            writing = self._writings.get(batch)
            if writing is None:
                writing = self._writings[batch] = await self._begin(batch)
            await writing.run(self._server, self.config.remote_write_queue.num_consumers)
            del self._writings[batch]

    async def _begin(self, batch: Batch) -> Writing:
        now_ns = self.context.clock.time_ns()

        def translate() -> list[Entry]:
            return self._translation.entries(batch.metrics, now_ns)

        await batch.make_readable()
        with invalid_is_permanent():
            entries = await run_in_thread(translate) if batch.point_count > _SLOW else translate()
        for reason, count in self._untranslated.items():
            self.context.drop(count, reason)
        self._untranslated.clear()
        return Writing(in_waves(entries, self.config.max_batch_size_bytes), self._lose)

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": f"otel-zernel/{__version__}"}
        headers |= {name.lower(): value.get_secret_value() for name, value in self.config.headers.items()}
        headers["content-encoding"] = "snappy"
        headers["accept-encoding"] = "identity"  # answers are short, and read without decoding
        return headers

    def _count_untranslated(self, count: int, reason: str) -> None:
        self._untranslated[reason] += count

    def _lose(self, count: int, reason: str, message: str) -> None:
        self.context.drop(count, reason)
        if lost := self._repeated.add(reason, count):
            self.context.logger.warning(
                "The server rejected samples of %d points as %s%s: %s", count, reason, more(lost), message
            )
