"""The rules of both specifications for senders that no other test shows; docs/development/remote_write.md has all."""

import ast
import math
import re
import struct
from pathlib import Path

import pytest
from starlette.responses import Response

from otel_zernel.batch import Batch
from otel_zernel.errors import Correctable
from otel_zernel_exporters.prometheusremotewrite.protocol.series import STALE
from tests.exporters.prometheusremotewrite.decoding import is_stale
from tests.exporters.prometheusremotewrite.exporting import V1, exporter
from tests.exporters.prometheusremotewrite.receiver import WriteReceiver
from tests.otlp import NOW, SECOND, data, exponential, gauge, histogram, number, summary, total

ROOT = Path(__file__).parents[3]
RULES = Path(__file__).parents[3] / "docs/development/remote_write.md"
VERSIONS = pytest.mark.parametrize("config", [{}, V1], ids=["2.0", "1.0"])
WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"


def one_sample(second: int = 0) -> Batch:
    return Batch(data(gauge("g", number(1.0, time=NOW + second * SECOND))))


@VERSIONS
async def test_every_number_arrives_bit_for_bit(config: dict[str, str]) -> None:
    numbers = [0.0, -0.0, -1.5, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
    receiver = WriteReceiver()
    points = [number(value, {"n": str(index)}) for index, value in enumerate(numbers)]
    async with receiver.serve() as url, exporter(url, **config) as (one, _):
        await one.export(Batch(data(gauge("g", *points))))
    found = {dict(labels)["n"]: value for labels, [(_, value)] in receiver.named("g").items()}
    assert [struct.pack("<d", found[str(index)]) for index in range(len(numbers))] == [
        struct.pack("<d", value) for value in numbers
    ]


@VERSIONS
async def test_a_measured_nan_with_the_bits_of_the_marker_ends_no_series(config: dict[str, str]) -> None:
    message = data(
        gauge("g", number(STALE)),
        total("c", number(STALE)),
        histogram("h", [1.0], [1, 2], STALE),
        summary("q", {0.5: STALE}, 1, STALE),
        exponential("e", 1, (0, [1]), sum_=STALE),
    )
    assert is_stale(message.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].as_double)
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url, **config) as (one, _):
        await one.export(Batch(message))
    assert len(receiver.samples) == 1 + 1 + 4 + 3
    assert not any(is_stale(value) for samples in receiver.samples.values() for _, value in samples)
    [[native]] = receiver.histograms.values()
    assert math.isnan(native.sum)
    assert not is_stale(native.sum)


@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_a_sample_that_is_refused_is_not_sent_again(status: int) -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("no", status))
    async with receiver.serve() as url, exporter(url, **V1) as (one, dropped):
        await one.export(one_sample())
    assert dropped.counts == {"rejected": 1}
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("words", ["too old sample", "out of order sample"])
async def test_a_late_sample_that_is_refused_with_500_is_not_sent_again(words: str) -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response(words, 500))
    async with receiver.serve() as url, exporter(url, **V1) as (one, dropped):
        await one.export(one_sample())
    assert dropped.counts == {words.removesuffix(" sample").replace(" ", "_"): 1}
    assert len(receiver.requests) == 1


async def test_a_rejected_request_of_2_0_is_not_sent_again_if_the_server_reports_what_it_has_written() -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("out of order sample", 400, {WRITTEN: "0"}))
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(one_sample())
    assert dropped.counts == {"out_of_order": 1}
    assert receiver.versions == [2]


async def test_a_server_that_has_understood_2_0_keeps_it_after_a_400_without_numbers() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(one_sample())
        receiver.answers.append(Response("bad gateway rule", 400))
        await one.export(one_sample(1))
        await one.export(one_sample(2))
    assert receiver.versions == [2, 2, 2]
    assert dropped.counts == {"rejected": 1}


async def test_a_server_that_refuses_both_versions_is_asked_for_2_0_again() -> None:
    receiver = WriteReceiver()
    receiver.answers.extend([Response("", 415), Response("", 415)])
    async with receiver.serve() as url, exporter(url) as (one, _):
        with pytest.raises(Correctable, match=r"neither remote write 2\.0 nor 1\.0"):
            await one.export(one_sample())
        await one.export(one_sample(1))
    assert receiver.versions == [2, 1, 2]


async def test_the_body_of_a_success_means_nothing() -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("out of order sample; native histograms are disabled", 200, {WRITTEN: "1"}))
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(one_sample())
    assert dropped.counts == {}
    assert receiver.versions == [2]


async def test_a_missing_number_counts_as_nothing_written() -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("", 204, {WRITTEN: "1"}))
    message = data(gauge("g", number(1.0)), exponential("e", 1, (0, [1])))
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(Batch(message))
    assert dropped.counts == {"rejected": 1}


async def test_each_type_of_metric_has_its_type_in_the_metadata() -> None:
    receiver = WriteReceiver()
    message = data(
        gauge("g", number(1.0)),
        total("c", number(1.0)),
        total("u", number(1.0), monotonic=False),
        histogram("h", [1.0], [1, 2], 2.0),
        summary("q", {0.5: 1.0}, 1, 1.0),
        exponential("e", 1, (0, [1])),
        resource={"service.name": "s", "os": "a"},
    )
    async with receiver.serve() as url, exporter(url) as (one, _):
        await one.export(Batch(message))
    types = {name: type_ for name, (type_, _, _) in receiver.requests[0].metadata.items()}
    assert types == {
        **dict.fromkeys(["g", "u"], 2),
        **dict.fromkeys(["c_total"], 1),
        **dict.fromkeys(["h_seconds_bucket", "h_seconds_count", "h_seconds_sum", "e_seconds"], 3),
        **dict.fromkeys(["q_seconds", "q_seconds_count", "q_seconds_sum"], 5),
        **dict.fromkeys(["target_info"], 6),
    }


def test_each_rule_names_tests_that_exist() -> None:
    rows = [line for line in RULES.read_text().splitlines() if line.startswith("| ") and "(" in line]
    named = [re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", line) for line in rows]
    assert len(rows) > 30
    assert all(named), "each rule has a test"
    for name, path in (one for found in named for one in found):
        tree = ast.parse((RULES.parent / path).resolve().read_text())
        assert name in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
