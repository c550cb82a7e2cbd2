"""One request: from its parameters to an answer in the wanted format, or to a problem.

Records are JSON, CSV (RFC 4180) or an Arrow stream. An answer has a validator, a life in caches, and a compression.
"""

import asyncio
import csv
import gzip
import hashlib
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar

from otel_zernel.errors import Permanent, Retryable
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.open_store import OpenStore, StoreUnavailable
from otel_zernel_extensions.query.requests.parameters import ParameterError, Parameters
from otel_zernel_extensions.query.requests.wanted import wanted_format
from otel_zernel_libraries import zstd
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.api.answers import ApiError, json_bytes, plain_answer
from otel_zernel_libraries.serving.api.routes import App
from otel_zernel_libraries.store.queries.catalogue import TooManySeries
from otel_zernel_libraries.store.queries.distributions import TooManyPoints
from otel_zernel_libraries.store.rows.points import LATEST_TIME

_SMALL: Final = 1024
"""Bytes below which compression gains nothing."""
_LARGE: Final = 1 << 17
"""Bytes above which compression takes milliseconds, so that it runs in a thread."""
_DAY_NS: Final = 86_400 * 10**9
_SETTLED_NS: Final = 3600 * 10**9


@dataclass(slots=True, frozen=True)
class AnswerConditions:
    """The conditions of one request."""

    tag: str
    """The validator: it changes with every batch that the store takes."""
    encoding: str
    """`zstd`, `gzip` or empty."""
    cache: str
    """Cache-Control."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"etag", self.tag.encode()),
            (b"cache-control", self.cache.encode()),
            (b"vary", b"accept, accept-encoding, authorization"),
        ]

    def is_known(self, header: str) -> bool:
        """Whether `If-None-Match` has the validator."""
        tags = [part.strip() for part in header.split(",")]
        return self.tag in tags or "*" in tags

    async def not_modified(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": self.headers})
        await send({"type": "http.response.body", "body": b""})

    async def answer(self, send: Any, body: bytes, content_type: str, more: list[tuple[bytes, bytes]]) -> None:
        headers = [*self.headers, *more]
        if self.encoding and len(body) > _SMALL:
            headers.append((b"content-encoding", self.encoding.encode()))
            body = await self._compressed(body)
        await plain_answer(send, body, content_type, 200, headers)

    async def _compressed(self, body: bytes) -> bytes:
        compress = zstd.compress if self.encoding == "zstd" else _gzip
        return await run_in_thread(lambda: compress(body)) if len(body) > _LARGE else compress(body)


def delivery_of(
    scope: Any, accepted: str, accepted_encodings: str, version: str, end_ns: int, now_ns: int
) -> AnswerConditions:
    """The conditions of a request. `version` changes with each batch in the store."""
    encoding = chosen_encoding(accepted_encodings)
    text = f"{version} {scope['path']} {scope['query_string'].decode('latin-1')} {accepted} {encoding}"
    tag = f'"{hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]}"'
    return AnswerConditions(tag, encoding, cache_control(end_ns, now_ns))


def cache_control(end_ns: int, now_ns: int) -> str:
    """How long a cache may keep an answer without asking. Points may arrive late, so that only old times settle."""
    age = now_ns - end_ns
    if age < _SETTLED_NS:
        return "private, no-cache"
    return f"private, max-age={3600 if age >= _DAY_NS else 60}"


def chosen_encoding(header: str) -> str:
    """The best encoding that `Accept-Encoding` allows."""
    allowed = {}
    for part in header.lower().split(",")[:50]:
        name, _, quality = part.strip().partition(";")
        allowed[name.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return next((coding for coding in ("zstd", "gzip") if allowed.get(coding)), "")


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 5, mtime=0)


Record = Mapping[str, Any]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """A line of names and a line for each record. Maps and lists are JSON. A missing value is empty.

    A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([[_cell(record.get(name)) for name in names] for record in records])
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) and value != "-Infinity" else value
    return _json(value) if isinstance(value, dict | list) else value


