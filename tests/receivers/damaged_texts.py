"""Points with texts that are not UTF-8 and a deep value, and a collector that reads them in all its places."""

import json
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.testing import until
from tests.collectors import collector

POINTS: Final = 100
BAD: Final = b"\xc3(\xfe"
"""In place of a text of the same length."""
_TEXT, _NAME, _DEEP = 25, 50, 75
"""The numbers of the damaged points: an attribute, the metric's name, and a value with 200 levels."""
_OUTPUTS: Final = ("plain", "filtered", "changed")


def damaged_metrics() -> bytes:
    """Encoded metrics with `POINTS` points. Three are damaged."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "trainer"
    scope = resource.scope_metrics.add()
    for number in range(POINTS):
        metric = scope.metrics.add(name="mXYZ" if number == _NAME else f"m{number}")
        point = metric.gauge.data_points.add(as_double=number, time_unix_nano=1 << 60)
        value = point.attributes.add(key="command").value
        for _ in range(200 if number == _DEEP else 0):
            value = value.array_value.values.add()
        value.string_value = "XYZ" if number == _TEXT else "ok"
    return data.SerializeToString().replace(b"XYZ", BAD)


def damaged_json() -> bytes:
    """The same as OTLP/JSON."""
    pieces: list[bytes] = []
    for number in range(POINTS):
        name = b"m" + (BAD if number == _NAME else str(number).encode())
        value = b'{"stringValue":"' + (BAD if number == _TEXT else b"ok") + b'"}'
        if number == _DEEP:
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


async def check_readers(folder: Path, page: int) -> None:
    """Waits until all points have arrived in all places, and compares the damaged ones."""
    import httpx

    for name in _OUTPUTS:
        path = folder / f"{name}.json"
        await until(lambda path=path: path.exists() and path.read_text().endswith("\n"), within=60)  # type: ignore[misc]
        (line,) = path.read_text().splitlines()
        assert len(json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]) == POINTS
        assert line.count("\ufffd(\ufffd") == 2
        assert line.count("nested more than") == 1
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{page}/metrics")).text
    assert sum(line.startswith("m") for line in text.splitlines()) == POINTS


async def every_point_arrives(folder: Path, id_: str, receiver: dict[str, Any], page: int) -> None:
    """Runs a collector with this receiver until all points have arrived."""
    settings = {"receivers": {id_: receiver}, **readers(folder, page), "service": {"pipelines": pipelines(id_)}}
    async with collector(folder, settings, page):
        await check_readers(folder, page)
    assert "Dropped" not in (folder / "log").read_text()
