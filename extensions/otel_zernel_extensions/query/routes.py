"""The routes of the store."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from otel_zernel_extensions.query import schemas
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.open_store import OpenStore, StoreUnavailable
from otel_zernel_extensions.query.request import QueryAnswer, QueryRequest, answering, in_thread_if_many
from otel_zernel_extensions.query.requests.cursors import written_cursor
from otel_zernel_extensions.query.requests.wanted import WantedAggregates, WantedPage
from otel_zernel_libraries.serving.api.answers import ApiError, json_answer
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.store.queries.aggregation import SeriesGroup, aggregated, grouped
from otel_zernel_libraries.store.queries.contents import contents_of
from otel_zernel_libraries.store.queries.pages import PointSelection, page
from otel_zernel_libraries.store.queries.series import SeriesEntry, SeriesFilter, label_text
from otel_zernel_libraries.store.rows.points import Row, unsigned64

_NS: Final = 10**9
Record = Mapping[str, Any]


def records_of(points: Iterable[tuple[SeriesEntry, Row]], fields: Sequence[str]) -> list[Record]:
    """The fields of points. A field that a point lacks is None. The labels of a series are made once."""
    known: dict[SeriesEntry, Record] = {}
    records: list[Record] = []
    for series, row in points:
        if (common := known.get(series)) is None:
            common = known[series] = {name: _of_series(name, series) for name in fields}
        own = {name: describe(series, row) for name, describe in _OF_POINT.items() if name in common}
        records.append({**common, **own})
    return records


def _of_series(name: str, series: SeriesEntry) -> Any:
    if name in ("metric", "unit", "type"):
        return getattr(series, name)
    if name == "labels":
        return {key: label_text(value) for key, value in {**series.resource, **series.attributes}.items()}
    return None if name in _OF_POINT else series.label(name.removeprefix("labels."))


def _value(series: SeriesEntry, row: Row) -> Any:
    return number(row[2] if row[2] is not None else row[3]) if series.type in ("gauge", "sum") else None


def _distribution(series: SeriesEntry, row: Row) -> Any:
    describe = _DISTRIBUTIONS.get(series.type)
    return describe(row) if describe else None


def time_text(ns: int) -> str:
    """RFC 3339 in UTC, with all nine digits of a second."""
    seconds, rest = divmod(ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:09d}Z"


def number(value: float | int | None) -> float | int | str | None:
    """A number for JSON; NaN and the infinities are text, as in OTLP's JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _histogram(row: Row) -> Record:
    return {**_totals(row), "bounds": _numbers(row[8]), "counts": _counts(row[9])}


def _exponential(row: Row) -> Record:
    return {
        **_totals(row),
        "scale": row[8],
        "zero_count": unsigned64(row[9]),
        "zero_threshold": number(row[10]),
        "positive": {"offset": row[11] or 0, "counts": _counts(row[12])},
        "negative": {"offset": row[13] or 0, "counts": _counts(row[14])},
    }


def _summary(row: Row) -> Record:
    quantiles = [{"quantile": quantile, "value": number(value)} for quantile, value in zip(row[6], row[7], strict=True)]
    return {"count": unsigned64(row[4]), "sum": number(row[5]), "quantiles": quantiles}


def _totals(row: Row) -> Record:
    return {
        "count": unsigned64(row[4]),
        "sum": number(row[5]),
        "min": number(row[6]),
        "max": number(row[7]),
    }


def _numbers(values: Iterable[float]) -> list[Any]:
    return [number(value) for value in values]


def _counts(values: Iterable[int] | None) -> list[int]:
    return [unsigned64(value) for value in values or ()]


