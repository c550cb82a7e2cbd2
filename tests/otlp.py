"""Short constructors and readers for OTLP data."""

from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Exemplar,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryDataPoint,
)
from opentelemetry.proto.profiles.v1development.profiles_pb2 import (
    Function,
    KeyValueAndUnit,
    Line,
    Link,
    Location,
    Mapping,
    Profile,
    ProfilesData,
    ProfilesDictionary,
    ResourceProfiles,
    Sample,
    ScopeProfiles,
    Stack,
    ValueType,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_zernel.batch import points
from otel_zernel.otlp.points import Attributes, AttributeValue, key_values
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.training.points import scalars_of

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
ENDED = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


def data(*metrics: Metric, resource: Attributes | None = None, scope: str = "", version: str = "") -> MetricsData:
    scoped = ScopeMetrics(scope=InstrumentationScope(name=scope, version=version), metrics=metrics)
    described = Resource(attributes=key_values(resource or {}))
    return MetricsData(resource_metrics=[ResourceMetrics(resource=described, scope_metrics=[scoped])])


def traces(*spans: Span, resource: Attributes | None = None) -> TracesData:
    described = Resource(attributes=key_values(resource or {}))
    return TracesData(resource_spans=[ResourceSpans(resource=described, scope_spans=[ScopeSpans(spans=spans)])])


def logs(*records: LogRecord, resource: Attributes | None = None) -> LogsData:
    described = Resource(attributes=key_values(resource or {}))
    return LogsData(resource_logs=[ResourceLogs(resource=described, scope_logs=[ScopeLogs(log_records=records)])])


def profiles(*values: int, resource: Attributes | None = None) -> ProfilesData:
    """A profile of CPU time in ns: a sample of one stack for each value. Its texts are in the dictionary."""
    dictionary = ProfilesDictionary(
        string_table=["", "cpu", "nanoseconds", "train.py", "step", "zernel.rank", "main"],
        mapping_table=[Mapping()],
        function_table=[Function(), Function(name_strindex=4, filename_strindex=3), Function(name_strindex=6)],
        location_table=[
            Location(),
            Location(lines=[Line(function_index=1, line=12)]),
            Location(lines=[Line(function_index=2, line=3)]),
        ],
        link_table=[Link()],
        attribute_table=[KeyValueAndUnit(), KeyValueAndUnit(key_strindex=5, value=AnyValue(int_value=1))],
        stack_table=[Stack(), Stack(location_indices=[1, 2])],
    )
    profile = Profile(
        sample_type=ValueType(type_strindex=1, unit_strindex=2),
        samples=[Sample(stack_index=1, attribute_indices=[1], values=[value]) for value in values],
        time_unix_nano=NOW,
        duration_nano=SECOND,
        profile_id=bytes(range(16)),
    )
    described = Resource(attributes=key_values(resource or {}))
    scoped = [ScopeProfiles(profiles=[profile])]
    return ProfilesData(
        resource_profiles=[ResourceProfiles(resource=described, scope_profiles=scoped)], dictionary=dictionary
    )


def meaning_of_profiles(message: ProfilesData) -> list[Any]:
    """What profiles say, however their dictionary is laid out: resources, types, and samples with their stacks."""
    rows, text = message.dictionary, message.dictionary.string_table

    def plain(pair: Any) -> tuple[str, Any]:
        member = pair.value.WhichOneof("value")
        content = getattr(pair.value, member)
        return text[pair.key_strindex] or pair.key, text[content] if member == "string_value_strindex" else content

    def lines(stack: Stack) -> list[tuple[str, str, int]]:
        places = [line for at in stack.location_indices for line in rows.location_table[at].lines]
        functions = [rows.function_table[place.function_index] for place in places]
        return [
            (text[function.name_strindex], text[function.filename_strindex], place.line)
            for function, place in zip(functions, places, strict=True)
        ]

    def sample(one: Sample) -> tuple[Any, ...]:
        attributes = dict(plain(rows.attribute_table[at]) for at in one.attribute_indices)
        return lines(rows.stack_table[one.stack_index]), attributes, [*one.values]

    return [
        (
            dict(map(plain, resource.resource.attributes)),
            (text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex]),
            (profile.time_unix_nano, profile.duration_nano, profile.profile_id),
            [sample(one) for one in profile.samples],
        )
        for resource in message.resource_profiles
        for scope in resource.scope_profiles
        for profile in scope.profiles
    ]


def metrics_in(message: Any) -> list[Any]:
    """All metrics of a message, or of the SDK's."""
    return [
        metric for resource in message.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]


class Row(NamedTuple):
    """A point and what it is about. Attributes have plain values."""

    resource: dict[str, AttributeValue]
    metric: Metric
    attributes: dict[str, AttributeValue]
    point: Any

    @property
    def key(self) -> tuple[Any, ...]:
        """The name of the metric and the values of the attributes, in order."""
        return self.metric.name, *self.attributes.values()

    @property
    def value(self) -> Any:
        """A number, the count of a histogram, or the quantiles of a summary. None at the end of a series."""
        if has_no_value(self.point):
            return None
        if hasattr(self.point, "quantile_values"):
            return {at.quantile: at.value for at in self.point.quantile_values}
        if hasattr(self.point, "count"):
            return self.point.count
        return self.point.as_int if self.point.HasField("as_int") else self.point.as_double


def rows_in(message: MetricsData) -> list[Row]:
    """All points of a message, in order."""
    return [
        Row(about, metric, scalars_of(point.attributes), point)
        for resource in message.resource_metrics
        for about in [scalars_of(resource.resource.attributes)]
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in points(metric)
    ]


