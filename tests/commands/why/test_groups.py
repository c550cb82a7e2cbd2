"""Titles of jobs, and the processes that belong together."""

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_commands.why.findings.groups import groups_of
from otel_zernel_commands.why.seen import SeenProcess
from tests.commands.why.recorded_runs import seen


def process(pid: int, rank: int | None = None, parent: int = 7, service: str = "") -> SeenProcess:
    attributes: dict[str, AttributeValue] = {"process.pid": pid, "process.parent_pid": parent, "host.name": "node"}
    if rank is not None:
        attributes |= {"zernel.rank": rank, "zernel.world_size": 2}
    if service:
        attributes["service.name"] = service
    return SeenProcess(attributes, command=("python", "train.py"), steps={("training", "loader"): 10})


def test_ranks_of_one_launcher_are_one_job_before_their_comparison() -> None:
    groups = groups_of([process(1, 0), process(2, 1), process(3, 0, parent=8), process(4)], [])
    assert [[one.pid for one in group.processes] for group in groups] == [[1, 2], [3], [4]]


def test_of_a_restarted_rank_the_one_that_trains_most_counts() -> None:
    restarted = process(3, 1)
    restarted.steps = {("training", "loader"): 90}
    [group] = groups_of([process(1, 0), process(2, 1), restarted], [])
    assert [one.pid for one in group.processes] == [1, 3]


def test_a_process_without_steps_is_no_job() -> None:
    idle = process(1)
    idle.steps = {}
    idle.phases = {("unknown", "threads"): 60.0}
    assert groups_of([idle], []) == []
    idle.phases[("gpu_compute", "threads")] = 30.0
    assert len(groups_of([idle], [])) == 1


def test_the_name_that_a_user_gave_is_the_title() -> None:
    [group] = groups_of([process(1, service="nightly")], [])
    assert group.title == "nightly"
    [group] = groups_of([process(1, service="unknown_service:python")], [])
    assert group.title == "train.py"


def test_a_title_cannot_control_the_terminal() -> None:
    [group] = groups_of([process(1, service="\x1b[2J" + "x" * 500)], [])
    assert group.title.startswith("\\x1b[2Jxxx")
    assert len(group.title) == 80


def test_the_ranks_of_a_compared_job_are_together() -> None:
    sightings = seen("gloo, DDP, a late rank", is_job=True)
    [group] = groups_of(sightings.processes, sightings.jobs)
    assert group.job is not None
    assert [one.rank for one in group.processes] == [0, 1]
