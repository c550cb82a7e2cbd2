"""The parsers of prometheus_client read every page, and find the metrics that were put in."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, Metric, MetricsData
from prometheus_client import Metric as Parsed
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_zernel_libraries.prometheus import Format, Options, Page
from otel_zernel_libraries.prometheus.names import classic_label
from tests.otlp import (
    CUMULATIVE,
    DELTA,
    data,
    exponential,
    gauge,
    histogram,
    number,
    summary,
    total,
)

FORMATS: dict[Callable[[str], Iterable[Parsed]], Format] = {
    parse_text: Format(),
    parse_openmetrics: Format(openmetrics=True),
}
ODD = st.sampled_from(['"', "\\", "\n", "\r", "{", "}", ",", "=", "#", " ", "\t", "é", "\u2028", "n", "a", "_", "."])
TEXTS = st.text(max_size=12) | st.text(ODD, max_size=6)
LABELS = st.sampled_from(["job", "instance", "le", "quantile", "otel_scope_name", "a.b", "a_b", "0", "größe"]) | TEXTS
ATTRIBUTES = st.dictionaries(LABELS, TEXTS | st.booleans() | st.integers() | st.floats(), max_size=4).map(
    lambda attributes: {key: _bounded(value) for key, value in attributes.items()}
)
VALUES = st.floats() | st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from(["a", "a.count", "a.total", "a_bucket", "hw.power", "größe", "target", "b"])
UNITS = st.sampled_from(["", "1", "s", "By", "{x}/s"])
TEMPORALITIES = st.sampled_from([CUMULATIVE, DELTA])
TIMES = st.integers(0, 3)
NUMBERS = st.lists(st.builds(number, VALUES, ATTRIBUTES, TIMES), max_size=3)
COUNTS = st.lists(st.integers(0, 9), max_size=4)
EXEMPLARS = st.lists(st.builds(Exemplar, as_double=st.floats(), trace_id=st.binary(max_size=16)), max_size=2)


def _bounded(value: Any) -> Any:
    return value % 2**62 if isinstance(value, int) and not isinstance(value, bool) else value


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    name, unit, temporality, time = draw(NAMES), draw(UNITS), draw(TEMPORALITIES), draw(TIMES)
    kind = draw(st.sampled_from(["gauge", "sum", "summary", "histogram", "exponential"]))
    if kind == "gauge":
        return gauge(name, *draw(NUMBERS), unit=unit, description=draw(TEXTS))
    if kind == "sum":
        return total(name, *draw(NUMBERS), unit=unit, monotonic=draw(st.booleans()), temporality=temporality)
    if kind == "summary":
        quantiles = draw(st.dictionaries(st.floats(0, 1), st.floats(), max_size=2))
        return summary(
            name, quantiles, draw(st.integers(0, 9)), draw(st.floats()), draw(ATTRIBUTES), unit=unit, time=time
        )
    if kind == "exponential":
        sides = (draw(st.integers(-2000, 2000)), draw(COUNTS)), (draw(st.integers(-9, 9)), draw(COUNTS))
        sum_ = draw(st.none() | st.floats())
        return exponential(name, draw(st.integers(-11, 21)), *sides, sum_=sum_, time=time, temporality=temporality)
    bounds = draw(st.lists(st.floats(-5, 5), max_size=3).map(sorted))
    counts = draw(st.lists(st.integers(0, 9), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    sum_, exemplars = draw(st.none() | st.floats()), tuple(draw(EXEMPLARS))
    return histogram(name, bounds, counts, sum_, unit=unit, time=time, temporality=temporality, exemplars=exemplars)


BATCHES = st.builds(
    lambda several, resource: data(*several, resource=resource), st.lists(metrics(), max_size=6), ATTRIBUTES
)


def samples(families: Iterable[Parsed]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of a page by name and labels. Fails if two samples are equal."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


@given(st.lists(BATCHES, max_size=3), st.booleans())
def test_both_formats_are_valid_and_have_the_same_samples(batches: list[MetricsData], stamped: bool) -> None:
    page = Page(Options(send_timestamps=stamped))
    for batch in batches:
        page.update(batch, 0)
    text, openmetrics = (samples(parse(page.render(format_, 0).decode())) for parse, format_ in FORMATS.items())
    only_text = text.keys() - openmetrics.keys()
    assert not openmetrics.keys() - text.keys()
    assert all(name.endswith("_count") for name, _ in only_text), "the counts of histograms without a sum"
    for key in openmetrics:
        value = text[key]
        assert value == openmetrics[key] or (math.isnan(value) and math.isnan(openmetrics[key]))


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_label_values_survive_both_formats(values: list[str]) -> None:
    page = Page()
    page.update(data(gauge("a", number(1, {f"n{n}": value for n, value in enumerate(values)}))), 0)
    for parse, format_ in FORMATS.items():
        [family] = parse(page.render(format_, 0).decode())
        assert family.samples[0].labels == {f"n{n}": value for n, value in enumerate(values) if value}


@given(st.dictionaries(TEXTS, st.text("abc", min_size=1, max_size=3), max_size=5))
def test_no_attribute_is_lost_whatever_its_name(attributes: dict[str, str]) -> None:
    page = Page()
    page.update(data(gauge("a", number(1, attributes))), 0)
    [family] = next(iter(FORMATS))(page.render(Format(), 0).decode())
    labels = family.samples[0].labels
    for name, value in attributes.items():
        assert value in labels[classic_label(name)].split(";")


@given(TEXTS)
def test_help_survives_both_formats(description: str) -> None:
    page = Page()
    page.update(data(gauge("a", number(1), description=description)), 0)
    for parse, format_ in FORMATS.items():
        [family] = parse(page.render(format_, 0).decode())
        assert family.documentation.strip() == (description.strip() or "OpenTelemetry metric a.")


UNRESERVED = TEXTS.filter(lambda text: text and not text.startswith("__"))


@given(
    st.dictionaries(UNRESERVED, TEXTS.filter(bool), max_size=3), UNRESERVED.filter(lambda name: name != "target_info")
)
def test_untranslated_names_survive_in_quotes(attributes: dict[str, str], name: str) -> None:
    page = Page(Options(translation_strategy="NoTranslation"))
    page.update(data(gauge(name, number(1, attributes))), 0)
    [family] = next(iter(FORMATS))(page.render(Format(utf8=True), 0).decode())
    assert family.samples[0].name == name
    assert family.samples[0].labels == attributes