def arrow_bytes(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """An Arrow IPC stream: times in ns, counts as integers, other numbers as doubles, maps and lists as JSON.

    Raises `ImportError` without pyarrow.
    """
    import pyarrow as pa
    from pyarrow import ipc

    columns = {name: _column(pa, name, [record.get(name) for record in records]) for name in names}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    to_pybytes: bytes = sink.getvalue().to_pybytes()
    return to_pybytes


_COUNTS = ("count", "gpus", "series")
_MOST = 2**64 - 1
_TIMES = ("timestamp", "start", "end")
_NUMBERS = ("value", "avg", "min", "max", "sum", "rate")


def _column(pa: Any, name: str, values: Sequence[Any]) -> Any:
    if name in _TIMES:
        return pa.array(values, pa.string()).cast(pa.timestamp("ns", "UTC"))
    if name in _COUNTS:
        return pa.array([None if value is None else min(value, _MOST) for value in values], pa.uint64())
    if name in _NUMBERS or (name[:1] == "p" and name[1:].isdecimal()):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([_json(value) if isinstance(value, dict | list) else value for value in values], pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PROBLEM = "application/problem+json"


async def problem_answer(send: Any, error: ApiError) -> None:
    """Answers with the status and the sentence of an error, and the parameter that caused it."""
    value: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": str(error),
    }
    if isinstance(error, ParameterError):
        value["parameter"] = error.name
    await plain_answer(send, json_bytes(value), PROBLEM, error.status, error.headers)


T = TypeVar("T")
_SOON: Final = ((b"retry-after", b"1"),)
_MANY: Final = 200
"""Records above which encoding takes milliseconds, so that it runs in a thread."""
_TYPES: Final = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}


@dataclass(slots=True, frozen=True)
class QueryRequest:
    """A request with its parameters."""

    parameters: Parameters
    path: str
    query: str
    path_parameters: Mapping[str, str]
    now_ns: int


@dataclass(slots=True, frozen=True)
class QueryAnswer:
    """Records, or one object."""

    records: Sequence[Mapping[str, Any]]
    names: Sequence[str]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the JSON object."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    end_ns: int = LATEST_TIME + 1
    """The end of the time that the answer is about."""
    value: Mapping[str, Any] | None = None

    @classmethod
    def of_object(cls, value: Mapping[str, Any]) -> Self:
        return cls((), (), value=value)

    def encoded(self, kind: str) -> bytes:
        if kind == "csv":
            return csv_bytes(self.records, self.names)
        if kind == "arrow":
            try:
                return arrow_bytes(self.records, self.names)
            except ImportError as error:
                raise ApiError(406, "this server has no pyarrow for Arrow; use json or csv") from error
        return json_bytes(self.value if self.value is not None else {"data": self.records, **self.more})


def answering(
    answer: Callable[[QueryRequest], Awaitable[QueryAnswer]],
    store: OpenStore,
    config: QueryConfig,
    names: frozenset[str],
    now_ns: Callable[[], int],
) -> App:
    """The ASGI application of a route. `names` are its parameters."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        try:
            async with asyncio.timeout(config.timeout):
                await _answer(answer, store, names, now_ns(), scope, send)
        except ApiError as error:
            await problem_answer(send, error)
        except TimeoutError:
            sentence = f"the query took longer than {config.timeout:g} s; ask for a shorter time or fewer series"
            await problem_answer(send, ApiError(503, sentence))
        except (TooManySeries, TooManyPoints) as error:
            await problem_answer(send, ApiError(422, str(error)))
        except Permanent as error:
            await problem_answer(send, ApiError(422, f"the database cannot answer this: {error}"))
        except (StoreUnavailable, Retryable) as error:
            await problem_answer(send, ApiError(503, f"the store does not answer: {error}", _SOON))

    return answered


async def _answer(
    answer: Callable[[QueryRequest], Awaitable[QueryAnswer]],
    store: OpenStore,
    names: frozenset[str],
    now_ns: int,
    scope: Any,
    send: Any,
) -> None:
    headers = joined_headers(scope["headers"])
    accepted, encodings = headers.get("accept", ""), headers.get("accept-encoding", "")
    parameters = Parameters(scope, names)
    kind = wanted_format(parameters, accepted) if "format" in names else "json"
    if kind is None:
        raise ApiError(406, "no accepted media type is served here; accept application/json, text/csv or Arrow")
    version = str(await store.state())
    if "end_time" not in parameters and ("time_range" in parameters or "step" in names):  # the range moves with now
        version += f" {now_ns}"
    unsettled = delivery_of(scope, accepted, encodings, version, LATEST_TIME, now_ns)
    request = QueryRequest(
        parameters, scope["path"], scope["query_string"].decode("latin-1"), scope["path_params"], now_ns
    )
    if "if-none-match" in headers and unsettled.is_known(headers["if-none-match"]):
        await unsettled.not_modified(send)
        return
    answered = await answer(request)
    body = await in_thread_if_many(answered.records, lambda: answered.encoded(kind))
    delivery = delivery_of(scope, accepted, encodings, version, answered.end_ns, now_ns)
    await delivery.answer(send, body, _TYPES[kind], [*answered.headers])


async def in_thread_if_many(records: Sequence[object], work: Callable[[], T]) -> T:
    """The result of work on records, without holding the event loop for long."""
    return await run_in_thread(work) if len(records) > _MANY else work()
