"""Points with one text that is not UTF-8 or one deep value, and a collector that reads them in all its places."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.testing import until
from tests.collectors import collector

POINTS: Final = 100
BAD: Final = b"\xc3(\xfe"
"""In place of a text of the same length."""
KINDS: Final = pytest.mark.parametrize("kind", ["text", "name", "deep value"])
_OUTPUTS: Final = ("plain", "filtered", "changed")


def damaged_metrics(kind: str) -> bytes:
    """Encoded metrics with `POINTS` points. One is damaged: its attribute, its metric's name, or a value 200 deep."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "trainer"
    scope = resource.scope_metrics.add()
    for number in range(POINTS):
        is_bad = number == POINTS // 2
        metric = scope.metrics.add(name="mXYZ" if is_bad and kind == "name" else f"m{number}")
        point = metric.gauge.data_points.add(as_double=number, time_unix_nano=1 << 60)
        value = point.attributes.add(key="command").value
        for _ in range(200 if is_bad and kind == "deep value" else 0):
            value = value.array_value.values.add()
        value.string_value = "XYZ" if is_bad and kind == "text" else "ok"
    return data.SerializeToString().replace(b"XYZ", BAD)


def damaged_json(kind: str) -> bytes:
    """The same as OTLP/JSON."""
    pieces: list[bytes] = []
    for number in range(POINTS):
        is_bad = number == POINTS // 2
        name = b"m" + (BAD if is_bad and kind == "name" else str(number).encode())
        value = b'{"stringValue":"' + (BAD if is_bad and kind == "text" else b"ok") + b'"}'
        if is_bad and kind == "deep value":
            value = b'{"arrayValue":{"values":[' * 200 + value + b"]}}" * 200
        point = b'{"timeUnixNano":"%d","asDouble":%d,"attributes":[{"key":"command","value":%s}]}'
        point %= (1 << 60, number, value)
        pieces.append(b'{"name":"%s","gauge":{"dataPoints":[%s]}}' % (name, point))
    return b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[%s]}]}]}' % b",".join(pieces)


def readers(folder: Path, page: int) -> dict[str, Any]:
    """The settings of processors and exporters that read each batch."""
    return {
        "processors": {
            "filter": {"metrics": {"datapoint": ['attributes["n"] == 3']}},
            "attributes": {"actions": [{"key": "x", "value": "y", "action": "upsert"}]},
        },
        "exporters": {
            **{f"file/{name}": {"path": str(folder / f"{name}.json")} for name in _OUTPUTS},
            "prometheus": {"endpoint": f"127.0.0.1:{page}", "metric_expiration": "1000000h"},
        },
    }


def pipelines(receiver: str, *exporters: str) -> dict[str, Any]:
    """The pipelines of `readers`, and more exporters of unchanged batches."""
    return {
        "m": {"receivers": [receiver], "exporters": ["file/plain", "prometheus", *exporters]},
        "f": {"receivers": [receiver], "processors": ["filter"], "exporters": ["file/filtered"]},
        "a": {"receivers": [receiver], "processors": ["attributes"], "exporters": ["file/changed"]},
    }


async def check_readers(folder: Path, page: int, kind: str) -> None:
    """Waits until all points have arrived in all places, and compares the damaged one."""
    import httpx

    for name in _OUTPUTS:
        path = folder / f"{name}.json"
        await until(lambda path=path: path.exists() and path.read_text().endswith("\n"), within=60)  # type: ignore[misc]
        (line,) = path.read_text().splitlines()
        assert len(json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]) == POINTS
        assert ("\ufffd(\ufffd" in line) == (kind != "deep value")
        assert ("nested more than" in line) == (kind == "deep value")
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{page}/metrics")).text
    assert sum(line.startswith("m") for line in text.splitlines()) == POINTS


async def every_point_arrives(folder: Path, id_: str, receiver: dict[str, Any], page: int, kind: str) -> str:
    """Runs a collector with this receiver until all points have arrived. Returns its log."""
    settings = {
        "receivers": {id_: receiver},
        **readers(folder, page),
        "service": {"pipelines": pipelines(id_)},
    }
    async with collector(folder, settings, page):
        await check_readers(folder, page, kind)
    log = (folder / "log").read_text()
    assert "Dropped" not in log
    return log
