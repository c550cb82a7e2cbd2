"""One request: from its parameters to an answer in the wanted format, or to a problem."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar

from otel_zernel.errors import Permanent, Retryable
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.query.answers.delivery import delivery_of
from otel_zernel_extensions.query.answers.tables import arrow_bytes, csv_bytes
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.open_store import OpenStore, StoreUnavailable
from otel_zernel_extensions.query.requests.parameters import ParameterError, Parameters
from otel_zernel_extensions.query.requests.wanted import wanted_format
from otel_zernel_libraries.serving.access import joined_headers
from otel_zernel_libraries.serving.api.answers import ApiError, json_bytes, plain_answer
from otel_zernel_libraries.serving.api.routes import App
from otel_zernel_libraries.store.queries.catalogue import TooManySeries
from otel_zernel_libraries.store.queries.distributions import TooManyPoints
from otel_zernel_libraries.store.rows.points import LATEST_TIME

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
    found = await answer(request)
    body = await in_thread_if_many(found.records, lambda: found.encoded(kind))
    delivery = delivery_of(scope, accepted, encodings, version, found.end_ns, now_ns)
    await delivery.answer(send, body, _TYPES[kind], [*found.headers])


async def in_thread_if_many(records: Sequence[object], work: Callable[[], T]) -> T:
    """The result of work on records, without holding the event loop for long."""
    return await run_in_thread(work) if len(records) > _MANY else work()
