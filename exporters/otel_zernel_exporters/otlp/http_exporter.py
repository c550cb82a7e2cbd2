"""The exporter for OTLP over HTTP, in protobuf or JSON."""

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Self
from urllib.parse import urlsplit

from otel_zernel import __version__
from otel_zernel.batch import ALL_SIGNALS, SIGNALS, Batch, Signal
from otel_zernel.component import Context
from otel_zernel_exporters.otlp.answers import CONTENT_TYPES, HttpAnswer
from otel_zernel_exporters.otlp.classic import ClassicHistograms
from otel_zernel_exporters.otlp.config import URL_PATHS, OtlpHttpConfig
from otel_zernel_exporters.otlp.signals import METRICS, OtlpSignal, count_partial_success, signals_of
from otel_zernel_exporters.otlp.time_lines import TimeLines
from otel_zernel_exporters.otlp.unwanted import UnwantedSignals
from otel_zernel_libraries import zstd
from otel_zernel_libraries.clients.addresses import Resolve, resolve
from otel_zernel_libraries.clients.posting import HttpPosting
from otel_zernel_libraries.clients.proxies import http_proxy
from otel_zernel_libraries.histograms.temporality import ConvertingExporter, settled_bounds, totals_in
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

_MIB = 1 << 20
_NO_SUCH_PATH = frozenset({404, 405, 501})
_IN_ORDER = (
    "The server wants the points of a resource in the order of time. Late points are sent with its service attributes "
    "only; nothing is lost. To keep the other attributes, set out_of_order_time_window in the server"
)

# The fastest levels: on OTLP, gzip's default takes 2.6 times as long as its level 1 and saves another 9 %.
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1, mtime=0),
    "zstd": lambda body: zstd.compress(body, 1),
    "deflate": lambda body: zlib.compress(body, 1),
    "none": lambda body: body,
}


def _only_endpoints_of(left: Sequence[Signal]) -> str:
    """The advice for a server that takes only these signals of those that share `endpoint`."""
    return f"set {' and '.join(f'{signal}_endpoint' for signal in left)} in place of endpoint"


