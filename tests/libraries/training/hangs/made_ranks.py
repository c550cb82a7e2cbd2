"""Ranks that hang, made from facts."""

from collections.abc import Sequence

from otel_zernel_libraries.training.hangs import Rank, RankSigns
from otel_zernel_libraries.training.hangs.rank_signs import Ending
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import ChildNow, CodeLine, OpenCollective, ProcessThreads, ThreadNow

NOW = 1_000_000.0
SITE = "/usr/lib/python3/dist-packages"
TRAIN = CodeLine("/home/me/train.py", "train", 30)
MAIN = CodeLine("/home/me/train.py", "<module>", 99)
LOAD = CodeLine("/home/me/train.py", "load", 12)
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
ALL_REDUCE = (CodeLine(C10D, "all_reduce", 2806), CodeLine(f"{SITE}/torch/distributed/c10d_logger.py", "wrapper", 81))
BARRIER = (CodeLine(C10D, "barrier", 4551), ALL_REDUCE[1])
BACKWARD = (
    CodeLine(f"{SITE}/torch/autograd/graph.py", "_engine_run_backward", 824),
    CodeLine(f"{SITE}/torch/_tensor.py", "Tensor.backward", 648),
)
LOADER = (
    CodeLine("/usr/lib/python3.11/selectors.py", "PollSelector.poll", 415),
    CodeLine("/usr/lib/python3.11/multiprocessing/connection.py", "Connection._poll", 440),
    CodeLine("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 113),
    CodeLine(f"{SITE}/torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1251),
)
FETCH = CodeLine(f"{SITE}/torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 52)
WORKER_LOOP = CodeLine(f"{SITE}/torch/utils/data/_utils/worker.py", "_worker_loop", 349)


def thread(
    activity: Activity | str,
    *inner: CodeLine,
    seconds: float = 20.0,
    detail: str = "",
    id_: int = 100,
    is_main: bool = True,
) -> ThreadNow:
    """A thread in these frames, which the training loop calls."""
    lines = (*inner, TRAIN, MAIN)
    return ThreadNow(
        thread=id_, is_main=is_main, activity=Activity(activity), seconds=seconds, detail=detail, lines=lines
    )


def rank(
    number: int | None,
    *threads: ThreadNow,
    silent: float = 20.0,
    steps: Sequence[float] = (0.1,) * 20,
    collectives: Sequence[OpenCollective] = (),
    children: Sequence[ChildNow] = (),
    ending: Ending | None = None,
    is_stopped: bool = False,
    is_traced: bool = False,
    has_lost_ranks: bool = False,
    age: float = 0.5,
    still: float = 0.0,
) -> Rank:
    """A rank that has taken steps of these durations until `silent` s ago. `age`: of its record, in s. `still`: a
    record that is so much older (s) shows the same."""
    signs = RankSigns()
    for duration in steps:
        signs.add_step(NOW - silent, duration, 100)
        signs.add_mark(NOW - silent)
    body = ProcessThreads(
        silent=silent - age,
        has_marks=bool(steps),
        is_stopped=is_stopped,
        is_traced=is_traced,
        has_lost_ranks=has_lost_ranks,
        threads=threads,
        collectives=tuple(collectives),
        children=tuple(children),
    )
    for at in (NOW - age - still, NOW - age):
        signs.add_threads(at, body)
    signs.ending = ending
    return Rank(number, "node1", 4000 + (number or 0), signs, NOW)


def waiting(number: int, *, silent: float = 20.0, sequence: int = 0, steps: Sequence[float] = (0.1,) * 20) -> Rank:
    """A rank in `all_reduce`. With a number, probes have seen its begin."""
    known = [OpenCollective(operation="all_reduce", communicator="w", sequence=sequence, seconds=silent)]
    blocked = thread("lock", *ALL_REDUCE, seconds=silent)
    return rank(number, blocked, silent=silent, collectives=known if sequence else (), steps=steps)
