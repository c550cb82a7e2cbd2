"""A component that gets data in a form that it cannot use is found before the collector runs."""

from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Processor
from otel_zernel.component.forms import DataForms
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry
from otel_zernel_processors.percentiles.config import PercentilesConfig
from tests.core.config.components import In, Out

TEXT = """
receivers: {{ebpf: {{}}}}
processors: {{phases: {{}}, percentiles: {{metrics: {metrics}}}, filter: {dropped}}}
exporters:
  {{prometheus: {{}}, debug: {{}}, otlp_http: {{endpoint: "http://localhost:4318", moving_bounds: as_is}},
    otlp_http/any: {{endpoint: "http://localhost:4318"}}}}
service: {{pipelines: {{{pipeline}: {{receivers: [ebpf], processors: [{processors}], exporters: [{exporter}]}}}}}}
"""


def warned(
    processors: str,
    *,
    metrics: str = "['*']",
    dropped: str = "{}",
    pipeline: str = "training",
    exporter: str = "otlp_http",
) -> str:
    text = TEXT.format(processors=processors, metrics=metrics, dropped=dropped, pipeline=pipeline, exporter=exporter)
    warnings = read_settings([f"yaml:{text}"], [], {}, Registry.installed()).warnings
    return "\n".join(warning for warning in warnings if "is in no pipeline" not in warning)


def test_raw_readings_with_moving_bounds_are_named_with_the_processors_that_help() -> None:
    (bounds,) = warned("").splitlines()
    assert bounds.startswith('service::pipelines::training: receiver "ebpf" emits histograms whose bounds differ')
    assert "zernel.cuda.launch.latency" in bounds
    assert 'exporter "otlp_http" passes them on with moving_bounds: as_is' in bounds
    assert bounds.split(";")[1].startswith(" put one of these processors before it: percentiles")


def test_raw_readings_straight_into_prometheus_are_named_with_the_processors_that_help() -> None:
    (spans,) = warned("", exporter="prometheus").splitlines()
    assert "spans of single calls" in spans
    assert "put one of these processors before it: phases" in spans


@pytest.mark.parametrize("exporter", ["prometheus", "otlp_http/any"])
def test_an_exporter_that_settles_moving_bounds_is_silent(exporter: str) -> None:
    assert "bounds" not in warned("phases", exporter=exporter)


def test_steps_with_moving_bounds_are_named() -> None:
    (bounds, steps) = warned("phases").splitlines()
    assert 'receiver "ebpf" emits histograms' in bounds
    assert 'processor "phases" emits histograms whose bounds differ from reading to reading (zernel.step.duration)' in (
        steps
    )


def test_a_pipeline_with_both_processors_is_silent() -> None:
    assert warned("phases, percentiles") == ""


def test_a_pipeline_whose_exporter_accepts_everything_is_silent() -> None:
    assert warned("", exporter="debug") == ""


def test_a_pipeline_without_traces_carries_no_spans() -> None:
    assert "spans of single calls" not in warned("", pipeline="metrics", exporter="prometheus")


def test_only_the_metrics_that_no_processor_selects_are_named() -> None:
    (warning,) = warned("phases, percentiles", metrics="['zernel.cuda.*', zernel.step.duration]").splitlines()
    assert "zernel.cuda" not in warning
    assert "zernel.dataloader.wait" in warning


@pytest.mark.parametrize(
    "dropped",
    [
        """{metrics: {metric: ['IsMatch(name, "^zernel.(cuda|nccl|dataloader|distributed|step|memcpy|disk)")']}}""",
        "{metrics: {exclude: {match_type: regexp, metric_names: ['zernel.*']}}}",
        "{metrics: {include: {match_type: strict, metric_names: [hw.power]}}}",
        """{metric_conditions: ['IsMatch(metric.name, "^zernel")']}""",
    ],
)
def test_metrics_that_a_filter_drops_are_not_named(dropped: str) -> None:
    assert warned("phases, filter", dropped=dropped) == ""


@pytest.mark.parametrize(
    "dropped",
    [
        """{metrics: {metric: ['resource.attributes["a"] != "b"']}}""",
        """{metrics: {metric: ['IsMatch(name, "^zernel") and HasAttrOnDatapoint("a", "b")']}}""",
        """{metrics: {datapoint: ['metric.name != "x"']}}""",
        """{metric_conditions: ['IsMatch(metric.name, "^zernel") and datapoint.flags == 1']}""",
        "{metrics: {exclude: {match_type: regexp, metric_names: ['z.*'], resource_attributes: [{key: a, value: b}]}}}",
    ],
)
def test_metrics_that_a_filter_may_not_drop_are_named(dropped: str) -> None:
    assert "zernel.cuda" in warned("phases, filter", dropped=dropped)


class Summarizing(Processor):
    """As the percentiles processor with the output `summary`."""

    Config = PercentilesConfig

    def process(self, batch: Batch) -> tuple[Batch]:
        return (batch,)

    @classmethod
    def forms(cls, config: PercentilesConfig) -> DataForms:
        return DataForms(emits={"summaries": config.metrics}, refuses={"summaries": config.metrics})


@pytest.mark.parametrize(("second", "warnings"), [("['*']", 1), ("['zernel.cuda.*']", 1), ("[hw.power]", 0)])
def test_percentiles_of_summaries_are_named_if_the_patterns_overlap(second: str, warnings: int) -> None:
    entries = {"receivers": {"in": lambda: In}, "exporters": {"out": lambda: Out}}
    registry = Registry({**entries, "processors": {"summarizing": lambda: Summarizing}})  # type: ignore[dict-item]
    text = f"""
receivers: {{in: {{}}}}
processors: {{summarizing/a: {{metrics: [zernel.*.latency, zernel.cuda.sync]}}, summarizing/b: {{metrics: {second}}}}}
exporters: {{out: {{endpoint: x}}}}
service: {{pipelines: {{metrics: {{receivers: [in], processors: [summarizing/a, summarizing/b], exporters: [out]}}}}}}
"""
    found = read_settings([f"yaml:{text}"], [], {}, registry).warnings
    assert len(found) == warnings
    assert all('processor "summarizing/a" emits summaries' in one for one in found)
    assert all('processor "summarizing/b" cannot use them; take processor' in one for one in found)


@pytest.mark.parametrize(
    "name", ["quickstart", "percentiles", "gateway", "less_data", "replay", "seed_compat", "training"]
)
def test_the_examples_are_silent(name: str) -> None:
    example = Path(__file__).parents[4] / "examples" / f"{name}.yaml"
    assert read_settings([str(example)], [], {}, Registry.installed()).warnings == ()
