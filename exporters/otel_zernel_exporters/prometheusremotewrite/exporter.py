"""The prometheus_remote_write exporter: one batch after another, so that each series stays in order."""

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from otel_zernel import __version__
from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import invalid_is_permanent
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_exporters.prometheusremotewrite.config import PrometheusRemoteWriteConfig
from otel_zernel_exporters.prometheusremotewrite.protocol import Entry, Translation, in_waves
from otel_zernel_exporters.prometheusremotewrite.server import RemoteServer
from otel_zernel_exporters.prometheusremotewrite.writing import Writing
from otel_zernel_libraries.clients.addresses import Resolve, resolve
from otel_zernel_libraries.clients.posting import HttpPosting
from otel_zernel_libraries.histograms.temporality import ToCumulative, settled_bounds
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

_SLOW = 500
"""Points whose translation takes more than a few ms. More are translated in a thread."""


class PrometheusRemoteWriteExporter(Exporter):
    """Writes metrics to Prometheus, Mimir and VictoriaMetrics by remote write, 1.0 and 2.0."""

    Config = PrometheusRemoteWriteConfig
    stability = "beta"
    delivery = "remote"
    signals: frozenset[Signal] = frozenset({"metrics"})
    config: PrometheusRemoteWriteConfig

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("cramjam"):
            return None
        return "the prometheus_remote_write exporter needs cramjam: pip install 'otel-zernel[remote_write]'"

    def __init__(self, config: PrometheusRemoteWriteConfig, context: Context, resolve: Resolve = resolve) -> None:
        super().__init__(config, context)
        self._posting = HttpPosting(config.tls, config.auth, self._headers(), context, resolve, "remote_write")
        self._server = RemoteServer(config, context, self._posting)
        self._bounds = settled_bounds(config.settles_to, fixed_bounds, config.conversion, context)
        self._totals = _totals(config, context)
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
        await self._posting.open((self.config.endpoint,), unprotected=self.config.is_unprotected)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._posting.close()

    def prepares(self, batch: Batch) -> bool:
        return self._totals.concerns(batch) or (self._bounds is not None and self._bounds.concerns(batch))

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        if self._bounds is not None and self._bounds.concerns(batch):
            batch = self._bounds.convert(batch, self.context.drop)
        return (self._totals.convert(batch, self.context.drop) if self._totals.concerns(batch) else batch,)

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


def _totals(config: PrometheusRemoteWriteConfig, context: Context) -> ToCumulative:
    """The totals of deltas; those of the former instance after a reload."""
    kept = context.kept.get("totals")
    totals = kept if isinstance(kept, ToCumulative) else ToCumulative(config.conversion, context.clock)
    totals.limit(config.conversion)
    context.kept["totals"] = totals
    return totals
