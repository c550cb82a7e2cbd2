"""Inputs of users give the right values: README.md says what a case is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.batch import Batch
from otel_zernel.testing import Downstream, make_context
from tests.exporters.prometheus.test_dcgm import DcgmPage
from tests.otlp import rows_in
from tests.receivers.csv.running import Run, receiver
from tests.receivers.prometheus.parts import TextTarget

FIELD = Path(__file__).parent


def cases(name: str) -> list[Any]:
    """The folders with an input of this name."""
    return [pytest.param(path.parent, id=path.parent.name) for path in sorted(FIELD.glob(f"*/{name}"))]


def read(case: Path, name: str) -> dict[str, Any]:
    """One of the case's YAML files."""
    content: dict[str, Any] = yaml.safe_load((case / name).read_text("utf-8"))
    return content


@pytest.mark.parametrize("case", cases("input.csv"))
async def test_rows_give_the_right_points(case: Path, caplog: pytest.LogCaptureFixture) -> None:
    options, expected = read(case, "config.yaml")["csv"], read(case, "expected.yaml")
    options["files"] = [str(case / name) for name in options["files"]]
    run = Run(Downstream(), make_context(id_="csv"))
    await receiver(run.context, **options).run(run.downstream)
    rows = list(_rows(run.downstream))
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row.metric.name, []).append(row.value)
    assert {name: values.get(name, []) for name in expected["values"]} == {
        name: pytest.approx(numbers) for name, numbers in expected["values"].items()
    }
    if "times" in expected:
        assert sorted({row.point.time_unix_nano for row in rows}) == expected["times"]
    assert [row for row in rows if not expected.get("resource", {}).items() <= row.resource.items()] == []
    assert [row for row in rows if not expected.get("attributes", {}).items() <= row.attributes.items()] == []
    assert run.dropped == expected.get("dropped", {})
    assert [text for text in expected.get("log", ()) if text not in "\n".join(caplog.messages)] == []


def _rows(downstream: Downstream) -> Iterator[Any]:
    for batch in downstream.batches:
        yield from rows_in(batch.metrics)


@pytest.mark.parametrize("case", cases("input.prom"))
def test_a_page_that_passes_through_is_the_same_page(case: Path) -> None:
    options, expected = read(case, "config.yaml")["prometheus"], read(case, "expected.yaml")
    batch: Batch = TextTarget(receiver=options).scrape((case / "input.prom").read_text("utf-8"))
    page = DcgmPage(hostname="Hostname").update(batch)
    lines = [line for line in page.lines if line.startswith("DCGM_")]
    assert sorted(lines) == sorted(expected["lines"])
    assert page.lost == []
