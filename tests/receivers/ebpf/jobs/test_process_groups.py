"""The ranks of processes whose environment does not give them, by the process groups of PyTorch."""

import pytest

from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of

BACKWARD = "THPEngine_run_backward"
GROUP = "ProcessGroup::getBackend"


def rank_of(watch: Watch, standin: Standin, *commands: str, environment: dict[str, str] | None = None) -> object:
    """The rank, the number of ranks and their source in the resource of a process that executes the commands."""
    with standin.start(environment=environment or {}, loads=["libtorch_cpu.so", "libtorch_python.so"]) as program:
        watch.attach()
        for command in (*commands, BACKWARD):
            program.do(command)
        (resource,) = [attributes_of(resource_span.resource) for resource_span in watch.read().spans.resource_spans]
    return tuple(resource.get(name) for name in ("zernel_rank", "zernel_world_size", "zernel_rank_source"))


@pytest.mark.parametrize("layout", ["", " kind=0"])
def test_the_rank_is_that_in_the_largest_group(watch: Watch, standin: Standin, layout: str) -> None:
    groups = (f"{GROUP} rank=0 ranks=2{layout}", f"{GROUP} rank=3 ranks=4{layout}", f"{GROUP} rank=1 ranks=2{layout}")
    assert rank_of(watch, standin, *groups) == (3, 4, "process_group")


def test_a_group_of_the_environments_size_changes_nothing(watch: Watch, standin: Standin) -> None:
    environment = {"RANK": "3", "WORLD_SIZE": "4"}
    assert rank_of(watch, standin, f"{GROUP} rank=3 ranks=4", environment=environment) == (3, 4, "environ")


def test_a_group_that_is_larger_than_the_environments_job_replaces_its_rank(watch: Watch, standin: Standin) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "1"}
    assert rank_of(watch, standin, f"{GROUP} rank=1 ranks=2", environment=environment) == (1, 2, "process_group")


def test_memory_that_is_no_group_gives_no_rank(watch: Watch, standin: Standin) -> None:
    assert rank_of(watch, standin, f"{GROUP} rank=5 ranks=4") == (None, None, None)