_DISTRIBUTIONS: Final = {
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
_OF_POINT: Final = {
    "timestamp": lambda series, row: time_text(row[1]),
    "value": _value,
    "distribution": _distribution,
}
"""The fields that differ between the points of a series."""


def hosts_of(series: Iterable[SeriesEntry]) -> list[Record]:
    """The hosts by name, with their numbers of GPUs and series."""
    hosts: dict[str, list[SeriesEntry]] = {}
    for entry in series:
        if (host := entry.label("host_id")) is not None:
            hosts.setdefault(host, []).append(entry)
    return [
        {"host_id": host, "gpus": len(_by_gpu(members)), "series": len(members)}
        for host, members in sorted(hosts.items())
    ]


def gpus_of(series: Iterable[SeriesEntry], host: str) -> list[Record] | None:
    """The GPUs of a host, by index; None if there is no such host."""
    entries = [entry for entry in series if entry.label("host_id") == host]
    if not entries:
        return None
    return [
        {
            "gpu_id": members[0].label("gpu_id"),
            "uuid": members[0].label("uuid"),
            "model": members[0].label("model"),
            "series": len(members),
        }
        for _, members in sorted(_by_gpu(entries).items())
    ]


def totals_of(series: Iterable[SeriesEntry]) -> Record:
    """The numbers of series, metrics, hosts and GPUs."""
    series = [*series]
    return {
        "series": len(series),
        "metrics": len({entry.metric for entry in series}),
        "hosts": len({host for entry in series if (host := entry.label("host_id")) is not None}),
        "gpus": len(_by_gpu(series)),
    }


def _by_gpu(series: Iterable[SeriesEntry]) -> dict[tuple[str, str], list[SeriesEntry]]:
    """The series of each GPU, by index and UUID."""
    gpus: dict[tuple[str, str], list[SeriesEntry]] = {}
    for entry in series:
        uuid, index = entry.label("uuid"), entry.label("gpu_id")
        if uuid is not None or index is not None:
            host = "" if uuid is not None else entry.label("host_id") or ""
            gpus.setdefault((index or "", uuid or host), []).append(entry)
    return gpus


_API: Final = "/api/v1"
_EMPTY: Final = ("format",)


class QueryRoutes:
    """Answers requests from a store."""

    def __init__(self, config: QueryConfig, store: OpenStore, now_ns: Callable[[], int]) -> None:
        self._config = config
        self._store = store
        self._now = now_ns

    @property
    def routes(self) -> list[Route]:
        """The routes, with their descriptions."""
        return [
            self._route(
                "/telemetry", self._points, "Points, by filters and time.", schemas.PAGE, WantedPage.PARAMETERS
            ),
            self._route(
                "/telemetry/hosts", self._hosts, "The hosts, and their numbers of GPUs.", schemas.HOSTS, _EMPTY
            ),
            self._route("/telemetry/hosts/{host_id}/gpus", self._gpus, "The GPUs of a host.", schemas.GPUS, _EMPTY),
            self._route(
                "/telemetry/aggregations",
                self._aggregates,
                "Averages, extremes, sums, rates and quantiles by labels and time.",
                schemas.AGGREGATES,
                WantedAggregates.PARAMETERS,
            ),
            self._route("/stats/summary", self._summary, "The contents of the store.", schemas.SUMMARY, ()),
            Route("/health", self._health, summary="Whether the store answers.", answer=schemas.HEALTH),
        ]

    def _route(
        self,
        path: str,
        answer: Callable[[QueryRequest], Awaitable[QueryAnswer]],
        summary: str,
        schema: Any,
        parameters: Sequence[str],
    ) -> Route:
        return Route(
            f"{_API}{path}",
            answering(answer, self._store, self._config, frozenset(parameters), self._now),
            summary=summary,
            parameters=schemas.described(parameters),
            answer=schema,
            other_types=schemas.OTHER_TYPES if "format" in parameters else (),
            has_problems=True,
        )

    async def _points(self, request: QueryRequest) -> QueryAnswer:
        wanted = WantedPage.of(request.parameters, self._config, request.now_ns)
        catalogue = self._store.catalogue
        selection = PointSelection(await catalogue.selected(wanted.series), wanted.start_ns, wanted.end_ns)
        rows = await page(
            self._store.reader, selection, wanted.order, wanted.size + 1, after=wanted.after, offset=wanted.offset
        )
        has_more, rows = len(rows) > wanted.size, rows[: wanted.size]
        if any(catalogue.get(row[0]) is None for row in rows):  # a batch has arrived since the catalogue was read
            await self._store.state()
        known = [(entry, row) for row in rows if (entry := catalogue.get(row[0]))]
        records = await in_thread_if_many(known, lambda: records_of(known, wanted.fields))
        cursor = written_cursor((rows[-1][0], rows[-1][1]), wanted.mark) if has_more else None
        more = {"page": wanted.number, "page_size": wanted.size, "has_more": has_more, "next_cursor": cursor}
        link = _link(request, cursor) if cursor else []
        return QueryAnswer(records, wanted.fields, more, headers=link, end_ns=wanted.end_ns)

    async def _aggregates(self, request: QueryRequest) -> QueryAnswer:
        wanted = WantedAggregates.of(request.parameters, request.now_ns)
        series = (await self._store.catalogue.selected(wanted.series)).series
        groups = await in_thread_if_many(series, lambda: grouped(series, wanted.labels))
        windows, most = wanted.windows, self._config.max_windows
        if len(groups) * windows.many > most:
            raise ApiError(
                422,
                f"{len(groups)} groups in {windows.many} windows are more than {most} results; "
                "use a longer step, a shorter time, or a filter such as metric",
            )
        cells = await aggregated(self._store.reader, groups, windows, wanted.quantiles, self._config.max_histograms)
        records = []
        for cell in cells:
            begin, end = windows.span(cell.window)
            seconds = (end - begin) / 1e9
            results = {name: number(cell.cell.result(cell.group.kind, name, seconds)) for name in wanted.functions}
            records.append({**_described(cell.group, wanted.labels, begin, end), **results})
        names = ("group", "metric", "unit", "type", "start", "end", *wanted.functions)
        return QueryAnswer(records, names, end_ns=windows.end_ns)

    async def _hosts(self, request: QueryRequest) -> QueryAnswer:
        series = await self._all_series()
        return QueryAnswer(await in_thread_if_many(series, lambda: hosts_of(series)), ("host_id", "gpus", "series"))

    async def _gpus(self, request: QueryRequest) -> QueryAnswer:
        host, series = request.path_parameters["host_id"], await self._all_series()
        records = await in_thread_if_many(series, lambda: gpus_of(series, host))
        if records is None:
            raise ApiError(404, f"the store has no host {host:.100}; {_API}/telemetry/hosts lists them")
        return QueryAnswer(records, ("gpu_id", "uuid", "model", "series"))

    async def _summary(self, request: QueryRequest) -> QueryAnswer:
        contents, series = await contents_of(self._store.reader), await self._all_series()
        return QueryAnswer.of_object(
            {
                "points": contents.points,
                "points_are_estimated": contents.is_estimate,
                **await in_thread_if_many(series, lambda: totals_of(series)),
                "oldest": None if contents.oldest_ns is None else time_text(contents.oldest_ns),
                "newest": None if contents.newest_ns is None else time_text(contents.newest_ns),
            }
        )

    async def _all_series(self) -> Sequence[SeriesEntry]:
        return (await self._store.catalogue.selected(SeriesFilter())).series

    async def _health(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._store.state()
        except StoreUnavailable as error:
            await json_answer(send, {"status": "unavailable", "reason": str(error)}, 503)
        else:
            await json_answer(send, {"status": "ok"})


def _described(group: SeriesGroup, labels: Sequence[str], begin: int, end: int) -> dict[str, Any]:
    names = {"counter": "sum", "delta": "sum", "value": "gauge"}
    return {
        "group": dict(zip(labels, group.labels, strict=True)),
        "metric": group.metric,
        "unit": group.unit,
        "type": names.get(group.kind, group.kind),
        "start": time_text(begin),
        "end": time_text(end),
    }


def _link(request: QueryRequest, cursor: str) -> list[tuple[bytes, bytes]]:
    """The header `Link` to the next page."""
    kept = [part for part in request.query.split("&") if part and part.partition("=")[0] not in ("page", "cursor")]
    query = "&".join([*kept, f"cursor={quote(cursor)}"])
    return [(b"link", f'<{request.path}?{query}>; rel="next"'.encode("latin-1", "replace"))]
