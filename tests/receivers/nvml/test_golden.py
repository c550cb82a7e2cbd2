"""What whole machines say, compared with text. Write it anew with `UPDATE_GOLDEN=1 pytest tests/receivers/nvml`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel_receivers.nvml.metrics import METRICS
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.reading import lines
from tests.receivers.nvml.running import Host

GOLDEN = Path(__file__).parent / "golden"
ALL = {name: {"enabled": True} for name in METRICS}


@pytest.mark.parametrize("scenario", ["h200", "h100x8", "a100-mig", "geforce", "none"])
@pytest.mark.parametrize("metrics", ["default", "all"])
def test_a_machine_says_what_its_driver_says(scenario: str, metrics: str, driver: Callable[[str], Driver]) -> None:
    driver(scenario)
    host = Host({"metrics": ALL if metrics == "all" else {}})
    with host.gpus() as gpus:
        said = "\n".join(lines(Batch.join([gpu.scrape() for gpu in gpus])))
    golden = GOLDEN / f"{scenario}-{metrics}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(said + "\n")
    assert said + "\n" == golden.read_text()
    assert host.failed == []
