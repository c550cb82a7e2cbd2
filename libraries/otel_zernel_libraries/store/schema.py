"""The tables of the store, in the words of both databases.

Resources, scopes and series never get the id of a deleted row: writers keep ids in memory.
"""

from collections.abc import Mapping
from typing import Final

_V1: Final = """
CREATE TABLE {schema}resources (
    id {id},
    fingerprint {bytes} NOT NULL UNIQUE,
    attributes {json} NOT NULL, -- for queries
    schema_url text NOT NULL,
    encoded {bytes} NOT NULL -- the exact ResourceMetrics of OTLP, without metrics
){strict};
CREATE TABLE {schema}scopes (
    id {id},
    fingerprint {bytes} NOT NULL UNIQUE,
    name text NOT NULL,
    version text NOT NULL,
    attributes {json} NOT NULL,
    schema_url text NOT NULL,
    encoded {bytes} NOT NULL
){strict};
CREATE TABLE {schema}series (
    id {id},
    fingerprint {bytes} NOT NULL UNIQUE,
    resource_id {int} NOT NULL REFERENCES {schema}resources (id),
    scope_id {int} NOT NULL REFERENCES {schema}scopes (id),
    metric text NOT NULL,
    description text NOT NULL,
    unit text NOT NULL,
    type text NOT NULL, -- gauge, sum, histogram, exponential_histogram or summary
    temporality {int32}, -- OTLP: 1 is delta, 2 is cumulative
    monotonic {bool},
    attributes {json} NOT NULL,
    encoded {bytes} NOT NULL
){strict};
CREATE INDEX series_metric ON {schema}series (metric, resource_id);
CREATE INDEX series_resource ON {schema}series (resource_id);
CREATE TABLE {schema}points (
    series_id {int} NOT NULL,
    time {int} NOT NULL, -- ns since 1970, as start
    value_double {double},
    value_int {int},
    start {int},
    flags {int32},{exotic}
    PRIMARY KEY (series_id, time){covering}
){by_time};
CREATE TABLE {schema}histograms (
    series_id {int} NOT NULL,
    time {int} NOT NULL,
    start {int},
    flags {int32},
    count {int} NOT NULL,
    sum {double},
    min {double},
    max {double},
    bounds {doubles} NOT NULL,
    counts {ints} NOT NULL,{exotic}
    PRIMARY KEY (series_id, time)
){by_time};
CREATE TABLE {schema}exponential_histograms (
    series_id {int} NOT NULL,
    time {int} NOT NULL,
    start {int},
    flags {int32},
    count {int} NOT NULL,
    sum {double},
    min {double},
    max {double},
    scale {int32} NOT NULL,
    zero_count {int} NOT NULL,
    zero_threshold {present},
    positive_offset {int32},
    positive_counts {ints},
    negative_offset {int32},
    negative_counts {ints},{exotic}
    PRIMARY KEY (series_id, time)
){by_time};
CREATE TABLE {schema}summaries (
    series_id {int} NOT NULL,
    time {int} NOT NULL,
    start {int},
    flags {int32},
    count {int} NOT NULL,
    sum {present},
    quantiles {doubles} NOT NULL,
    quantile_values {doubles} NOT NULL,{exotic}
    PRIMARY KEY (series_id, time)
){by_time};
CREATE TABLE {schema}exemplars (
    series_id {int} NOT NULL,
    time {int} NOT NULL, -- of the point
    position {small} NOT NULL,
    exemplar_time {int} NOT NULL,
    value_double {double},
    value_int {int},
    trace_id {bytes},
    span_id {bytes},
    encoded {bytes} NOT NULL,{exotic}
    PRIMARY KEY (series_id, time, position)
){by_time};
CREATE TABLE {schema}spans (
    trace_id {bytes} NOT NULL,
    time {int} NOT NULL, -- the start
    span_id {bytes} NOT NULL,
    end_time {int} NOT NULL,
    parent_span_id {bytes},
    resource_id {int} NOT NULL,
    scope_id {int} NOT NULL,
    name text NOT NULL,
    kind {int32} NOT NULL,
    status {int32} NOT NULL,
    status_message text NOT NULL,
    attributes {json} NOT NULL,
    events {json} NOT NULL,
    links {json} NOT NULL,
    encoded {bytes} NOT NULL, -- the exact Span of OTLP
    {span_key} (trace_id, time, span_id)
){spans_by_time};
CREATE INDEX spans_time ON {schema}spans (time);
CREATE INDEX spans_resource ON {schema}spans (resource_id, time);
CREATE INDEX points_time ON {schema}points ({time_key});
CREATE INDEX histograms_time ON {schema}histograms ({time_key});
CREATE INDEX exponential_histograms_time ON {schema}exponential_histograms ({time_key});
CREATE INDEX summaries_time ON {schema}summaries ({time_key});
-- Slot -2 has the identity of the store, slot -1 counts the removals of series, the others batches.
CREATE TABLE {schema}ingest (slot {slot} PRIMARY KEY, batches {int} NOT NULL){counting};
"""


def statements_by_version(words: Mapping[str, str]) -> tuple[str, ...]:
    """The statements from each version of the schema to the next, in the words of one database.

    No release has had version 1 yet, so its statements may change, as long as stores of former commits still work.
    After the first release, each change is a new version.
    """
    return (_V1.format_map(words),)
