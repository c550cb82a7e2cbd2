"""Mistakes in the configuration are found before anything runs, all at once, with their paths."""

from typing import Any

import pytest
import yaml

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry

HISTOGRAM = {"table": "t", "name": "h", "type": "histogram"}


def check(receiver: dict[str, Any]) -> None:
    text = yaml.safe_dump({"receivers": {"bcc": receiver}})
    validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})


def problems(program: dict[str, Any], **options: Any) -> list[str]:
    receiver = {"programs": {"one": {"source": "int x;", "metrics": [HISTOGRAM], **program}}, **options}
    with pytest.raises(ConfigError) as refused:
        check(receiver)
    strs = [str(problem) for problem in refused.value.problems]
    return [one.removeprefix("receivers::bcc::programs::one::") for one in strs if one.startswith("receivers::bcc")]


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ({"file": "/x.c"}, "give either `source` or `file`"),
        ({"metrics": []}, "metrics: "),
        ({"metrics": [HISTOGRAM, HISTOGRAM]}, "the metric 'h' is there twice"),
        ({"metrics": [{**HISTOGRAM, "type": "sum", "buckets": {"max": 8}}]}, "only histograms have `buckets`"),
        ({"metrics": [{**HISTOGRAM, "scale": 0}]}, "scale"),
        ({"metrics": [{**HISTOGRAM, "buckets": {"type": "fixed"}}]}, "`bounds` and the type `fixed` need each other"),
        ({"metrics": [{**HISTOGRAM, "buckets": {"type": "fixed", "bounds": [2, 1]}}]}, "`bounds` must ascend"),
        ({"metrics": [{**HISTOGRAM, "buckets": {"min": 9, "max": 8}}]}, "max (8) must not be less than min (9)"),
        ({"metrics": [{**HISTOGRAM, "buckets": {"max": 65}}]}, "max must not be above 64"),
        ({"metrics": [{**HISTOGRAM, "labels": [{"name": "a"}, {"name": "a"}]}]}, "the label 'a' is there twice"),
        (
            {"metrics": [{**HISTOGRAM, "labels": [{"name": "a", "decoders": ["dname"]}]}]},
            "labels::0::decoders::0::name",
        ),
        ({"attach": [{"kind": "uprobe", "path": "c", "function": "f"}]}, "attach::0"),
        ({"attach": [{"kind": "xdp", "function": "f"}]}, "attach::0"),
        ({"attach": [{"kind": "perf_event", "event": "cpu_clock", "function": "f"}]}, "give either `period` (events)"),
        ({"attach": [{"kind": "kprobe", "symbol": "s", "function": "f; g"}]}, "function"),
    ],
)
def test_a_mistake_is_named_at_its_path(program: dict[str, Any], sentence: str) -> None:
    found = problems(program)
    assert len(found) == 1
    assert sentence in found[0]


def test_all_mistakes_are_listed_at_once() -> None:
    attach = [{"kind": "usdt", "path": "python3", "probe": "x", "function": "f"}]
    assert len(problems({"attach": attach, "metrics": [{**HISTOGRAM, "scale": -1}]}, python="python3")) == 4


@pytest.mark.parametrize(
    ("decoder", "sentence"),
    [
        ({"name": "regexp"}, "the option `regexps` and the decoder `regexp` need each other"),
        ({"name": "uint", "static_map": {1: "a"}}, "the option `static_map` and the decoder `static_map`"),
        ({"name": "regexp", "regexps": ["("]}, "is not a regular expression"),
    ],
)
def test_a_decoder_has_exactly_its_options(decoder: dict[str, Any], sentence: str) -> None:
    (found,) = problems({"metrics": [{**HISTOGRAM, "labels": [{"name": "a", "decoders": [decoder]}]}]})
    assert sentence in found


def test_decoders_of_the_kernel_come_first() -> None:
    (found,) = problems({"metrics": [{**HISTOGRAM, "labels": [{"name": "a", "decoders": ["uint", "ksym"]}]}]})
    assert "the decoder ksym must be the first one" in found


def test_one_metric_has_one_meaning_in_all_programs() -> None:
    other = {"source": "int y;", "metrics": [{**HISTOGRAM, "unit": "s"}]}
    receiver = {"programs": {"one": {"source": "int x;", "metrics": [HISTOGRAM]}, "two": other}}
    with pytest.raises(ConfigError, match="the metric 'h' has two units or types"):
        check(receiver)
