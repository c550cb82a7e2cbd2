"""The description of the routes for OpenAPI: JSON Schemas of parameters and answers."""

from collections.abc import Iterable
from typing import Any, Final

from otel_zernel_extensions.query.requests.wanted import FORMATS, FUNCTIONS, ORDERS
from otel_zernel_libraries.serving.api.routes import Parameter

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
_NUMBER: Final[Schema] = {"type": ["number", "string", "null"], "description": "NaN and the infinities are text."}
_COUNT: Final[Schema] = {"type": ["integer", "null"]}

_PARAMETERS: Final[dict[str, tuple[str, Schema]]] = {
    "host_id": ("The host (`host.name`). Repeat it for several.", _TEXTS),
    "gpu_id": ("The GPU: its index on the host, or its UUID. Repeat it for several.", _TEXTS),
    "uuid": ("The UUID of the GPU (`hw.id`). Repeat it for several.", _TEXTS),
    "model": ("The model of the GPU. Repeat it for several.", _TEXTS),
    "job": ("The job. Repeat it for several.", _TEXTS),
    "metric": ("The name of the metric. Repeat it for several.", _TEXTS),
    "label": (
        "Any attribute: `label[k8s.pod.name]=trainer-0`.",
        {"type": "object", "additionalProperties": {"type": "string"}},
    ),
    "start_time": ("The first time: RFC 3339, or seconds since 1970.", _TEXT),
    "end_time": ("The first time after the range.", _TEXT),
    "time_range": (
        "A length of time before end_time, or before now: 1h, 24h, 7d.",
        {"type": "string", "pattern": "^[0-9]{1,6}[smhdw]$"},
    ),
    "page": ("The number of the page, from 1. Deep pages need `cursor`.", {"type": "integer", "minimum": 1}),
    "page_size": ("Points of a page.", {"type": "integer", "minimum": 1, "default": 100}),
    "cursor": ("`next_cursor` of the page before.", _TEXT),
    "sort": ("By time, by time from the newest, or by series and time.", {"type": "string", "enum": [*ORDERS]}),
    "fields": ("The fields of each point, separated by commas: `timestamp,value,labels.hw.id`.", _TEXT),
    "format": ("In place of the header Accept.", {"type": "string", "enum": [*FORMATS]}),
    "group_by": ("Labels, separated by commas: host_id, gpu_id, model, job, or any attribute.", _TEXT),
    "step": ("The length of a window: 5m. Without it, one window for the whole time.", _TEXT),
    "functions": (f"Separated by commas: {', '.join(FUNCTIONS)}, or another p0 to p100.", _TEXT),
}
OTHER_TYPES: Final = ("text/csv", "application/vnd.apache.arrow.stream")


def described(names: Iterable[str]) -> tuple[Parameter, ...]:
    """The parameters of a query with these names."""
    return tuple(
        Parameter(name, "query", *_PARAMETERS[name], style="deepObject" if name == "label" else None) for name in names
    )


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _list_of(item: Schema, **more: Schema) -> Schema:
    described = _object(data={"type": "array", "items": item}, **more)
    return {**described, "required": ["data"]}


_LABELS: Final[Schema] = {"type": "object", "additionalProperties": _MAYBE_TEXT}
POINT: Final = _object(
    timestamp={"type": "string", "format": "date-time"},
    metric=_TEXT,
    value={**_NUMBER, "description": "Null for histograms and summaries."},
    unit=_TEXT,
    type={"type": "string", "enum": ["gauge", "sum", "histogram", "exponential_histogram", "summary"]},
    host_id=_MAYBE_TEXT,
    gpu_id=_MAYBE_TEXT,
    uuid=_MAYBE_TEXT,
    model=_MAYBE_TEXT,
    job=_MAYBE_TEXT,
    labels=_LABELS,
    distribution={"type": ["object", "null"], "description": "Buckets or quantiles of histograms and summaries."},
)
PAGE: Final = _list_of(
    POINT,
    page=_COUNT,
    page_size={"type": "integer"},
    has_more={"type": "boolean"},
    next_cursor=_MAYBE_TEXT,
)
AGGREGATES: Final = _list_of(
    _object(
        group=_LABELS,
        metric=_TEXT,
        unit=_TEXT,
        type=_TEXT,
        start={"type": "string", "format": "date-time"},
        end={"type": "string", "format": "date-time"},
        **{name: _COUNT if name == "count" else _NUMBER for name in FUNCTIONS},
    )
)
HOSTS: Final = _list_of(_object(host_id=_TEXT, gpus={"type": "integer"}, series={"type": "integer"}))
GPUS: Final = _list_of(_object(gpu_id=_MAYBE_TEXT, uuid=_MAYBE_TEXT, model=_MAYBE_TEXT, series={"type": "integer"}))
SUMMARY: Final = _object(
    points={"type": "integer"},
    points_are_estimated={"type": "boolean"},
    series={"type": "integer"},
    metrics={"type": "integer"},
    hosts={"type": "integer"},
    gpus={"type": "integer"},
    oldest={"type": ["string", "null"], "format": "date-time"},
    newest={"type": ["string", "null"], "format": "date-time"},
)
HEALTH: Final = _object(status={"type": "string", "enum": ["ok", "unavailable"]}, reason=_TEXT)
