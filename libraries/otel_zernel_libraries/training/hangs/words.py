"""A hang in words."""

from collections.abc import Iterator, Sequence

from otel_zernel.text import printable
from otel_zernel_libraries.training.hangs.job_hang import HungCollective, HungRank, HungRole, JobHang
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import OpenCollective
from otel_zernel_libraries.training.words import activity_words

_MOST_RANKS = 8
_FROZEN = "cgroup"
"""The end of the detail of a process that a control group has stopped."""


def hang_sentences(hang: JobHang, now: float) -> list[str]:
    """The guilty ranks first, then those that wait. `now`: s since 1970."""
    time = f"{'at least ' if hang.is_at_least else ''}{age_words(max(now - hang.since, 0.0))}"
    if hang.is_stop:
        return [_stop(hang.ranks, time)]
    waiting = [rank for rank in hang.ranks if rank.role is HungRole.WAITING]
    guilty = [rank for rank in hang.ranks if rank.role is not HungRole.WAITING]
    if not guilty:
        subject = f"{_ranks(waiting)} {'have' if len(waiting) > 1 else 'has'} hung for {time}"
        objects = {rank.detail for rank in waiting}
        if len(objects) == 1 and (detail := printable(objects.pop())):
            return [f"{subject}: each {detail}, in {_collective(hang)}{_at(waiting)}. Look at the other end"]
        look = "Look at the network, at the GPUs, and at ranks that are not seen here"
        return [f"{subject}: all wait in {_collective(hang)}{_at(waiting)}. {look}"]
    sentences = list(_guilty(guilty, time))
    if waiting:
        whom = "it" if len(guilty) == 1 else "them"
        subject = f"{_ranks(waiting)} {'wait' if len(waiting) > 1 else 'waits'} for {whom}"
        sentences.append(f"{subject} in {_collective(hang)}{_at(waiting)}")
    return sentences


def _stop(ranks: Sequence[HungRank], time: str) -> str:
    """All ranks are stopped."""
    subject = f"{_ranks(ranks)} {'have' if len(ranks) > 1 else 'has'} been stopped for {time}{_at(ranks)}"
    return f"{subject}. {_continuation(ranks)}"


def _continuation(ranks: Sequence[HungRank]) -> str:
    """How to continue them."""
    them = "them" if len(ranks) > 1 else "it"
    if any(rank.detail.endswith(_FROZEN) for rank in ranks):
        return f"Its control group is frozen: `docker unpause`, or a 0 in its `cgroup.freeze`, continues {them}"
    pids = " ".join(str(rank.pid) for rank in ranks[:_MOST_RANKS])
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"`fg` in its shell, or `kill -CONT {pids}`{more}, continues {them}"


def hung_rank_text(rank: HungRank) -> str:
    """`rank 1 (pid 8, missing): it reads /data/x`."""
    name = f"pid {rank.pid}" if rank.rank is None else f"rank {rank.rank} (pid {rank.pid}, {rank.role})"
    doing = printable(rank.detail) if rank.pid == 0 or rank.role is HungRole.DEAD else _clause(rank)
    return f"{name}: {doing}"


def hang_advice(hang: JobHang) -> Iterator[str]:
    """What to try, for the first of the guilty ranks."""
    first = hang.ranks[0]
    where = f" on {printable(first.host)}" if first.host else ""
    if hang.is_stop:
        return
    if first.role is HungRole.STOPPED:
        yield f"Continue it{where}. {_continuation([first])}."
    elif first.role is HungRole.DEAD:
        name = f"process {first.pid}" if first.rank is None else f"rank {first.rank}"
        yield f"Read the log of {name}{where}, and start the job again: the others can not go on."
    elif first.role is HungRole.MISMATCHED:
        yield "Let all ranks call the same collectives, in the same order and with equal sizes."
        yield "Look for a collective below `if rank == 0`, and for ranks with fewer batches."
    elif first.role is HungRole.WAITING:
        yield "Look at the network and at the GPUs: `dmesg` for XIDs, and `NCCL_DEBUG=INFO`."
        yield "If sizes of tensors may differ: `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares them in a new run."
    elif first.detail.startswith("its DataLoader worker"):
        yield "Look at the dataset's code in the worker, for locks and threads that it has inherited by fork."
    elif first.activity in (Activity.FILE, Activity.PIPE, Activity.SOCKET):
        yield f"Check that the other end answers{where}: the mount, the server, or the program that writes."
    elif first.activity in (Activity.LOCK, Activity.GIL):
        yield "Look for the thread that holds the lock: the lines of code show where this one waits."


def collective_words(collective: HungCollective | OpenCollective) -> str:
    """`all_reduce 17`."""
    if collective.operation == "backward":
        return "a collective of the backward pass"
    operation = printable(collective.operation)
    return f"{operation} {collective.sequence}" if collective.sequence else operation


def _guilty(ranks: Sequence[HungRank], time: str) -> Iterator[str]:
    for rank in ranks[:_MOST_RANKS]:
        name = f"The process {rank.pid}" if rank.rank is None else f"Rank {rank.rank}"
        if rank.role is HungRole.DEAD:
            last = f", last seen in {printable(rank.code[0])}" if rank.code else ""
            yield f"{name} has been dead for {time}: {printable(rank.detail)}{last}"
        elif rank.role is HungRole.STOPPED:
            yield f"{name} has been stopped for {time}{_at([rank])}"
        elif rank.pid == 0:
            yield f"{name} is missing: {printable(rank.detail)}"
        else:
            doing = _clause(rank)
            yield f"{name} has hung for {time}: {doing}{_at([rank])}"
    if len(ranks) > _MOST_RANKS:
        yield f"So do {len(ranks) - _MOST_RANKS} more ranks"


def _clause(rank: HungRank) -> str:
    """`it reads /data/x`, `it waits for the lock that it holds itself`, `its DataLoader worker 7 is dead`."""
    if not rank.detail:
        activity = rank.activity or Activity.UNKNOWN
        is_known = activity is not Activity.UNKNOWN
        return f"it {activity_words(activity)}" if is_known else "it waits, for something that is not known"
    detail = printable(rank.detail)
    if detail.startswith("its "):
        return detail
    if rank.role is HungRole.STOPPED:
        return f"it is {detail}"
    return f"it waits for {detail}" if detail.startswith(("the ", "a ", "an ")) else f"it {detail}"


def _collective(hang: JobHang) -> str:
    return collective_words(hang.collective) if hang.collective else "a collective"


def _at(ranks: Sequence[HungRank]) -> str:
    """The line of code, if all ranks are at the same one."""
    lines = {rank.code[0] for rank in ranks if rank.code}
    return f" in {printable(lines.pop())}" if len(lines) == 1 else ""


def age_words(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _ranks(ranks: Sequence[HungRank]) -> str:
    """`Rank 3`, `Ranks 0, 2 and 3`, `Ranks 0 to 6`; without numbers of ranks, `Process 4711`."""
    numbers = sorted(rank.rank for rank in ranks if rank.rank is not None)
    singular, several = ("Rank", "Ranks") if numbers else ("Process", "Processes")
    numbers = numbers or sorted(rank.pid for rank in ranks)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{several} {numbers[0]} to {numbers[-1]}"
    shown = [str(number) for number in numbers[:_MOST_RANKS]]
    if len(numbers) > _MOST_RANKS:
        return f"{several} {', '.join(shown)} and {len(numbers) - _MOST_RANKS} more"
    return f"{singular} {shown[0]}" if len(shown) == 1 else f"{several} {', '.join(shown[:-1])} and {shown[-1]}"