class OtlpHttpExporter(ConvertingExporter):
    """Sends OTLP over HTTP, in protobuf or JSON: one request for each signal of a batch."""

    Config = OtlpHttpConfig
    stability = "beta"
    signals = ALL_SIGNALS
    delivery = "remote"
    in_order = True
    config: OtlpHttpConfig

    @classmethod
    def advice(cls, config: OtlpHttpConfig) -> Iterator[tuple[str, str]]:
        path = urlsplit(config.endpoint).path.rstrip("/")
        for signal, appended in URL_PATHS.items():
            if path.endswith(appended):
                doubled = f"{appended} is appended to it once more"
                yield "endpoint", f"{doubled}; remove it from the URL, or set {signal}_endpoint in place of endpoint"

    def __init__(self, config: OtlpHttpConfig, context: Context, resolve: Resolve = resolve) -> None:
        super().__init__(config, context)
        self._bounds = settled_bounds(config.moving_bounds, fixed_bounds, config.conversion, context)
        self._totals = totals_in(config.temporality, config.conversion, context)
        self.signals = frozenset(signal for signal in SIGNALS if config.url(signal))
        shared = filter(config.shares_endpoint, SIGNALS)
        self._unwanted = UnwantedSignals(context, shared, _only_endpoints_of)
        self._lines = TimeLines()
        self._takes_native_histograms = True
        """As far as it is known."""
        self._classic = ClassicHistograms(config.conversion.max_series)
        self._posting = HttpPosting(config.tls, config.auth, self._headers(), context, resolve)

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._posting.close)
        urls = {self.config.url(signal) for signal in self.signals}
        await self._posting.open(urls, unprotected=self.config.is_unprotected)
        return self

    async def export(self, batch: Batch) -> None:
        await self._posting.renew()
        for signal in signals_of(batch):
            await self._send(signal, batch)

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": f"otel-zernel/{__version__}"}
        headers |= {name.lower(): value.get_secret_value() for name, value in self.config.headers.items()}
        headers["content-type"] = CONTENT_TYPES[self.config.encoding]
        headers["accept-encoding"] = "identity"  # responses are short, and read without decoding
        if self.config.compression != "none":
            headers["content-encoding"] = self.config.compression
        return headers

    async def _send(self, signal: OtlpSignal, batch: Batch) -> None:
        self._unwanted.check(signal, batch)
        url = self.config.url(signal.name)
        answer = await self._post_metrics(url, batch) if signal is METRICS else await self._post(url, signal, batch)
        if not answer.is_success:
            permanent, now_ns = self.config.retry_on_failure.permanent_codes, self.context.clock.time_ns()
            failure = answer.failure(url, now_ns, permanent, self._posting.advice, http_proxy(url))
            if answer.status in _NO_SUCH_PATH:
                failure = await self._unwanted.judged(signal, failure, self._takes)
            raise failure
        if error := answer.no_otlp(url, http_proxy(url)):
            raise error
        self._unwanted.accepted(signal)
        if response := answer.response(signal, self.context):
            count_partial_success(response, signal, batch, self.context)

    async def _takes(self, signal: OtlpSignal) -> bool:
        """Whether the server takes an empty request of a signal."""
        url = self.config.url(signal.name)
        answer = await self._post(url, signal, Batch())
        return answer.is_success and not answer.no_otlp(url, None)

    async def _post(self, url: str, signal: OtlpSignal, batch: Batch) -> HttpAnswer:
        return await self._posting.post(url, await self._body(signal, batch), HttpAnswer.receive)

    async def _post_metrics(self, url: str, batch: Batch) -> HttpAnswer:
        """Sends metrics. If the server takes no native histograms, sends them with fixed bounds from then on."""
        if self._takes_native_histograms:
            answer = await self._post_in_order(url, batch)
            if not answer.refuses_native_histograms or (classic := await self._classic.converted(batch)) is batch:
                return answer
            self._use_fixed_bounds()
        else:
            classic = await self._classic.converted(batch)
        return await self._post_in_order(url, classic)

    def _use_fixed_bounds(self) -> None:
        if self._takes_native_histograms:
            self._takes_native_histograms = False
            if self._bounds is not None:  # not if they stay as they are
                self._bounds = settled_bounds("fixed", fixed_bounds, self.config.conversion, self.context)
            self.context.logger.warning(
                "The server accepts no native histograms, so exponential histograms are sent with fixed bounds; "
                "start Prometheus with --enable-feature=native-histograms, or set moving_bounds: fixed"
            )

    async def _post_in_order(self, url: str, batch: Batch) -> HttpAnswer:
        """Sends metrics. If the server refuses points that are older than others of their resource, sends them bare."""
        arranged, newest = await self._lines.arranged(batch) if self._lines.needed else (batch, {})
        answer = await self._post(url, METRICS, arranged)
        if answer.refuses_late and answer.has_stored_nothing:
            wants_order = answer.wants_order
            arranged, newest = await self._lines.bare(batch)
            if newest:
                answer = await self._post(url, METRICS, arranged)
            if answer.is_success and wants_order and not self._lines.needed:
                self._lines.needed = True
                self.context.logger.info(_IN_ORDER)
        if answer.is_success:
            self._lines.sent(newest)
        return answer

    async def _body(self, signal: OtlpSignal, batch: Batch) -> bytes:
        slow = self.config.encoding == "json" or len(batch.bytes_of(signal.name)) > _MIB
        return await asyncio.to_thread(self._encode, signal, batch) if slow else self._encode(signal, batch)

    def _encode(self, signal: OtlpSignal, batch: Batch) -> bytes:
        encoded = signal.encode_json(batch) if self.config.encoding == "json" else batch.bytes_of(signal.name)
        return _COMPRESS[self.config.compression](encoded)
