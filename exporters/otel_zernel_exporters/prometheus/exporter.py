"""The prometheus exporter: a page that Prometheus scrapes."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.component.forms import DataForms
from otel_zernel.types import Address
from otel_zernel_exporters.prometheus.config import PrometheusConfig
from otel_zernel_libraries.histograms.temporality import ConvertingExporter, SeriesMemoryConfig, settled_bounds
from otel_zernel_libraries.prometheus import Format, Page, metrics_app
from otel_zernel_libraries.prometheus.asgi import page_answer
from otel_zernel_libraries.serving.api.routes import App, Route
from otel_zernel_libraries.serving.api.server import api_server
from otel_zernel_libraries.serving.serving import serve_guarded

if TYPE_CHECKING:
    from otel_zernel_exporters.prometheus.dcgm import DcgmNaming

PATH = "/json"
_SAMPLE = re.compile(r"([^{ ]+)(?:\{(.*)\})? (\S+)(?: \S+)?")
"""Name, labels, value; a timestamp may follow."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_NOT_FINITE = frozenset({"NaN", "+Inf", "-Inf"})


def with_json(app: App, render: Callable[[], bytes]) -> App:
    """Serves the page that `render` returns at `/json` as JSON, and all other paths by `app`.

    `render` returns Prometheus' text format with classic names. It runs in a thread.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        body = await asyncio.to_thread(lambda: page_json(render().decode()))
        await page_answer(scope, send, 200, body, [(b"content-type", b"application/json")])

    return answer


def page_json(text: str) -> bytes:
    """A page in Prometheus' text format as a JSON object: families by name, with type, help and samples.

    A sample has its own name (`_count`, `_sum` and `_bucket` differ from the family's), its labels and its value. NaN
    and the infinities are strings, because JSON has no such numbers.
    """
    return json.dumps(dict(_families(text)), ensure_ascii=False, separators=(",", ":")).encode()


def _families(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    family: dict[str, Any] = {}
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            name, _, help_ = line.removeprefix("# HELP ").partition(" ")
            family = {"type": "", "help": _unescaped(help_), "samples": []}
            yield name, family
        elif line.startswith("# TYPE "):
            family["type"] = line.rpartition(" ")[2]
        elif match := _SAMPLE.fullmatch(line):
            labels = {name: _unescaped(value) for name, value in _LABEL.findall(match[2] or "")}
            family["samples"].append({"name": match[1], "labels": labels, "value": _number(match[3])})


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def _number(text: str) -> float | str:
    return text if text in _NOT_FINITE else float(text)


class PrometheusExporter(ConvertingExporter):
    """Serves the newest value of every series to Prometheus, at `/metrics`."""

    Config = PrometheusConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    @classmethod
    def forms(cls, config: PrometheusConfig) -> DataForms:
        return DataForms(refuses={"interval_spans": ("*",)})

    def __init__(self, config: PrometheusConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address = config.endpoint
        """The address to listen on. For port 0, the assigned port once the exporter runs. Unused with `api`."""
        options = config.options
        memory = SeriesMemoryConfig(max_series=config.max_series)
        self._bounds = settled_bounds("fixed", lambda name, unit: options.bounds_of(name, unit).values, memory, context)
        self._page = Page(options, context.drop, context.logger.warning)
        self._classic = self._page if options.escapes else Page(options.escaped)
        """For scrapers without UTF-8 names. Only the other page counts losses."""
        self._dcgm = _dcgm_naming(config.dcgm_hostname_label, context) if config.naming == "dcgm" else None
        self._open_metrics = config.enable_open_metrics

    async def __aenter__(self) -> Self:
        app = with_json(metrics_app(self._render, openmetrics=self._open_metrics), lambda: self._render(Format()))
        if self.config.api:
            api = api_server(self.config.api, self.context, f"{self.context.path}::api")
            self._stack.enter_context(api.serve(self.context.path, routes(app)))
            self.context.logger.info("Serving metrics at /metrics of extension %s", self.config.api)
            return self
        server = serve_guarded(app, self.address, self.context, tls=self.config.tls, auth=self.config.auth)
        self.address = await self._stack.enter_async_context(server)
        scheme = "https" if self.config.tls else "http"
        self.context.logger.info("Serving metrics on %s://%s/metrics", scheme, self.address)
        return self

    async def export(self, batch: Batch) -> None:
        """Updates the page in a thread: a large batch must not block the event loop."""
        await asyncio.to_thread(self._update, batch)

    def _update(self, batch: Batch) -> None:
        now, time_ns = self.context.clock.monotonic(), self.context.clock.time_ns()
        metrics = self._dcgm.renamed(batch.metrics) if self._dcgm else batch.metrics
        self._page.update(metrics, now, time_ns)
        if self._classic is not self._page:
            self._classic.update(metrics, now, time_ns)

    def _render(self, format_: Format) -> bytes:
        page = self._page if format_.utf8 else self._classic
        return page.render(format_, self.context.clock.monotonic())


def routes(app: App) -> list[Route]:
    """The page on an API, at the same paths as on a server of its own."""
    return [
        Route("/metrics", app, summary="All series for Prometheus.", content_type="text/plain; version=0.0.4"),
        Route("/json", app, summary="All series as JSON, by family.", answer={"type": "object"}),
    ]


def _dcgm_naming(hostname: str, context: Context) -> "DcgmNaming":
    from otel_zernel_exporters.prometheus.dcgm import DcgmNaming  # large tables, which the other naming does not need

    return DcgmNaming(hostname, context.drop, context.logger.warning)
