"""A hang in words: the guilty ranks first, then those that wait for them."""

from otel_zernel_libraries.training.hangs import (
    HungCollective,
    HungRank,
    HungRole,
    JobHang,
    hang_advice,
    hang_sentences,
    hung_rank_text,
)
from otel_zernel_libraries.training.ledger import Activity

NOW = 1_000_000.0
WAITING = tuple(
    HungRank(rank=number, pid=number, role=HungRole.WAITING, code=("train.py:30 step",)) for number in (0, 2, 3)
)


def sentences(*guilty: HungRank, waiting: tuple[HungRank, ...] = WAITING) -> list[str]:
    collective = HungCollective("all_reduce", "w", 17) if waiting else None
    return hang_sentences(JobHang(since=NOW - 40, collective=collective, ranks=(*guilty, *waiting)), NOW)


def test_the_missing_rank_comes_first_with_its_line() -> None:
    missing = HungRank(
        rank=1,
        pid=8,
        role=HungRole.MISSING,
        activity=Activity.PIPE,
        detail="reads /data/x",
        code=("train.py:12 load", "train.py:30 step"),
    )
    assert sentences(missing) == [
        "Rank 1 has hung for 40 s: it reads /data/x in train.py:12 load",
        "Ranks 0, 2 and 3 wait for it in all_reduce 17 in train.py:30 step",
    ]


def test_a_wait_without_a_known_object_has_the_words_of_its_activity() -> None:
    alone = HungRank(pid=8, role=HungRole.MISSING, activity=Activity.FILE)
    assert sentences(alone, waiting=()) == ["The process 8 has hung for 40 s: it waits for files"]


def test_an_object_is_waited_for_and_a_worker_is_named() -> None:
    lock = HungRank(
        rank=1, pid=8, role=HungRole.MISSING, activity=Activity.LOCK, detail="the lock that it holds itself"
    )
    assert sentences(lock)[0] == "Rank 1 has hung for 40 s: it waits for the lock that it holds itself"
    worker = HungRank(
        rank=1, pid=8, role=HungRole.MISSING, activity=Activity.LOCK, detail="its DataLoader worker 9 is dead"
    )
    assert sentences(worker)[0] == "Rank 1 has hung for 40 s: its DataLoader worker 9 is dead"


def test_dead_stopped_and_absent_ranks_say_so() -> None:
    dead = HungRank(rank=1, pid=8, role=HungRole.DEAD, detail="killed by SIGKILL", code=("train.py:12 load",))
    stopped = HungRank(rank=4, pid=9, role=HungRole.STOPPED)
    absent = HungRank(rank=5, pid=0, role=HungRole.MISSING, detail="no process with this rank is seen")
    assert sentences(dead, stopped, absent) == [
        "Rank 1 has been dead for 40 s: killed by SIGKILL, last seen in train.py:12 load",
        "Rank 4 has been stopped for 40 s",
        "Rank 5 is missing: no process with this rank is seen",
        "Ranks 0, 2 and 3 wait for them in all_reduce 17 in train.py:30 step",
    ]


def test_a_stopped_job_is_stopped_with_the_command_that_continues_it() -> None:
    stopped = tuple(
        HungRank(rank=number, pid=7 + number, role=HungRole.STOPPED, detail="stopped by a signal") for number in (0, 1)
    )
    assert sentences(*stopped, waiting=()) == [
        "Ranks 0 and 1 have been stopped for 40 s. `fg` in its shell, or `kill -CONT 7 8`, continues them"
    ]
    frozen = HungRank(pid=8, role=HungRole.STOPPED, detail="stopped by the freezer of its cgroup")
    (sentence,) = sentences(frozen, waiting=())
    assert sentence.startswith("Process 8 has been stopped for 40 s. Its control group is frozen: `docker unpause`")
    assert hung_rank_text(frozen) == "pid 8: it is stopped by the freezer of its cgroup"
    (advice,) = hang_advice(JobHang(since=NOW, ranks=(stopped[1], *WAITING)))
    assert advice == "Continue it. `fg` in its shell, or `kill -CONT 8`, continues it."


def test_without_a_guilty_rank_all_wait() -> None:
    (sentence,) = sentences()
    assert sentence.startswith("Ranks 0, 2 and 3 have hung for 40 s: all wait in all_reduce 17 in train.py:30 step.")


def test_ranks_that_all_wait_for_one_socket_name_it() -> None:
    """That of a store that does not answer, for example."""
    ranks = tuple(
        HungRank(rank=number, pid=7, role=HungRole.WAITING, detail="reads from a socket of 10.0.0.7:29500")
        for number in (0, 1)
    )
    hang = JobHang(since=NOW - 40, collective=HungCollective("new_group"), ranks=ranks)
    (sentence,) = hang_sentences(hang, NOW)
    assert sentence.startswith(
        "Ranks 0 and 1 have hung for 40 s: each reads from a socket of 10.0.0.7:29500, in new_group."
    )


def test_many_ranks_are_a_range_or_a_number() -> None:
    many = tuple(HungRank(rank=number, pid=number, role=HungRole.WAITING) for number in range(64))
    stopped = HungRank(rank=70, pid=9, role=HungRole.STOPPED)
    assert sentences(stopped, waiting=many)[1] == "Ranks 0 to 63 wait for it in all_reduce 17"
    assert sentences(stopped, waiting=many[::2])[1].startswith("Ranks 0, 2, 4, 6, 8, 10, 12, 14 and 24 more wait")


def test_long_times_are_minutes_and_hours() -> None:
    alone = (HungRank(pid=8, role=HungRole.MISSING, activity=Activity.FILE),)
    for seconds, words in ((119, "119 s"), (720, "12 min"), (10_800, "3 h")):
        assert f"has hung for {words}:" in hang_sentences(JobHang(since=NOW - seconds, ranks=alone), NOW)[0]


def test_a_hang_whose_begin_was_not_seen_lasts_at_least_so_long() -> None:
    alone = (HungRank(pid=8, role=HungRole.MISSING, activity=Activity.FILE),)
    (sentence,) = hang_sentences(JobHang(since=NOW - 40, is_at_least=True, ranks=alone), NOW)
    assert sentence.startswith("The process 8 has hung for at least 40 s: ")


def test_names_of_strangers_control_no_terminal() -> None:
    evil = HungRank(rank=1, pid=8, role=HungRole.MISSING, detail="reads /tmp/\x1b[31m", code=("\x1b]0;x.py:1 f",))
    assert all(sentence.isprintable() for sentence in sentences(evil))
    assert hung_rank_text(evil).isprintable()


def test_processes_without_ranks_have_their_pids() -> None:
    waiting = (HungRank(pid=9, role=HungRole.WAITING), HungRank(pid=7, role=HungRole.WAITING))
    dead = HungRank(pid=8, role=HungRole.DEAD, detail="killed by SIGKILL")
    assert sentences(dead, waiting=waiting) == [
        "The process 8 has been dead for 40 s: killed by SIGKILL",
        "Processes 7 and 9 wait for it in all_reduce 17",
    ]
    assert sentences(waiting=waiting)[0].startswith("Processes 7 and 9 have hung for 40 s: all wait in all_reduce 17")
    (advice,) = hang_advice(JobHang(since=NOW, ranks=(dead,)))
    assert advice.startswith("Read the log of process 8,")
