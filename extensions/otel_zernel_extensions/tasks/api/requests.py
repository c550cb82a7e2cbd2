"""Requests for tasks. What a client sends is bounded and checked before anything else sees it.

Mistakes are sentences for the client. They never have values, which may be secrets.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from otel_zernel.text import visible
from otel_zernel.types import parse_duration
from otel_zernel_extensions.tasks.engines.engine import TaskLimits, TaskSpec
from otel_zernel_extensions.tasks.states.task import STATUSES, Status
from otel_zernel_libraries.serving.api.answers import ApiError, query_of

_MOST: Final = 3
"""Mistakes that are named."""
_LIST: Final = 'write a list of texts, such as ["python3", "train.py"]'
_OBJECT: Final = "write an object in braces"
_ADVICE: Final = {
    "missing": "it is missing",
    "list_type": _LIST,
    "too_short": _LIST,
    "string_type": "write a text in double quotes",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "float_type": "write a number",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
}
"""By pydantic's types of errors."""


def sentence(error: ValidationError, fields: Mapping[str, Mapping[str, Any]]) -> str:
    """The first mistakes, each with its place. `fields` has the fields of each object, by its place."""
    errors = error.errors(include_url=False, include_input=False)
    parts = []
    for error_ in errors[:_MOST]:
        *parents, last = ["", *map(str, error_["loc"])]
        place = visible(".".join([*parents, last]).lstrip("."))[:100] or "the body"
        known = fields.get(".".join(parents).lstrip("."), {})
        parts.append(f"{place}: {_advice(error_['type'], str(error_['msg']), known)}")
    return "; ".join(parts)


def not_json(error: Exception) -> str:
    """Why a body is not JSON, with the place."""
    if isinstance(error, RecursionError):
        return "the body is not valid JSON: it is nested too deeply"
    return f"the body is not valid JSON: {visible(str(error)):.200}"


def _advice(kind: str, message: str, known: Mapping[str, Any]) -> str:
    if kind == "extra_forbidden":
        return f"this field is unknown; use {', '.join(known)}"
    plain = re.sub(r"^(Input|Value|String|List|Dictionary) (should|error,) ?", "", message)
    if message.startswith("Value error,"):
        return plain[:200]
    plain = (
        plain.replace(" after validation", "")
        .replace("greater than or equal to", "at least")
        .replace("less than or equal to", "at most")
    )
    return _ADVICE.get(kind, f"it must {plain}"[:200])


MOST_BYTES: Final = 1 << 18
"""The longest body of a request: 256 KiB."""
_MOST_TEXT: Final = 1 << 17
"""Bytes of the command and the environment together, as the kernel has a limit for one argument (128 KiB)."""
_LONGEST_PAGE: Final = 1000
_MOST_LINES: Final = 100_000
_ID: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SIZE: Final = re.compile(r"(\d{1,15})(|[KMGT]i?)B?")
_UNITS: Final[dict[str, int]] = {"": 1, **{f"{unit}i": 1 << 10 * n for n, unit in enumerate("KMGT", 1)}}
_UNITS_OF_TEN: Final[dict[str, int]] = {unit: 1000**n for n, unit in enumerate("KMGT", 1)}


class RequestedLimits(BaseModel):
    """The limits in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    cpu: float | None = Field(None, gt=0, le=100_000, strict=True)
    memory: int | None = Field(None, ge=1 << 20, lt=1 << 60)
    gpus: int = Field(0, ge=0, le=10_000, strict=True)
    time: float | None = Field(None, gt=0)

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        return _size(value) if isinstance(value, str) else _number(value)

    @field_validator("time", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return _duration(value) if isinstance(value, str) else _number(value)


class RequestedTask(BaseModel):
    """The body of a request for a task."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    id: str | None = None
    name: str = Field("", max_length=200)
    command: list[str] = Field(min_length=1, max_length=10_000)
    env: dict[str, str] = Field(default_factory=dict, max_length=10_000)
    working_dir: str | None = Field(None, max_length=4096)
    limits: RequestedLimits = Field(default_factory=lambda: RequestedLimits.model_validate({}))

    @field_validator("id")
    @classmethod
    def _label(cls, value: str | None) -> str | None:
        if value is not None and not _ID.fullmatch(value):
            raise ValueError("use at most 52 characters: a-z, 0-9 and inner hyphens")
        return value

    @field_validator("name")
    @classmethod
    def _printable(cls, value: str) -> str:
        if visible(value) != value:
            raise ValueError("use printable characters")
        return value

    @field_validator("command")
    @classmethod
    def _arguments(cls, value: list[str]) -> list[str]:
        if not value[0]:
            raise ValueError("the first argument is the program; it must not be empty")
        for argument in value:
            _checked_text(argument)
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{visible(name)[:100]!r} is not the name of a variable")
            _checked_text(text)
        return value

    @field_validator("working_dir")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("write an absolute path")
        return value if value is None else _checked_text(value)