def spans_in(message: Any) -> list[Span]:
    return [span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans]


def records_in(message: Any) -> list[LogRecord]:
    return [
        record for resource in message.resource_logs for scope in resource.scope_logs for record in scope.log_records
    ]


def number(value: float, attributes: Attributes | None = None, time: int = NOW, **fields: Any) -> NumberDataPoint:
    valued = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return NumberDataPoint(attributes=key_values(attributes or {}), time_unix_nano=time, **valued, **fields)


def ended(attributes: Attributes | None = None, time: int = NOW) -> NumberDataPoint:
    return NumberDataPoint(attributes=key_values(attributes or {}), time_unix_nano=time, flags=ENDED)


def gauge(name: str, *points: NumberDataPoint, unit: str = "", description: str = "") -> Metric:
    return Metric(name=name, unit=unit, description=description, gauge=Gauge(data_points=points))


def total(
    name: str,
    *points: NumberDataPoint,
    unit: str = "",
    monotonic: bool = True,
    temporality: AggregationTemporality.ValueType = CUMULATIVE,
    description: str = "",
) -> Metric:
    body = Sum(data_points=points, is_monotonic=monotonic, aggregation_temporality=temporality)
    return Metric(name=name, unit=unit, description=description, sum=body)


def histogram(
    name: str,
    bounds: list[float],
    counts: list[int],
    sum_: float | None = None,
    *,
    time: int = NOW,
    unit: str = "s",
    temporality: AggregationTemporality.ValueType = CUMULATIVE,
    exemplars: tuple[Exemplar, ...] = (),
) -> Metric:
    point = HistogramDataPoint(
        explicit_bounds=bounds, bucket_counts=counts, sum=sum_, time_unix_nano=time, exemplars=exemplars
    )
    point.count = sum(counts)
    body = Histogram(data_points=[point], aggregation_temporality=temporality)
    return Metric(name=name, unit=unit, histogram=body)


def exponential(
    name: str,
    scale: int,
    positive: tuple[int, list[int]] = (0, []),
    negative: tuple[int, list[int]] = (0, []),
    *,
    zero_count: int = 0,
    zero_threshold: float = 0.0,
    sum_: float | None = None,
    time: int = NOW,
    temporality: AggregationTemporality.ValueType = CUMULATIVE,
    exemplars: tuple[Exemplar, ...] = (),
) -> Metric:
    buckets = ExponentialHistogramDataPoint.Buckets
    point = ExponentialHistogramDataPoint(
        scale=scale,
        zero_count=zero_count,
        zero_threshold=zero_threshold,
        positive=buckets(offset=positive[0], bucket_counts=positive[1]),
        negative=buckets(offset=negative[0], bucket_counts=negative[1]),
        count=zero_count + sum(positive[1]) + sum(negative[1]),
        sum=sum_,
        time_unix_nano=time,
        exemplars=exemplars,
    )
    body = ExponentialHistogram(data_points=[point], aggregation_temporality=temporality)
    return Metric(name=name, unit="s", exponential_histogram=body)


def summary(
    name: str,
    quantiles: dict[float, float],
    count: int,
    sum_: float,
    attributes: Attributes | None = None,
    *,
    unit: str = "s",
    time: int = NOW,
) -> Metric:
    values = [SummaryDataPoint.ValueAtQuantile(quantile=at, value=value) for at, value in quantiles.items()]
    point = SummaryDataPoint(quantile_values=values, count=count, sum=sum_, time_unix_nano=time)
    point.attributes.extend(key_values(attributes or {}))
    return Metric(name=name, unit=unit, summary=Summary(data_points=[point]))


def node() -> MetricsData:
    """The metrics of a training node: all types of points, two GPUs on one host, unusual values and labels."""
    host: Attributes = {
        "service.namespace": "training",
        "service.name": "llm",
        "service.instance.id": "node-1",
        "host.name": "node-1",
        "hw.vendor": "NVIDIA",
    }
    message = MetricsData()
    for gpu in ("GPU-0", "GPU-1"):
        one = {"hw.id": gpu}
        metrics = (
            gauge("hw.gpu.utilization", number(0.25, one), unit="1", description='Share of time\0 a "kernel" ran.'),
            gauge("hw.temperature", number(float("nan"), one), unit="Cel"),
            gauge("hw.power", number(float("inf"), one), unit="W"),
            total("hw.gpu.memory.usage", number(7 << 30, one), unit="By", monotonic=False),
            total("hw.energy", number(1234.5, one), unit="J", description="Energy\\consumed\nsince boot."),
            total("hw.gpu.io", number(10, {**one, "network.io.direction": "receive"}), unit="By"),
        )
        message.MergeFrom(data(*metrics, resource={**host, **one}, scope="nvml", version="1.0"))
    latency = summary(
        "zernel.cuda.launch.latency", {0: 1e-6, 0.5: 5e-6, 0.99: 2e-5, 1: 0.5}, 1000, 0.75, {"process.pid": 4242}
    )
    odd = gauge("zernel.odd", number(1, {"path": 'C:\\x "y"\n', "nul": "a\0b", "größe": "groß", "bool": True}))
    trace = Exemplar(as_double=0.2, trace_id=bytes(range(16)), span_id=bytes(range(8)), time_unix_nano=NOW)
    wait = histogram("zernel.dataloader.wait", [0.1, 0.5, 1.0], [3, 2, 1, 1], 4.5, exemplars=(trace,))
    step = exponential("zernel.step.duration", 3, (-4, [1, 0, 5, 2]), zero_count=1, sum_=7.25)
    message.MergeFrom(data(latency, odd, wait, step, resource=host, scope="zernel"))
    return message
