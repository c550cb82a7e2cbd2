"""What of metrics says something about phases."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel_processors.phases.intake.inputs import input_points


def test_the_end_of_a_series_is_no_observation() -> None:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    histogram = Metric(name="zernel.cuda.launch.latency")
    burst = Metric(name="zernel.process.cpu.burst")
    for points in (histogram.histogram.data_points, burst.gauge.data_points):
        points.add(flags=1)
    histogram.histogram.data_points.add(count=3)
    burst.gauge.data_points.add(as_double=0.5)
    scope.metrics.extend([histogram, burst])
    assert [seen.value for seen in input_points(metrics)] == [3, 0.5]
