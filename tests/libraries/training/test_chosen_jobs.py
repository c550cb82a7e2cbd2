"""The processor that lets only the data of the chosen jobs pass."""

from collections.abc import Mapping
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.testing import make_context
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.chosen_jobs import choosing
from tests.exporters.live.live_runs import points

LAUNCHED: Mapping[str, AttributeValue] = {"process.parent_pid": 7, "host.name": "node", "zernel.world_size": 2}


def data_of(pid: int | None, **attributes: AttributeValue) -> Batch:
    """A point of a process, or of a GPU."""
    resource = {key.replace("_", ".", 1): value for key, value in attributes.items()}
    return points("zernel.step.rate", [({}, 1.0)], {**resource, **({"process.pid": pid} if pid else {})})


def passed(choice: JobChoice, *batches: Batch, ancestors: Mapping[int, tuple[int, ...]] | None = None) -> list[object]:
    """The pids whose data passes; None for other resources."""
    cls = choosing(choice, lambda pid: (ancestors or {}).get(pid, ()))
    processor: Any = cls(cls.Config(), make_context("processors", "chosen"))
    found = [one for batch in batches for one in processor.process(batch)]
    resources = [
        {pair.key: pair.value.int_value for pair in resource_metric.resource.attributes}
        for batch in found
        for resource_metric in batch.metrics.resource_metrics
    ]
    return [resource.get("process.pid") for resource in resources]


def test_only_the_chosen_process_and_what_is_no_process_passes() -> None:
    assert passed(JobChoice(pid=1), data_of(1), data_of(2), data_of(None)) == [1, None]


def test_the_processes_of_a_launcher_pass() -> None:
    assert passed(JobChoice(pid=7), data_of(1), data_of(2), ancestors={1: (7, 1)}) == [1]


def test_the_other_ranks_of_a_chosen_rank_pass() -> None:
    ranks = [
        points("zernel.step.rate", [({}, 1.0)], {"process.pid": 1 + at, "zernel.rank": at, **LAUNCHED}) for at in (0, 1)
    ]
    other = points("zernel.step.rate", [({}, 1.0)], {"process.pid": 9, "zernel.rank": 0, "process.parent_pid": 8})
    assert passed(JobChoice(pid=1), *ranks, other) == [1, 2]


@pytest.mark.parametrize("name", ["train.py", "nightly", "node/7"])
def test_a_name_is_a_script_a_service_or_a_launcher(name: str) -> None:
    mine = points(
        "zernel.step.rate", [({}, 1.0)], {"process.pid": 1, "zernel.program": "train.py", "process.parent_pid": 7,
        "host.name": "node"},
    )  # fmt: skip
    service = data_of(2, service_name="nightly")
    assert passed(JobChoice(name=name), mine, service) == [2 if name == "nightly" else 1]


def test_a_batch_without_chosen_data_does_not_pass() -> None:
    assert passed(JobChoice(pid=3), Batch.join([data_of(1), data_of(2)])) == []
    assert passed(JobChoice(pid=2), Batch.join([data_of(1), data_of(2)])) == [2]
