"""The receiver's options."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.points.metrics import METRICS


def test_metrics_can_be_switched_either_way() -> None:
    switches = {"hw.power": {"enabled": False}, "zernel.gpu.power.instant": {"enabled": True}}
    enabled = NvmlConfig.model_validate({"metrics": switches}).enabled()
    defaults = {name for name, metric in METRICS.items() if metric.enabled}
    assert enabled == defaults - {"hw.power"} | {"zernel.gpu.power.instant"}


def test_a_metric_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match=r"there is no metric 'hw\.gpu\.utilisation'"):
        NvmlConfig.model_validate({"metrics": {"hw.gpu.utilisation": {"enabled": True}}})


def test_the_nearest_name_is_suggested_and_every_mistake_is_listed() -> None:
    with pytest.raises(ValidationError) as raised:
        NvmlConfig.model_validate({"metrics": {"hw.pwr": {"enabled": True}, "hw.energy": True, "x": {}}})
    message = str(raised.value)
    assert "there is no metric 'hw.pwr'; did you mean hw.power?" in message
    assert "there is no metric 'x'; the page Metrics of the documentation lists all metrics" in message
    assert "metrics.`hw.energy`" in message


def test_pynvml_is_imported_only_when_the_receiver_runs() -> None:
    code = "import sys, otel_zernel_receivers.nvml; sys.exit('pynvml' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )
