"""A job started by torchrun, with workers that load data."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.batch import Batch
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, attributes_of, numbers, require_ebpf, spans_of

STEPS = 5
Job = tuple[Batch, list[dict[str, int]], int]


@pytest.fixture(scope="module")
def job(python: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The receiver's reading of a job with two ranks, the JSON of each rank, and the pid of torchrun."""
    require_ebpf()
    folder = tmp_path_factory.mktemp("job")
    script = Path(__file__).with_name("train_torchrun.py")
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with Watch() as watch, talking(*command, script, folder, str(STEPS)) as torchrun:
        assert torchrun.line() == "ready", "the other rank"
        watch.attach()
        (folder / "go").touch()
        ranks = [json.loads(torchrun.line()) for _ in range(2)]
        batch = watch.read()
        (folder / "end").touch()
        assert torchrun.process.wait() == 0
    return batch, ranks, torchrun.pid


def resource_of(batch: Batch, pid: int) -> dict[str, Any]:
    resources = [attributes_of(resource_span.resource) for resource_span in batch.spans.resource_spans]
    (mine,) = [resource for resource in resources if resource["process_pid"] == pid]
    return mine


def test_ranks_agree_with_torchrun(job: Job) -> None:
    batch, ranks, torchrun = job
    assert sorted(rank["rank"] for rank in ranks) == [0, 1]
    for rank in ranks:
        ranks_of_job = {"zernel_rank": rank["rank"], "zernel_local_rank": rank["rank"], "zernel_world_size": 2}
        resource = resource_of(batch, rank["pid"])
        assert (
            resource.items()
            >= {**ranks_of_job, "zernel_rank_source": "environ", "process_parent_pid": torchrun}.items()
        )


def test_every_step_of_every_rank_is_emitted(job: Job) -> None:
    batch, ranks, _ = job
    for rank in ranks:
        counted = Counter(attributes_of(span)["zernel_interval"] for span in spans_of(batch, rank["pid"]))
        assert counted["optimizer"] == counted["backward"] == STEPS
        assert counted["data_loading"] == STEPS + 1


def test_a_worker_has_no_spans_but_counts_for_its_trainer(job: Job) -> None:
    batch, ranks, _ = job
    pids = {attributes_of(resource_span.resource)["process_pid"] for resource_span in batch.spans.resource_spans}
    for rank in ranks:
        assert rank["worker"] not in pids
        assert numbers(batch, "zernel.dataloader.workers", process_pid=rank["pid"])
