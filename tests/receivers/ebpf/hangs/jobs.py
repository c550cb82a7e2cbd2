"""A training job of several ranks that hangs, and the records that a session makes of it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.stacks import THREADS, ProcessThreads
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.talking import Talker, started
from tests.receivers.ebpf.watching import Watch, attributes_of
from tests.waiting import wait_for

PROGRAM = Path(__file__).with_name("ranks.py")


class Job:
    """The running ranks."""

    def __init__(self, ranks: list[Talker]) -> None:
        self.ranks = ranks

    def hang(self) -> None:
        """Lets the ranks hang."""
        for rank in self.ranks:
            rank.say()
        self.expect("stuck")

    def expect(self, line: str) -> None:
        """Waits until every rank has said so."""
        assert [rank.line() for rank in self.ranks] == [line] * len(self.ranks)

    def threads(self, watch: Watch) -> list[ProcessThreads]:
        """What each rank does, by rank, once the session has a record of each."""
        found: dict[int, ProcessThreads] = {}

        def read() -> bool:
            found.update(records_of(watch))
            return len(found) == len(self.ranks)

        wait_for(read, "a record of each rank")
        return [found[rank] for rank in range(len(self.ranks))]


@contextmanager
def hanging_job(kind: str, folder: Path, ranks: int = 2, python: str = "") -> Iterator[Job]:
    """A job whose ranks have trained some steps. `ranks.py` lists the kinds. Skips the test without PyTorch."""
    command = [python or python_of(OWN), str(PROGRAM), kind, str(folder / "store")]

    def started_rank(rank: str) -> AbstractContextManager[Talker]:
        environment = {"RANK": rank, "WORLD_SIZE": str(ranks)}
        return started(*command, rank, str(ranks), environment=environment)

    with ExitStack() as stack:
        job = Job([stack.enter_context(started_rank(str(rank))) for rank in range(ranks)])
        job.expect("training")
        yield job


def records_of(watch: Watch) -> dict[int, ProcessThreads]:
    """The records of a new reading, by the rank of the resource."""
    watch.taken()
    return {
        int(str(attributes_of(resource.resource)["zernel_rank"])): THREADS.read(record.body)
        for resource in watch.read().logs.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name == semconv.PROCESS_THREADS
    }
