"""The conversion of OpenTelemetry names to Prometheus names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.prometheus import Options
from otel_zernel_libraries.prometheus.names import Naming, classic_label, unit_words

NAMES = st.text(max_size=20) | st.from_regex(r"[a-z]{1,4}([._][a-z0-9]{1,5}){0,3}", fullmatch=True)
UNITS = st.sampled_from(["", "1", "s", "By", "By/s", "{packet}/s", "%", "m/s2", "ö/ü", "/", "Cel"]) | st.text(
    max_size=6
)


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("hw.gpu.memory.usage", "By", "sum", "hw_gpu_memory_usage_bytes"),
        ("hw.energy", "J", "counter", "hw_energy_joules_total"),
        ("hw.power", "W", "gauge", "hw_power_watts"),
        ("hw.temperature", "Cel", "gauge", "hw_temperature_celsius"),
        ("hw.gpu.utilization", "1", "gauge", "hw_gpu_utilization_ratio"),
        ("queue.length", "1", "sum", "queue_length"),
        ("hw.errors", "{error}", "counter", "hw_errors_total"),
        ("zernel.cuda.launch.latency", "s", "summary", "zernel_cuda_launch_latency_seconds"),
        ("zernel.cuda.memory.used", "By", "gauge", "zernel_cuda_memory_used_bytes"),
        ("zernel.gpu.clock", "Hz", "gauge", "zernel_gpu_clock_hertz"),
        ("network.rate", "By/s", "gauge", "network_rate_bytes_per_second"),
        ("packets", "{packet}/s", "gauge", "packets_per_second"),
        ("speed", "m/s", "gauge", "speed_meters_per_second"),
        ("load", "%", "gauge", "load_percent"),
        ("disk", "GiBy", "gauge", "disk_gibibytes"),
        ("latency.seconds", "s", "gauge", "latency_seconds"),
        ("bytes.total", "By", "counter", "bytes_total"),
        ("requests_total", "", "counter", "requests_total"),
        ("hit.ratio", "1", "gauge", "hit_ratio"),
        ("odd", "furlong", "gauge", "odd_furlong"),
        ("a..b--c__d", "", "gauge", "a_b_c_d"),
        ("2xx", "", "gauge", "_2xx"),
        ("rule:name", "", "gauge", "rule:name"),
        ("total", "", "counter", "total"),
        ("größe", "", "gauge", "gr_e"),
        ("日本", "s", "gauge", ""),
    ],
)
def test_names_follow_the_compatibility_rules(name: str, unit: str, kind: str, expected: str) -> None:
    assert Naming(Options()).family(name, unit, is_gauge=kind == "gauge", is_counter=kind == "counter") == expected


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("UnderscoreEscapingWithSuffixes", "my_app_hw_energy_joules_total"),
        ("UnderscoreEscapingWithoutSuffixes", "my_app_hw_energy"),
        ("NoUTF8EscapingWithSuffixes", "my-app_hw.energy_joules_total"),
        ("NoTranslation", "my-app_hw.energy"),
    ],
)
def test_the_strategy_selects_characters_and_suffixes(strategy: str, expected: str) -> None:
    options = Options(namespace="my-app", translation_strategy=strategy)  # type: ignore[arg-type]  # one of the four strategies
    assert Naming(options).family("hw.energy", "J", is_counter=True) == expected


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("", ("", "")),
        ("{gpu}", ("", "")),
        ("By{transferred}/s", ("bytes", "per_second")),
        ("1/min", ("", "per_minute")),
        ("s/{step}", ("seconds", "")),
        (" ms ", ("milliseconds", "")),
        ("m2/s", ("m2", "per_second")),
    ],
)
def test_units_become_words_and_annotations_are_ignored(unit: str, words: tuple[str, str]) -> None:
    assert unit_words(unit) == words


@given(NAMES, UNITS, st.booleans(), st.booleans())
def test_an_escaped_name_is_legal_and_a_counter_ends_in_total(name: str, unit: str, gauge: bool, counter: bool) -> None:
    family = Naming(Options()).family(name, unit, is_gauge=gauge, is_counter=counter)
    assert family == "" or re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", family)
    assert "__" not in family
    assert not family or not counter or family.endswith("total")


@given(NAMES, UNITS, st.booleans())
def test_converting_a_converted_name_changes_nothing(name: str, unit: str, counter: bool) -> None:
    naming = Naming(Options())
    once = naming.family(name, unit, is_counter=counter)
    assert naming.family(once, "", is_counter=counter) == once


@given(st.text(max_size=20))
def test_a_label_is_legal_and_never_reserved(attribute: str) -> None:
    label = classic_label(attribute)
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label)
    assert not label.startswith("__")


def test_configured_label_names_override_the_rule() -> None:
    naming = Naming(Options(label_names={"process.pid": "pid"}))
    assert [naming.label(one) for one in ("process.pid", "process.id", "0day")] == ["pid", "process_id", "key_0day"]


def test_untranslated_labels_are_never_reserved() -> None:
    naming = Naming(Options(translation_strategy="NoTranslation"))
    assert [naming.label(one) for one in ("a.b", "_a", "__name__", "__", "")] == ["a.b", "_a", "_name__", "_", "_"]
