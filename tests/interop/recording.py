"""dcgm-exporter's own recording of 247 GPUs: third-party data that is not in this repository."""

from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import Downstream, make_context
from otel_zernel_receivers.csv import CsvReceiver


def recording() -> Path:
    """Where it is; skips the test if it is not there."""
    path = Path(__file__).parents[3] / "shared/data/dcgm_metrics_20250718_134233.csv"
    if not path.exists():
        pytest.skip(f"the recording is not here: {path}")
    return path


async def recorded() -> Batch:
    """The recording, as the csv receiver reads it."""
    downstream = Downstream()
    config = CsvReceiver.Config.model_validate({"files": [str(recording())]})
    await CsvReceiver(config, make_context()).run(downstream)
    batch = Batch.join(downstream.batches)
    assert batch.point_count == 2470
    return batch
