"""Which jobs hang, since when, and through whom; and which are only late."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from otel_zernel_libraries.training.hangs import HungCollective, HungRole, JobHang, Rank, hang_of, stop_of
from otel_zernel_libraries.training.hangs.rank_signs import Ending
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import (
    OWN_LOCK,
    ChildNow,
    CodeLine,
    OpenCollective,
    ProcessStacks,
    ProcessThreads,
    StackTime,
    ThreadNow,
)
from tests.libraries.training.hangs.made_ranks import (
    ALL_REDUCE,
    BACKWARD,
    BARRIER,
    C10D,
    FETCH,
    LOAD,
    LOADER,
    MAIN,
    NOW,
    SITE,
    TRAIN,
    WORKER_LOOP,
    rank,
    thread,
    waiting,
)

FIFO = "reads /data/x (a pipe)"
KILLED = Ending(NOW - 12, signal="SIGKILL")


def hung(ranks: Sequence[Rank], size: int = 1) -> JobHang:
    """The hang of a job that hangs."""
    hang = hang_of(ranks, size)
    assert hang is not None
    return hang


def roles(hang: JobHang | None) -> dict[int | None, HungRole]:
    return {rank.rank: rank.role for rank in hang.ranks} if hang else {}


def worker(*lines: CodeLine, activity: str = "pipe", is_dead: bool = False, is_stopped: bool = False) -> ChildNow:
    busy = thread(activity, *lines, FETCH, WORKER_LOOP, id_=7, seconds=30.0, detail=FIFO)
    return ChildNow(pid=7, is_worker=True, threads=(busy,), is_dead=is_dead, is_stopped=is_stopped)


def test_a_rank_that_reads_a_dead_fifo_is_missing_and_the_others_wait_for_it() -> None:
    hang = hung([waiting(0, sequence=17), rank(1, thread("pipe", LOAD, detail=FIFO)), waiting(2, sequence=17)], 3)
    assert hang.since == NOW - 20
    assert hang.collective == HungCollective("all_reduce", "w", 17)
    assert [one.rank for one in hang.ranks] == [1, 0, 2]  # the guilty ones first
    assert roles(hang) == {0: "waiting", 1: "missing", 2: "waiting"}
    assert hang.ranks[0].code == ("train.py:12 load", "train.py:30 train", "train.py:99 <module>")
    assert hang.ranks[0].activity == "pipe"
    assert hang.ranks[0].detail == "reads /data/x (a pipe)"


def test_the_stack_names_the_collective_if_its_begin_was_not_seen() -> None:
    assert hung([waiting(0), rank(1, thread("lock", LOAD))], 2).collective == HungCollective("all_reduce")
    inside = rank(0, thread("lock", *BACKWARD))
    assert hung([inside, rank(1, thread("lock", LOAD))], 2).collective == HungCollective("backward")


@pytest.mark.parametrize(
    ("silent", "steps", "hangs"),
    [
        (14.0, [0.1] * 20, False),  # late by 9 s
        (15.5, [0.1] * 20, True),
        (30.0, [2.0] * 20, False),  # its limit is 20 s: late by 10 s only at 30 s
        (31.0, [2.0] * 20, True),
        (31.0, [0.1] * 17 + [9.0] * 3, False),  # p90: 9 s
    ],
)
def test_a_process_alone_hangs_10_s_after_it_is_late(silent: float, steps: list[float], hangs: bool) -> None:
    alone = rank(None, thread("lock", LOAD, seconds=silent), silent=silent - 0.001, steps=steps)
    assert (hang_of([alone]) is not None) == hangs


@pytest.mark.parametrize(("silent", "hangs"), [(4.9, False), (5.1, True)])
def test_a_job_hangs_as_soon_as_it_is_late_if_ranks_wait_for_one_that_is_blocked(silent: float, hangs: bool) -> None:
    ranks = [waiting(0, silent=silent), rank(1, thread("lock", LOAD), silent=silent)]
    assert (hang_of(ranks, 2) is not None) == hangs


@pytest.mark.parametrize(("silent", "seconds", "hangs"), [(7.9, 7.9, False), (8.1, 8.1, True), (8.1, 4.0, False)])
def test_a_rank_that_gets_no_data_while_others_wait_hangs_its_job_3_s_later(
    silent: float, seconds: float, hangs: bool
) -> None:
    ranks = [waiting(0, silent=silent), rank(1, thread("socket", LOAD, seconds=seconds), silent=silent)]
    assert (hang_of(ranks, 2) is not None) == hangs


def test_a_rank_whose_program_is_at_its_end_hangs_those_that_wait_for_it() -> None:
    sleeps = thread("timer", LOAD, id_=101, is_main=False, detail="sleeps")
    ends = ThreadNow(thread=100, is_main=True, activity=Activity.LOCK, seconds=70.0, lines=(SHUTDOWN,))
    hang = hung([waiting(0, silent=110), rank(1, ends, sleeps, silent=110)], 2)
    assert roles(hang) == {1: "missing", 0: "waiting"}
    words = "its program is at its end, and waits for the thread 101 (), which sleeps in train.py:12 load"
    assert (hang.ranks[0].detail, hang.ranks[0].code[0]) == (words, "train.py:12 load")
    assert hang_of([rank(0, ends, sleeps, silent=110), rank(1, ends, silent=110)], 2) is None


def test_ranks_that_all_wait_in_one_collective_hang_without_a_guilty_one() -> None:
    assert hang_of([waiting(0, silent=14), waiting(1, silent=14)], 2) is None
    assert roles(hang_of([waiting(0, silent=16), waiting(1, silent=16)], 2)) == {0: "waiting", 1: "waiting"}


def test_ranks_that_all_get_nothing_from_their_store_hang_3_s_after_they_are_late() -> None:
    new_group = CodeLine(C10D, "new_group", 5000)

    def waits(silent: float, seconds: float) -> list[Rank]:
        return [rank(number, thread("socket", new_group, seconds=seconds), silent=silent) for number in range(2)]

    assert hang_of(waits(7.9, 7.9), 2) is None
    assert roles(hang_of(waits(8.1, 8.1), 2)) == {0: "waiting", 1: "waiting"}
    assert hang_of(waits(8.1, 1.0), 2) is None
    assert hang_of([waits(8.1, 8.1)[0], waiting(1, silent=8.1)], 2) is None


def test_ranks_of_which_nothing_is_known_may_be_alive() -> None:
    assert hang_of([waiting(0, silent=600), waiting(2, silent=600)], 3) is None
    hang = hang_of([waiting(0, silent=610), waiting(2, silent=610)], 3)
    assert roles(hang) == {1: "missing", 0: "waiting", 2: "waiting"}
    of_store = rank(1, thread("socket", LOAD))
    assert hang_of([waiting(0), of_store], 64) is None
    blocked = rank(1, thread("lock", LOAD))
    assert roles(hang_of([waiting(0), blocked], 64)) == {1: "missing", 0: "waiting"}  # whatever the others do


def test_different_operations_at_one_number_are_mismatched_at_once() -> None:
    odd = rank(
        2,
        thread("lock", *BARRIER),
        silent=6.0,
        collectives=[OpenCollective(operation="barrier", communicator="w", sequence=17, seconds=6.0)],
    )
    ranks = [waiting(0, sequence=17, silent=6.0), waiting(1, sequence=17, silent=6.0), odd]
    hang = hung(ranks, 3)
    assert roles(hang) == {2: "mismatched", 0: "waiting", 1: "waiting"}
    assert hang.ranks[0].detail == "waits in barrier 17"
    assert hang.collective == HungCollective("all_reduce", "w", 17)
    of_two = hang_of([ranks[0], odd], 2)
    assert roles(of_two) == {0: "mismatched", 2: "mismatched"}  # nobody can know which of two is wrong


def test_different_sizes_are_mismatched() -> None:
    ranks = [
        rank(
            number,
            thread("lock"),
            collectives=[OpenCollective(operation="all_reduce", sequence=3, bytes=size, seconds=20)],
        )
        for number, size in enumerate([400, 400, 800])
    ]
    assert roles(hang_of(ranks, 3)) == {2: "mismatched", 0: "waiting", 1: "waiting"}


def test_operations_without_numbers_differ_if_one_rank_does_not_come() -> None:
    """Ranks wait in several groups, in a chain that ends at the missing one."""
    gathers = rank(2, thread("lock", CodeLine(C10D, "all_gather_into_tensor", 5)))
    hang = hang_of([waiting(0), waiting(1), gathers, rank(3, thread("lock", LOAD))], 4)
    assert roles(hang) == {3: "missing", 0: "waiting", 1: "waiting", 2: "waiting"}
    assert roles(hang_of([waiting(0), waiting(1), gathers], 3)) == {2: "mismatched", 0: "waiting", 1: "waiting"}


@pytest.mark.parametrize("inner", [(LOAD,), (*BACKWARD,)], ids=["native code", "a backward pass"])
def test_a_rank_that_computes_while_its_collective_goes_on_is_alive(inner: tuple[CodeLine, ...]) -> None:
    """Collectives run beside the program: those of NCCL are open until it waits for the GPU."""
    begun = [OpenCollective(operation="all_reduce", communicator="w", sequence=17, thread=100, seconds=120)]
    busy = rank(1, thread("native", *inner), silent=120, collectives=begun)
    assert hang_of([waiting(0, silent=120, sequence=17), busy], 2) is None
    asleep = rank(1, thread("gpu_wait", *inner), silent=120, collectives=begun)
    assert hang_of([waiting(0, silent=120, sequence=17), asleep], 2) is not None


def test_a_rank_that_runs_in_a_collective_waits_once_it_has_been_there_for_a_while() -> None:
    """As in a barrier of NCCL that began before the watch: the call polls the GPU."""
    ranks = [rank(number, thread("operator", *BARRIER), silent=60) for number in range(2)]
    assert hang_of(ranks, 2) is None  # one look shows nothing
    for polls in ranks:
        assert polls.signs.threads is not None
        polls.signs.add_threads(NOW + 6, polls.signs.threads)
    assert roles(hang_of([polls._replace(now=NOW + 6) for polls in ranks], 2)) == {0: "waiting", 1: "waiting"}


def test_a_barrier_after_the_last_batch_is_mismatched_with_a_backward_pass() -> None:
    ranks = [rank(0, thread("lock", *BACKWARD)), rank(1, thread("lock", *BACKWARD)), rank(2, thread("lock", *BARRIER))]
    assert roles(hang_of(ranks, 3)) == {2: "mismatched", 0: "waiting", 1: "waiting"}


def test_a_rank_in_an_earlier_collective_is_the_missing_one() -> None:
    ranks = [waiting(0, sequence=18), waiting(1, sequence=17), waiting(2, sequence=18)]
    assert roles(hang_of(ranks, 3)) == {1: "missing", 0: "waiting", 2: "waiting"}


def test_sends_and_receives_are_no_mismatch() -> None:
    ranks = [
        rank(number, thread("lock", CodeLine(C10D, operation, 5)))
        for number, operation in enumerate(["send", "recv", "all_reduce"])
    ]
    assert set(roles(hang_of(ranks, 3)).values()) == {"waiting"}


def test_a_rank_that_receives_while_others_wait_in_a_collective_of_all_is_missing() -> None:
    of_all = OpenCollective(operation="all_reduce", communicator="gloo of 3 ranks", sequence=11, seconds=20)
    receives = rank(2, thread("lock", CodeLine(C10D, "recv", 5)))
    waits = [rank(number, thread("lock", *ALL_REDUCE), collectives=[of_all]) for number in (0, 1)]
    hang = hung([*waits, receives], 3)
    assert roles(hang) == {2: "missing", 0: "waiting", 1: "waiting"}
    assert hang.ranks[0].detail == "waits in recv"


def test_a_dead_rank_is_named_with_its_signal_and_its_last_line() -> None:
    dead = rank(1, thread("python", LOAD), ending=KILLED)
    hang = hung([waiting(0), dead], 2)
    first = hang.ranks[0]
    assert (first.role, first.detail, first.activity) == ("dead", "killed by SIGKILL", None)
    assert first.code[0] == "train.py:12 load"
    assert hang.since == NOW - 12


def test_the_last_line_of_a_rank_that_died_while_it_trained_is_where_it_spent_most_time() -> None:
    dead = rank(1, ending=KILLED)
    stacks = (
        StackTime(thread=100, activity=Activity.TIMER, seconds=0.2, lines=(0,)),
        StackTime(thread=100, activity=Activity.PYTHON, seconds=0.9, lines=(1, 0, 2)),
        StackTime(thread=101, activity=Activity.PYTHON, seconds=2.0, lines=(0,)),
    )
    dead.signs.add_stacks(ProcessStacks(lines=(TRAIN, LOAD, MAIN), stacks=stacks))
    hang = hung([waiting(0), dead], 2)
    assert hang.ranks[0].code == ("train.py:12 load", "train.py:30 train", "train.py:99 <module>")


def test_the_last_line_of_a_rank_that_failed_is_not_one_of_the_programs_end() -> None:
    dead = rank(1, ending=Ending(NOW - 12, code=1))
    ends = CodeLine("/usr/lib/python3.11/weakref.py", "finalize._exitfunc", 637)
    for lines, stacks in (((TRAIN, LOAD, MAIN), ((1, 0, 2), (0, 2))), ((ends,), ((0,),))):
        times = (StackTime(thread=100, activity=Activity.PYTHON, seconds=1.0 + len(of), lines=of) for of in stacks)
        dead.signs.add_stacks(ProcessStacks(lines=lines, stacks=tuple(times)))
    hang = hung([waiting(0), dead], 2)
    assert hang.ranks[0].code == ("train.py:12 load", "train.py:30 train", "train.py:99 <module>")


def test_ranks_that_are_blocked_wait_for_a_dead_one() -> None:
    assert roles(hang_of([rank(0, thread("socket", LOAD)), rank(1, ending=KILLED)], 2)) == {1: "dead", 0: "waiting"}


def test_a_launcher_has_8_s_to_stop_the_ranks_that_are_left() -> None:
    dead = rank(1, ending=Ending(NOW - 7.9, signal="SIGKILL"))
    assert hang_of([waiting(0, silent=7.9), dead], 2) is None
    assert hang_of([waiting(0, silent=8.1), dead._replace(now=NOW + 0.2)], 2) is not None


def test_one_stopped_rank_hangs_its_job() -> None:
    hang = hang_of([waiting(0, silent=6), rank(1, thread("lock", LOAD), silent=6, is_stopped=True)], 2)
    assert roles(hang) == {1: "stopped", 0: "waiting"}


def test_a_lock_that_its_holder_waits_for_is_certain() -> None:
    alone = rank(None, thread("lock", LOAD, detail=OWN_LOCK), silent=6, steps=())
    hang = hung([alone])
    assert hang.ranks[0].detail == OWN_LOCK
    assert hang.collective is None


def test_the_thread_that_holds_the_gil_is_the_guilty_one() -> None:
    holder = thread("timer", CodeLine("/home/me/native.py", "call", 3), id_=101, is_main=False)
    main = thread("gil", LOAD, detail="the GIL, which thread 101 holds")
    assert hung([rank(None, main, holder)]).ranks[0].code[0] == "native.py:3 call"


def test_the_thread_that_holds_a_mutex_is_the_guilty_one() -> None:
    holder = thread("timer", CodeLine("/home/me/native.py", "call", 3), id_=101, is_main=False)
    main = thread("lock", LOAD, detail="the lock, which thread 101 (saver) holds")
    hang = hang_of([waiting(0), rank(1, main, holder)], 2)
    assert hang is None  # a sleep ends alone
    stuck = thread("lock", CodeLine("/home/me/native.py", "call", 3), id_=101, is_main=False)
    assert hung([waiting(0), rank(1, main, stuck)], 2).ranks[0].code[0] == "native.py:3 call"
    transfers = thread("socket", LOAD, id_=101, is_main=False, seconds=0.2)
    assert hang_of([waiting(0, silent=60), rank(1, main, transfers, silent=60)], 2) is None


def test_the_only_other_thread_of_the_user_is_named_with_its_line() -> None:
    saver = thread("pipe", CodeLine("/home/me/save.py", "save", 3), id_=101, is_main=False, detail=FIFO)
    idle = thread("lock", QUEUE, id_=102, is_main=False)
    library = ThreadNow(thread=103, activity=Activity.LOCK, lines=(EVENT,))
    hang = hung([waiting(0), rank(1, thread("lock", LOAD), saver, idle, library)], 2)
    assert hang.ranks[0].detail == f"a lock, while the thread 101 () {FIFO} in save.py:3 save"
    join = CodeLine("/usr/lib/python3.11/threading.py", "Thread.join", 1119)
    hang = hung([waiting(0), rank(1, thread("lock", join, LOAD), saver)], 2)
    assert hang.ranks[0].detail == f"the thread 101 (), which {FIFO} in save.py:3 save"


def test_a_worker_that_is_stuck_gives_its_line() -> None:
    hang = hung([waiting(0), rank(1, thread("lock", *LOADER), children=[worker(LOAD)])], 2)
    assert hang.ranks[0].detail == "its DataLoader worker 7: reads /data/x (a pipe)"
    assert hang.ranks[0].code[0] == "train.py:12 load"


def test_a_worker_that_is_dead_or_stopped_is_named() -> None:
    for child, words in ((worker(LOAD, is_dead=True), "is dead"), (worker(LOAD, is_stopped=True), "is stopped")):
        hang = hung([rank(None, thread("lock", *LOADER), silent=6, children=[child])])
        assert hang.ranks[0].detail == f"its DataLoader worker 7 {words}"


def test_a_job_that_was_stuck_before_it_was_watched_hangs_at_once() -> None:
    ranks = [
        waiting(0, silent=6, steps=()),
        rank(1, thread("pipe", LOAD, seconds=5.5, detail=FIFO), silent=6, steps=()),
    ]
    assert roles(hang_of(ranks, 2)) == {1: "missing", 0: "waiting"}


def test_a_wait_that_began_before_the_watch_tells_since_when_the_job_hangs() -> None:
    late = rank(1, thread("pipe", LOAD, seconds=300.0), silent=6, steps=())
    hang = hung([waiting(0, silent=6, steps=()), late], 2)
    assert (hang.since, hang.is_at_least) == (NOW - 0.5 - 300, False)
    polls = rank(1, thread("pipe", LOAD, seconds=5.5), silent=6.5, steps=())
    hang = hung([waiting(0, silent=6.5, steps=()), polls], 2)
    assert (hang.since, hang.is_at_least) == (NOW - 6.5, True)


PROMPT = CodeLine("/usr/lib/python3.11/pdb.py", "Pdb.interaction", 370)
SELECT = CodeLine("/usr/lib/python3.11/selectors.py", "EpollSelector.select", 468)
RUN_ONCE = CodeLine("/usr/lib/python3.11/asyncio/base_events.py", "BaseEventLoop._run_once", 1884)
QUEUE = CodeLine("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 103)
COMPILE = CodeLine(f"{SITE}/torch/_inductor/async_compile.py", "AsyncCompile.wait", 20)
SAVE = CodeLine(f"{SITE}/torch/serialization.py", "save", 850)
SHUTDOWN = CodeLine("/usr/lib/python3.11/threading.py", "_shutdown", 1590)
AGENT = CodeLine(f"{SITE}/torch/distributed/elastic/agent/server/api.py", "SimpleElasticAgent._invoke_run", 870)
LATE = {
    "an evaluation in plain Python": thread("python", LOAD),
    "a native library": thread("native", LOAD),
    "a wait for a CPU": thread("cpu_wait", LOAD),
    "a compilation": thread("lock", COMPILE),
    "a download": thread("socket", LOAD, seconds=0.1),
    "a checkpoint that is written": thread("file", SAVE, seconds=0.1),
    "one long fsync of a checkpoint": thread("file", SAVE, seconds=60.0),
    "a debugger's prompt": thread("file", PROMPT),
    "input()": thread("file", LOAD, detail="reads /dev/pts/3"),
    "input() of a program that another one has started": thread(
        "pipe", LOAD, detail="reads its standard input (a pipe)"
    ),
    "an idle notebook": thread("socket", SELECT, RUN_ONCE),
    "a learner that waits for actors": thread("pipe", QUEUE),
    "the end of the program": thread("lock", SHUTDOWN),
    "an agent of torchrun": thread("timer", AGENT),
    "an unknown system call that returns": thread("unknown", LOAD, seconds=0.0),
    "a sleep of a minute": thread("timer", LOAD, seconds=60.0),
    "work of the GPU in its queue": thread("gpu_wait", LOAD, seconds=60.0),
}


@pytest.mark.parametrize("main", LATE.values(), ids=LATE.keys())
def test_a_job_whose_rank_only_takes_long_does_not_hang(main: ThreadNow) -> None:
    assert hang_of([waiting(0, silent=60.0), rank(1, main, silent=60.0)], 2) is None
    assert hang_of([rank(None, main, silent=60.0)]) is None


def test_a_rank_that_makes_marks_is_alive() -> None:
    moving = rank(1, thread("lock", LOAD))
    moving.signs.add_mark(NOW)
    assert hang_of([waiting(0), moving], 2) is None


def test_a_record_that_is_old_shows_nothing() -> None:
    assert hang_of([waiting(0), rank(1, thread("lock", LOAD), silent=40, age=20)], 2) is None


def test_a_wait_for_a_worker_or_a_thread_that_computes_is_no_hang() -> None:
    busy = worker(LOAD, activity="python")
    assert hang_of([waiting(0), rank(1, thread("lock", *LOADER), children=[busy])], 2) is None
    pool = thread("native", LOAD, id_=101, is_main=False)
    assert hang_of([waiting(0), rank(1, thread("lock", LOAD), pool)], 2) is None


def test_one_look_at_a_thread_that_runs_is_no_proof_of_work() -> None:
    """A thread of gloo wakes up now and then."""
    wakes = ThreadNow(thread=9, activity=Activity.NATIVE)
    late = rank(1, thread("lock", LOAD), wakes)
    assert hang_of([waiting(0), late], 2) is None
    sleeps = ProcessThreads(
        silent=20.5, threads=(thread("lock", LOAD, seconds=21), replace(wakes, activity=Activity.LOCK))
    )
    late.signs.add_threads(NOW, sleeps)
    late.signs.add_threads(NOW + 1, replace(sleeps, silent=21.5, threads=(sleeps.threads[0], wakes)))
    assert roles(hang_of([waiting(0, silent=21), late], 2)) == {0: "waiting", 1: "missing"}


def test_a_wait_for_a_command_whose_state_is_not_known_is_no_hang() -> None:
    assert hang_of([waiting(0), rank(1, thread("child", LOAD))], 2) is None


def test_a_job_that_its_user_has_stopped_is_stopped_and_does_not_hang() -> None:
    ranks = [rank(number, thread("lock", LOAD), is_stopped=True) for number in range(2)]
    assert hang_of(ranks, 2) is None
    stop = stop_of(ranks, 2)
    assert roles(stop) == {0: "stopped", 1: "stopped"}
    assert stop is not None
    assert stop.is_stop
    assert stop_of([ranks[0], waiting(1)], 2) is None


def test_a_process_that_does_not_train_is_no_stopped_job() -> None:
    stopped = rank(None, thread("timer", AGENT), steps=(), is_stopped=True)
    assert stop_of([stopped]) is None
    assert stop_of([rank(None, thread("lock", LOAD), steps=(), is_stopped=True)]) is None
    assert stop_of([rank(None, thread("lock", LOAD), is_stopped=True)]) is not None


def test_a_rank_of_one_host_that_is_not_seen_has_ended() -> None:
    left = [rank(number, thread("socket", LOAD), has_lost_ranks=True, steps=(), silent=16) for number in (0, 2)]
    assert roles(hang_of(left, 3)) == {1: "missing", 0: "waiting", 2: "waiting"}
    assert hang_of([rank(0, thread("socket", LOAD), steps=(), silent=16)], 2) is None  # it may run elsewhere


def test_a_thread_that_waits_in_c_and_holds_the_gil_is_blocked() -> None:
    holds = thread("timer", LOAD, detail="sleeps and holds the GIL", seconds=5.0)
    assert roles(hang_of([waiting(0, silent=6), rank(1, holds, silent=6)], 2)) == {0: "waiting", 1: "missing"}


def pool(*of_worker: CodeLine) -> list[ChildNow]:
    file = "/usr/lib/python3.11/multiprocessing/pool.py"
    lines = (*of_worker, CodeLine(file, "worker", 114))
    main = ThreadNow(thread=7, is_main=True, activity=Activity.LOCK, seconds=30.0, lines=lines)
    return [ChildNow(pid=pid, threads=(main,)) for pid in (7, 8)]


POOL_GET = CodeLine("/usr/lib/python3.11/multiprocessing/pool.py", "ApplyResult.wait", 768)
EVENT = CodeLine("/usr/lib/python3.11/threading.py", "Event.wait", 629)
GETS_WORK = CodeLine("/usr/lib/python3.11/multiprocessing/queues.py", "SimpleQueue.get", 365)


def test_a_process_that_torch_has_spawned_may_hang() -> None:
    """Its rank is an argument of its function, so it trains alone for the collector."""
    started = CodeLine(f"{SITE}/torch/multiprocessing/spawn.py", "_wrap", 96)
    lines = (*BARRIER, TRAIN, started)
    main = ThreadNow(thread=100, is_main=True, activity=Activity.COLLECTIVE, seconds=20.0, lines=lines)
    assert hang_of([rank(None, main, steps=())]) is not None
    waits = CodeLine(f"{SITE}/torch/multiprocessing/spawn.py", "ProcessContext.join", 163)
    assert hang_of([rank(None, thread("pipe", waits, seconds=60.0), silent=60.0)]) is None


def test_a_pool_whose_processes_have_no_work_gives_no_result() -> None:
    waits, handler = thread("lock", EVENT, POOL_GET, LOAD), thread("pipe", QUEUE, id_=101, is_main=False)
    hang = hung([waiting(0), rank(1, waits, handler, children=pool(GETS_WORK))], 2)
    assert roles(hang) == {0: "waiting", 1: "missing"}
    assert hang.ranks[0].detail.startswith("the result of a pool whose processes have no work")
    assert hang_of([waiting(0), rank(1, waits, handler, children=pool(GETS_WORK, LOAD))], 2) is None
    between = [replace(each, threads=(replace(each.threads[0], seconds=0.1),)) for each in pool(GETS_WORK)]
    assert hang_of([waiting(0), rank(1, waits, handler, children=between)], 2) is None  # between two pieces of work


def test_a_queue_of_a_dead_child_gives_nothing() -> None:
    dead = ChildNow(pid=7, is_dead=True, ending="killed by SIGKILL")
    tracker = CodeLine("/usr/lib/python3.11/multiprocessing/resource_tracker.py", "main", 209)
    main = ThreadNow(thread=9, is_main=True, activity=Activity.PIPE, seconds=30.0, lines=(tracker,))
    waits = thread("pipe", QUEUE, LOAD)
    hang = hung([waiting(0), rank(1, waits, children=[dead, ChildNow(pid=9, threads=(main,))])], 2)
    assert hang.ranks[0].detail == "its child 7 is dead: killed by SIGKILL"
    alive = ChildNow(pid=8, threads=(thread("lock", LOAD, id_=8),))
    assert hang_of([waiting(0), rank(1, waits, children=[dead, alive])], 2) is None


def test_a_rank_in_a_collective_that_others_have_left_has_another_size() -> None:
    def at(number: int, sequence: int, still: float = 4.0) -> Rank:
        call = OpenCollective(operation="all_reduce", communicator="gloo of 2 ranks", sequence=sequence, seconds=6)
        return rank(number, thread("lock", seconds=6), silent=6, collectives=[call], still=still)

    hang = hung([at(0, 18), at(1, 17)], 2)
    assert roles(hang) == {0: "waiting", 1: "mismatched"}
    assert hang.ranks[0].detail.startswith("waits in all_reduce 17, which other ranks have left: the sizes")
    assert hang_of([at(0, 18), at(1, 17, still=0)], 2) is None  # its record may be older than that of the other one


def test_ranks_whose_collectives_end_and_begin_are_alive() -> None:
    """As in an evaluation that only gathers: it makes no marks."""

    def gathering(number: int, sequence: int) -> Rank:
        call = OpenCollective(operation="all_gather", communicator="gloo of 2 ranks", sequence=sequence, seconds=1)
        gathers = rank(number, thread("lock", seconds=0.5), silent=60, collectives=[call])
        assert gathers.signs.threads is not None
        following = replace(gathers.signs.threads, collectives=(replace(call, sequence=sequence + 1),))
        gathers.signs.add_threads(NOW + 5, following)
        return gathers._replace(now=NOW + 5)

    assert hang_of([gathering(0, 17), gathering(1, 17)], 2) is None
    assert hang_of([gathering(0, 18), gathering(1, 17)], 2) is None


def test_a_process_under_a_debugger_does_not_hang() -> None:
    assert hang_of([rank(None, thread("lock", LOAD), is_stopped=True, is_traced=True)]) is None


def test_the_end_of_training_is_no_hang() -> None:
    ended = rank(1, ending=Ending(NOW - 30, code=0))
    assert hang_of([rank(0, thread("socket", LOAD)), ended], 2) is None
    assert hang_of([ended]) is None


def test_a_rank_that_ended_well_hangs_those_that_wait_for_it() -> None:
    ended = rank(1, ending=Ending(NOW - 16, code=0), silent=16)
    assert roles(hang_of([waiting(0), ended], 2)) == {1: "dead", 0: "waiting"}


def test_ranks_without_a_step_are_a_job() -> None:
    ranks = [rank(number, thread("socket", LOAD), steps=()) for number in range(2)]
    assert roles(hang_of(ranks, 2)) == {0: "missing", 1: "missing"}


def test_a_program_without_a_sign_of_training_does_not_hang() -> None:
    assert hang_of([rank(None, thread("lock", LOAD), silent=60, steps=())]) is None


def test_ranks_that_wait_until_all_have_started_have_two_minutes() -> None:
    def starting(silent: float) -> list[Rank]:
        begins = CodeLine(C10D, "init_process_group", 1)
        return [rank(number, thread("lock", begins), silent=silent, steps=()) for number in range(2)]

    assert hang_of(starting(60), 2) is None
    assert roles(hang_of(starting(130), 2)) == {0: "waiting", 1: "waiting"}


FULL_QUEUE = CodeLine("/usr/lib/python3.11/queue.py", "Queue.put", 140)


def test_a_rank_that_others_wait_for_is_guilty_whatever_it_waits_for() -> None:
    logger = rank(0, thread("lock", FULL_QUEUE, LOAD))
    assert roles(hang_of([logger, waiting(1)], 2)) == {0: "missing", 1: "waiting"}
    looping = [rank(0, thread("socket", SELECT, RUN_ONCE, seconds=70.0), silent=70.0), waiting(1, silent=70.0)]
    assert roles(hang_of(looping, 2)) == {0: "missing", 1: "waiting"}


def test_the_users_files_may_have_the_names_of_libraries() -> None:
    for name in ("code.py", "queue.py", "selectors.py", "ray/train.py", "grpc/load.py"):
        own = CodeLine(f"/home/me/{name}", "get", 3)
        assert hang_of([rank(None, thread("lock", own))]) is not None, name
    assert hang_of([rank(None, thread("lock", CodeLine("/home/me/epoch.py", "Epoch.finish", 3)))]) is not None


def test_a_collective_of_a_background_thread_does_not_hide_the_loop() -> None:
    background = [OpenCollective(operation="broadcast", communicator="c", sequence=4, thread=555, seconds=300)]
    reads = rank(0, thread("pipe", LOAD, detail=FIFO), collectives=background)
    assert roles(hang_of([reads, waiting(1, sequence=7)], 2)) == {0: "missing", 1: "waiting"}


def test_a_command_or_a_thread_that_may_transfer_data_is_no_hang() -> None:
    transfers = thread("socket", LOAD, id_=9, seconds=0.0, is_main=False)
    child = ChildNow(pid=9, name="aws", threads=(transfers,))
    assert hang_of([waiting(0), rank(1, thread("child", LOAD), children=[child])], 2) is None
    assert hang_of([waiting(0), rank(1, thread("lock", LOAD), transfers)], 2) is None
    join = CodeLine("/usr/lib/python3.11/threading.py", "Thread.join", 1119)
    sleeps = thread("timer", LOAD, id_=9, seconds=0.4, is_main=False)
    assert hang_of([waiting(0), rank(1, thread("lock", join, LOAD), sleeps)], 2) is None
    late = rank(1, thread("lock", join, LOAD), sleeps, silent=110)
    assert roles(hang_of([waiting(0, silent=110), late], 2)) == {0: "waiting", 1: "missing"}
    assert hang_of([waiting(0), rank(1, thread("lock", LOAD), sleeps)], 2) is not None  # a lock has no such thread


def test_a_wait_that_wakes_up_is_one_if_it_looks_the_same() -> None:
    """A DataLoader looks every 5 s whether its workers are alive."""
    stuck = rank(None, thread("pipe", *LOADER, seconds=0.0), children=[worker(LOAD)])
    assert hang_of([stuck]) is None  # the first record may have met it by chance
    assert stuck.signs.threads is not None
    stuck.signs.add_threads(NOW + 6, stuck.signs.threads)
    assert hang_of([stuck._replace(now=NOW + 6)]) is not None
    other = rank(None, thread("lock", LOAD, seconds=0.0))  # it has done something since the record before
    assert other.signs.threads is not None
    other.signs.add_threads(NOW + 6, other.signs.threads)
    assert hang_of([other._replace(now=NOW + 6)]) is None


def test_a_process_that_is_silent_for_long_is_read_less_often() -> None:
    assert hang_of([waiting(0, silent=300), rank(1, thread("lock", LOAD), silent=300, age=40)], 2) is not None


WAITS_FOR_CHILD = thread("child", LOAD, detail="waits for the end of child 9 (tar)")


@pytest.mark.parametrize(
    ("child", "silent", "hangs"),
    [
        pytest.param(thread("pipe", LOAD, id_=9, detail="writes a pipe"), 9, True, id="it writes to a full pipe"),
        pytest.param(thread("lock", LOAD, id_=9), 6, True, id="it waits for a lock that it has inherited"),
        pytest.param(thread("timer", LOAD, id_=9), 60, False, id="it sleeps"),
        pytest.param(thread("pipe", LOAD, id_=9, detail="waits for a pipe"), 60, False, id="it waits for its children"),
        pytest.param(thread("socket", LOAD, id_=9), 60, False, id="it waits for a server"),
        pytest.param(thread("socket", LOAD, id_=9), 120, True, id="it waits for a server for very long"),
        pytest.param(thread("native", LOAD, id_=9), 60, False, id="it computes"),
        pytest.param(thread("socket", LOAD, id_=9, seconds=0.1), 60, False, id="it downloads"),
    ],
)  # fmt: skip
def test_a_rank_that_waits_for_a_child_hangs_as_the_child_does(child: ThreadNow, silent: float, hangs: bool) -> None:
    late = rank(1, WAITS_FOR_CHILD, silent=silent, children=[ChildNow(pid=9, name="tar", threads=(child,))])
    hang = hang_of([waiting(0, silent=silent), late], 2)
    assert (hang is not None) == hangs
    if hang:
        assert roles(hang) == {1: "missing", 0: "waiting"}
        assert hang.ranks[0].detail.startswith("its child 9 (tar) ")


def test_a_queue_of_a_stopped_child_gives_nothing() -> None:
    stopped = ChildNow(pid=7, is_stopped=True)
    hang = hung([waiting(0), rank(1, thread("socket", QUEUE, LOAD), children=[stopped])], 2)
    assert hang.ranks[0].detail == "its child 7 is stopped"


def test_a_rank_that_sleeps_again_and_again_at_one_line_is_missing_after_long() -> None:
    """As while it looks whether a file is there."""
    polls = rank(1, thread("timer", LOAD, seconds=0.5), silent=120)
    assert hang_of([waiting(0, silent=120), polls], 2) is None  # one look shows nothing
    assert polls.signs.threads is not None
    polls.signs.add_threads(NOW + 61, polls.signs.threads)
    late = waiting(0, silent=120)
    assert late.signs.threads is not None
    late.signs.add_threads(NOW + 61, late.signs.threads)
    ranks = [late._replace(now=NOW + 61), polls._replace(now=NOW + 61)]
    assert roles(hang_of(ranks, 2)) == {1: "missing", 0: "waiting"}
