from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel_receivers.csv import CsvReceiver

OWN = {"timestamp": "t", "metrics": {"x": {}}}


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        ({}, ("files",), "required"),
        ({"files": []}, ("files",), "at least 1"),
        ({"layout": "dgcm"}, ("layout",), "there is no layout 'dgcm'; use auto, dcgm, wide, nvidia_smi, or a mapping"),
        ({"layout": {"timestmp": "t", "metrics": {"x": {}}}}, ("layout", "timestmp"), "Extra inputs"),
        ({"layout": {"timestamp": "t"}}, ("layout",), "give either `metrics`"),
        ({"layout": {**OWN, "metric": "m", "value": "v"}}, ("layout",), "give either `metrics`"),
        ({"layout": {"timestamp": "t", "metric": "m"}}, ("layout",), "give either `metrics`"),
        ({"layout": {"metrics": {"x": {}}}}, (), "needs a `timestamp` column"),
        ({"layout": {**OWN, "metrics": {"x": {"type": "counter"}}}}, ("layout", "metrics", "x", "type"), "'gauge'"),
        ({"layout": {**OWN, "attributes": {"a": "x"}}}, ("layout",), "column 'x' cannot be used both as a number"),
        ({"shard": {"index": 2, "count": 2}}, ("shard",), "less than count"),
        ({"loop": True, "follow": True}, (), "exclude each other"),
        ({"files": ["-"], "loop": True}, (), "ends once"),
        ({"storage": "s", "loop": True}, (), "loop reads every row again, and storage prevents that; remove one"),
        ({"storage": "s", "files": ["-"]}, (), 'the standard input ("-") has none; remove storage'),
        ({"start_at": "end"}, (), "set follow: true"),
        ({"delimiter": '"'}, ("delimiter",), "neither a quote"),
    ],
)
def test_a_mistake_is_reported_once_at_its_own_path(
    config: dict[str, Any], path: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        CsvReceiver.Config.model_validate({"files": ["x.csv"], **config} if config else {})
    (error,) = caught.value.errors()
    assert error["loc"] == path
    assert message in error["msg"]


@pytest.mark.parametrize("layout", ["dcgm", "wide", OWN, {"timestamp": "t", "metric": "m", "value": "v"}])
def test_a_configuration_is_unchanged_after_dump_and_load(layout: object) -> None:
    config = CsvReceiver.Config.model_validate({"files": ["x.csv"], "layout": layout, "interval": "5s"})
    assert CsvReceiver.Config.model_validate(config.model_dump(mode="json")) == config
