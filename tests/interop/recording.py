"""A recording of 247 GPUs by dcgm-exporter: third-party data outside of this repository."""

from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import Downstream, make_context
from otel_zernel_receivers.csv import CsvReceiver


def recording() -> Path:
    """The path of the recording. Skips the test without it."""
    path = Path(__file__).parents[3] / "shared/data/dcgm_metrics_20250718_134233.csv"
    if not path.exists():
        pytest.skip(f"the recording is missing: {path}")
    return path


async def recorded() -> Batch:
    """The batches that the csv receiver reads from the recording."""
    downstream = Downstream()
    config = CsvReceiver.Config.model_validate({"files": [str(recording())]})
    await CsvReceiver(config, make_context()).run(downstream)
    batch = Batch.join(downstream.batches)
    assert batch.point_count == 2470
    return batch
