"""Spans of OTLP as rows of the table `spans`."""

import json
from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from otel_zernel_libraries.store.rows.attributes import json_attributes, json_text, plain_attributes
from otel_zernel_libraries.store.rows.batch_rows import BatchRows
from otel_zernel_libraries.store.rows.integers import LATEST_TIME, signed64
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.series_cache import SeriesCache
from otel_zernel_libraries.store.rows.stored import StoredResource, StoredScope


def add_spans(batch: BatchRows, traces: TracesData, cache: SeriesCache) -> None:
    """Adds the rows of all spans. A resource and a scope stand in the place of their ids."""
    for resource_spans in traces.resource_spans:
        resource = cache.resource(resource_spans.resource, resource_spans.schema_url)
        for scope_spans in resource_spans.scope_spans:
            scope = cache.scope(scope_spans.scope, scope_spans.schema_url)
            for span in scope_spans.spans:
                if span.start_time_unix_nano > LATEST_TIME:
                    batch.dropped["time_out_of_range"] += 1
                else:
                    batch.rows_of("spans").append(_row(span, resource, scope))


def _row(span: Span, resource: StoredResource, scope: StoredScope) -> Row:
    return (
        span.trace_id,
        span.start_time_unix_nano,
        span.span_id,
        signed64(span.end_time_unix_nano),
        span.parent_span_id or None,
        resource,
        scope,
        json_text(span.name),
        span.kind,
        span.status.code,
        json_text(span.status.message),
        json_attributes(span.attributes),
        _json(_event(event) for event in span.events),
        _json(_link(link) for link in span.links),
        span.SerializeToString(),
    )


def _event(event: Span.Event) -> dict[str, Any]:
    attributes = plain_attributes(event.attributes)
    return {"time": event.time_unix_nano, "name": json_text(event.name), "attributes": attributes}


def _link(link: Span.Link) -> dict[str, Any]:
    attributes = plain_attributes(link.attributes)
    return {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attributes": attributes}


def _json(items: Iterable[dict[str, Any]]) -> str:
    return json.dumps(list(items), ensure_ascii=False, separators=(",", ":"))
