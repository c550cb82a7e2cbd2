"""Bad rows are saved, and a disk that cannot take them costs nothing but the saved rows."""

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.testing import Downstream, Dropped, make_context
from tests.receivers.csv.running import HEADER, LAYOUT, receiver, rows, values_of


async def test_a_full_disk_for_the_rejects_repeats_no_row_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, downstream, reader = tmp_path / "a.csv", Downstream(), InMemoryMetricReader()
    path.write_text(HEADER + rows(0, 50_000) + "bad\n" + rows(50_000, 60_000) + "worse\nworst\n")
    context = make_context(id_="csv", meter=MeterProvider([reader]).get_meter("test"))
    await receiver(context, files=[str(path)], layout=LAYOUT, rejects="/dev/full").run(downstream)
    assert values_of(downstream) == list(range(60_000))
    assert context.drop == Dropped({"wrong column count": 3})  # type: ignore[arg-type]  # a Counter equals a dict
    problem = "cannot save bad rows in /dev/full: No space left on device; the good rows go on"
    assert [message for message in caplog.messages if "bad row: " not in message] == [problem]
    assert '"name": "zernel.csv.unsaved_rejects"' in str(reader.get_metrics_data().to_json())  # type: ignore[union-attr]


async def test_a_file_of_rejects_is_not_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + "bad\n")
    for permissions, mode in (("0640", 0o640), ("0600", 0o600)):
        rejects = tmp_path / permissions
        options = {} if permissions == "0640" else {"rejects_permissions": permissions}
        await receiver(files=[str(path)], layout=LAYOUT, rejects=str(rejects), **options).run(Downstream())  # type: ignore[arg-type]
        assert rejects.read_text() == "bad\n"
        assert rejects.stat().st_mode & 0o777 == mode
