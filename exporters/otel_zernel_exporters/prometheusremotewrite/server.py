"""The server: which protocol it has, and one request to it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, ZernelError
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_exporters.prometheusremotewrite.answers import WriteAnswer
from otel_zernel_exporters.prometheusremotewrite.config import PrometheusRemoteWriteConfig
from otel_zernel_exporters.prometheusremotewrite.protocol import EncodedWrite, Encoding, Entry, Version1, Version2
from otel_zernel_libraries.clients.posting import HttpPosting

_OLD_MESSAGE = "prometheus.WriteRequest"
_SLOW = 500
"""Entries whose encoding takes more than a ms. More are encoded in a thread."""


class OldReceiver(ZernelError):
    """The server does not have protocol 2.0. The next attempt uses 1.0."""


class NoNativeHistograms(ZernelError):
    """The server takes no native histograms. The next attempt has classic buckets."""


class RemoteServer:
    """Sends requests in the newest protocol that the server has."""

    def __init__(self, config: PrometheusRemoteWriteConfig, context: Context, posting: HttpPosting) -> None:
        self._config = config
        self._context = context
        self._posting = posting
        self._send_metadata = config.send_metadata
        self._encoding: Encoding = (
            Version1(send_metadata=config.send_metadata) if config.protobuf_message == _OLD_MESSAGE else Version2()
        )
        self._has_reported = False
        """Whether the server has answered with the numbers of written samples."""
        self._encoding_turn = asyncio.Lock()
        """Requests are divided and encoded one after another: they share a table of symbols."""
        self.takes_native_histograms = config.native_histograms
        """Whether the server takes native histograms, as far as it is known."""

    @property
    def takes_every_histogram(self) -> bool:
        """Whether no histogram needs another form."""
        return self.takes_native_histograms and self._encoding.reports_written

    async def encoded(self, entries: Sequence[Entry], *, whole: bool = False) -> list[EncodedWrite]:
        """The requests of these entries, of `max_batch_size_bytes` each. If `whole`, they are one request."""
        limit = 1 << 62 if whole else self._config.max_batch_size_bytes
        async with self._encoding_turn:
            encoding = self._encoding
            if len(entries) <= _SLOW:
                return list(encoding.requests(entries, limit))
            return await run_in_thread(lambda: list(encoding.requests(entries, limit)))

    async def post(self, request: EncodedWrite) -> WriteAnswer | None:
        """Sends a request. Returns None if the server has taken all samples, else the answer that rejects some.

        Raises `Retryable`, `Permanent`, `OldReceiver` or `NoNativeHistograms`.
        """
        import cramjam  # an optional package

        url, encoding = self._config.endpoint, request.encoding
        body = bytes(cramjam.snappy.compress_raw(request.body))
        answer = await self._posting.post(url, body, WriteAnswer.receive, encoding.headers)
        if answer.is_of_another_server:
            raise self._failure(answer)
        if answer.is_victoria_metrics and self.takes_native_histograms:
            self.takes_native_histograms = False
            self._context.logger.info(
                "VictoriaMetrics has no native histograms, so exponential histograms are written in classic buckets"
            )
            if request.sample_counts[1]:  # ignored, or stored with the label vmrange, which no dashboard has
                raise NoNativeHistograms
        if encoding.reports_written and self._is_old(answer):
            self._use_old_protocol(encoding)
            raise OldReceiver
        if answer.refuses_native_histograms and self.takes_native_histograms:
            self._use_classic_histograms()
            raise NoNativeHistograms
        if answer.is_success:
            samples, histograms, _ = request.sample_counts if answer.written else (0, 0, 0)
            has_all = not answer.written or sum(answer.written[:2]) >= samples + histograms
            return None if has_all else answer
        if answer.rejects_samples:
            return answer if encoding.reports_written else replace(answer, headers={})  # 1.0 reports nothing
        raise self._failure(answer)

    def _is_old(self, answer: WriteAnswer) -> bool:
        """Whether the server has not understood a request of 2.0. Older servers answer 400, or success."""
        if answer.written is not None:
            self._has_reported = True
            return False
        return answer.status == 415 or answer.is_success or (answer.status == 400 and not self._has_reported)

    def _failure(self, answer: WriteAnswer) -> ZernelError:
        permanent, now_ns = self._config.retry_on_failure.permanent_codes, self._context.clock.time_ns()
        failure = answer.failure(self._config.endpoint, now_ns, permanent, self._posting.advice)
        if answer.status != 415 or isinstance(failure, Permanent):
            return failure
        if self._config.protobuf_message == _OLD_MESSAGE:
            return Correctable(
                f"{failure}; the server does not accept remote write 1.0: remove protobuf_message", "415"
            )
        self._encoding = Version2()
        return Correctable(f"{failure}; the server accepts neither remote write 2.0 nor 1.0", "415")

    def _use_old_protocol(self, former: Encoding) -> None:
        if self._encoding is former:
            self._encoding = Version1(send_metadata=self._send_metadata)
            self._context.logger.info("The server does not have remote write 2.0: using 1.0 from now on")

    def _use_classic_histograms(self) -> None:
        self.takes_native_histograms = False
        self._context.logger.warning(
            "The server accepts no native histograms, so exponential histograms are written in classic buckets; "
            "start Prometheus with --enable-feature=native-histograms, or set native_histograms: false"
        )