_FIELDS: Final = {"": RequestedTask.model_fields, "limits": RequestedLimits.model_fields}


def spec_of(body: bytes, key: str | None) -> TaskSpec:
    """The task in a request, with the id that the client chose, or that follows from its idempotency key.

    Raises `ApiError`.
    """
    if key is not None and not _KEY.fullmatch(key):
        raise ApiError(400, "Idempotency-Key must have 1 to 255 printable ASCII characters without spaces")
    try:
        model_validate = RequestedTask.model_validate(_json(body))
    except ValidationError as error:
        raise ApiError(400, sentence(error, _FIELDS)) from error
    if model_validate.id and key is not None:
        raise ApiError(400, "send id or Idempotency-Key, not both: each names the task")
    _check_size(model_validate)
    return TaskSpec(
        id=model_validate.id or _id_of(key),
        command=(*model_validate.command,),
        name=model_validate.name,
        env=model_validate.env,
        working_dir=model_validate.working_dir,
        limits=TaskLimits(**model_validate.limits.model_dump()),
    )


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The value of a header. Raises `ApiError` if it stands twice."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise ApiError(400, f"{name.decode()} must stand once")
    return values[0].decode("latin-1") if values else None


class ListRequest:
    """The parameters of a list of tasks. Raises `ApiError`."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        query = query_of(scope)
        self.statuses = _statuses(query.get("status", ""))
        self.before = _whole(query, "after", None, 1, 1 << 62)
        self.limit = _whole(query, "limit", 100, 1, _LONGEST_PAGE) or 100


class LogRequest:
    """The parameters of a request for logs. Raises `ApiError`."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        query = query_of(scope)
        follow = query.get("follow", "false").lower()
        if follow not in ("", "1", "true", "0", "false"):
            raise ApiError(400, "follow must be true or false")
        self.follow = follow in ("", "1", "true")
        self.tail = _whole(query, "tail", None, 0, _MOST_LINES)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, not_json(error)) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _id_of(key: str | None) -> str:
    return f"k{hashlib.sha256(key.encode()).hexdigest()[:40]}" if key is not None else f"t{uuid.uuid4().hex}"


def _check_size(task: RequestedTask) -> None:
    texts = [*task.command, *task.env, *task.env.values()]
    if sum(len(text.encode()) + 1 for text in texts) > _MOST_TEXT:
        raise ApiError(413, f"command and env together are longer than {_MOST_TEXT} bytes")


def _checked_text(text: str) -> str:
    """Raises `ValueError` for text that cannot be an argument of a process."""
    if "\0" in text:
        raise ValueError("a null character cannot be passed to a program")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("an unpaired surrogate is not valid text") from error
    return text


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("write a number")  # pydantic reports it
    return value


def _size(text: str) -> int:
    """The bytes in `512Mi`, `2GiB` or `1G`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError("write bytes, or a size such as 512Mi or 2G")
    return int(match[1]) * {**_UNITS, **_UNITS_OF_TEN}[match[2]]


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError("write seconds, or a duration such as 90s, 10m or 12h") from error


def _statuses(text: str) -> list[Status]:
    wanted = [part for part in text.split(",") if part]
    if unknown := [status for status in wanted if status not in STATUSES]:
        raise ApiError(400, f"{visible(unknown[0])[:50]} is no status; use {', '.join(STATUSES)}")
    return [status for status in STATUSES if status in wanted]


def _whole(query: Mapping[str, str], name: str, default: int | None, least: int, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise ApiError(400, f"{name} must be a whole number from {least} to {most}")
    return int(text)
