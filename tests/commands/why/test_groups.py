"""Titles of jobs, and the processes that belong together."""

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_commands.why.findings.groups import groups_of
from otel_zernel_libraries.training.state import Entities, SeenJob, SeenProcess
from tests.commands.why.recorded_runs import seen

NO_JOBS = Entities[SeenJob](1, 60.0, 60.0, lambda: None)


def process(pid: int, rank: int | None = None, parent: int = 7, service: str = "") -> SeenProcess:
    attributes: dict[str, AttributeValue] = {"process.pid": pid, "process.parent_pid": parent, "host.name": "node"}
    if rank is not None:
        attributes |= {"zernel.rank": rank, "zernel.world_size": 2}
    if service:
        attributes["service.name"] = service
    made = SeenProcess(attributes, command=("python", "train.py"))
    made.steps.take(("training", "loader"), 10)
    return made


def test_ranks_of_one_launcher_are_one_job_before_their_comparison() -> None:
    groups = groups_of([process(1, 0), process(2, 1), process(3, 0, parent=8), process(4)], NO_JOBS)
    assert [[process.pid for process in group.processes] for group in groups] == [[1, 2], [3], [4]]


def test_of_a_restarted_rank_the_one_that_trains_most_counts() -> None:
    restarted = process(3, 1)
    restarted.steps.take(("training", "loader"), 90)
    [group] = groups_of([process(1, 0), process(2, 1), restarted], NO_JOBS)
    assert [process.pid for process in group.processes] == [1, 3]


def test_a_process_without_steps_is_no_job() -> None:
    idle = process(1)
    idle.steps.clear()
    idle.phases.take(("unknown", "threads"), 60.0)
    assert groups_of([idle], NO_JOBS) == []
    idle.phases.take(("gpu_compute", "threads"), 30.0)
    assert len(groups_of([idle], NO_JOBS)) == 1


def test_the_name_that_a_user_gave_is_the_title() -> None:
    [group] = groups_of([process(1, service="nightly")], NO_JOBS)
    assert group.title == "nightly"
    [group] = groups_of([process(1, service="unknown_service:python")], NO_JOBS)
    assert group.title == "train.py"


def test_a_title_cannot_control_the_terminal() -> None:
    [group] = groups_of([process(1, service="\x1b[2J" + "x" * 500)], NO_JOBS)
    assert group.title.startswith("\\x1b[2Jxxx")
    assert len(group.title) == 80


def test_the_ranks_of_a_compared_job_are_together() -> None:
    state = seen("gloo, DDP, a late rank", is_job=True)
    [group] = groups_of(state.processes, state.jobs)
    assert group.job is not None
    assert [process.rank for process in group.processes] == [0, 1]
