"""The points of metrics that phases use."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel_processors.phases.intake.inputs import input_points


def test_a_point_without_a_recorded_value_is_skipped() -> None:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    histogram = Metric(name="zernel.cuda.launch.latency")
    burst = Metric(name="zernel.process.cpu.burst")
    for points in (histogram.histogram.data_points, burst.gauge.data_points):
        points.add(flags=1)
    histogram.histogram.data_points.add(count=3)
    burst.gauge.data_points.add(as_double=0.5)
    scope.metrics.extend([histogram, burst])
    assert [point.value for point in input_points(metrics)] == [3, 0.5]
