"""What threads do, by /proc alone: real threads that wait for something known."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from otel_zernel_commands.why.watch import SampledThread, ThreadSampler
from otel_zernel_commands.why.watch.thread_activities import interpreter_data
from otel_zernel_libraries.training.ledger import Activity

JOB = Path(__file__).parent / "jobs/thread_waits.py"
POOL = """
import hashlib, os, threading
pool = [threading.Thread(target=lambda: [hashlib.sha256(bytes(1 << 20)) for _ in range(9)]) for _ in range(16)]
for one in pool: one.start()
print(flush=True)
input()
for one in pool: one.join()
threading.Thread(target=os.read, args=(os.pipe()[0], 1), daemon=True).start()
print(flush=True)
input()
"""


@contextmanager
def waiting(*options: str) -> Iterator[int]:
    """The pid of a program whose threads wait."""
    with subprocess.Popen([sys.executable, JOB, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdin
        assert job.stdout
        try:
            assert job.stdout.readline() == b"ready\n"
            yield job.pid
        finally:
            job.stdin.close()


def threads_of(pid: int, is_enough: Callable[[list[SampledThread]], bool]) -> list[SampledThread]:
    """The threads of a process after so many looks that there is enough."""
    sampler = ThreadSampler(lambda: [pid])
    for _ in range(5_000):
        sampler.look(monotonic())
        threads = [thread for program in sampler.programs() for thread in program.threads]
        if is_enough(threads):
            return threads
        sleep(0.002)
    pytest.fail(f"not enough was seen: {threads}")


def test_each_wait_has_its_name() -> None:
    waits = {activity.value for activity in Activity} - {Activity.PYTHON.value}  # the name of the main thread

    def named(threads: list[SampledThread]) -> list[SampledThread]:
        return [thread for thread in threads if thread.name.split()[0] in waits]

    def is_enough(threads: list[SampledThread]) -> bool:
        """A thread may not have come to its wait at the first looks."""
        return len(named(threads)) == 10 and all(thread.waits.total() >= 20 for thread in named(threads))

    with waiting() as pid:
        threads = threads_of(pid, is_enough)
    for thread in named(threads):
        [(what, count)] = thread.waits.most_common(1)
        assert what == thread.name.split()[0]
        assert count >= 0.75 * thread.waits.total()


def test_threads_that_wait_for_the_lock_of_the_interpreter_are_told_from_others() -> None:
    def both(threads: list[SampledThread]) -> list[SampledThread]:
        return [thread for thread in threads if thread.name.startswith("gil")]

    def is_enough(threads: list[SampledThread]) -> bool:
        return len(both(threads)) == 2 and all(thread.waits[Activity.GIL] >= 10 for thread in both(threads))

    with waiting("gil") as pid:
        threads = threads_of(pid, is_enough)
    for thread in both(threads):
        assert thread.shares[Activity.GIL] > thread.shares.get(Activity.LOCK, 0.0)
        assert thread.cpu > 0


def test_threads_that_have_ended_leave_their_places_to_others() -> None:
    def newest(threads: list[SampledThread]) -> SampledThread:
        return max(threads, key=lambda thread: thread.tid)

    command = [sys.executable, "-c", POOL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin
        assert job.stdout
        job.stdout.readline()
        sampler = ThreadSampler(lambda: [job.pid])
        for now in range(4):
            sampler.look(float(now))
        print(file=job.stdin, flush=True)
        job.stdout.readline()
        for now in range(4, 5_000):
            sampler.look(float(now))
            [program] = sampler.programs()
            if newest(program.threads).waits[Activity.PIPE] >= 20:
                break
            sleep(0.002)
        job.stdin.close()
    assert newest(program.threads).waits[Activity.PIPE] >= 20


def test_shares_of_a_thread_add_up_to_its_time() -> None:
    thread = SampledThread(1, "python", cpu=2.0, cpu_wait=1.0, watched=10.0)
    thread.waits.update({Activity.FILE: 30, Activity.LOCK: 10})
    shares = thread.shares
    assert list(shares) == [Activity.FILE, Activity.LOCK, Activity.CPU_WAIT]
    assert shares[Activity.FILE] == pytest.approx(0.7 * 0.75)
    assert sum(shares.values()) + 0.2 == pytest.approx(1.0)
    assert SampledThread(1, "python", watched=1.0).shares[Activity.UNKNOWN] == 1.0


def test_an_ended_process_is_kept_with_what_was_seen() -> None:
    with waiting() as pid:
        sampler = ThreadSampler(lambda: [pid])
        sampler.look(0.0)
        sampler.look(1.0)
    sampler.look(2.0)
    [program] = sampler.programs()
    assert program.watched == 1.0
    assert program.command[1].endswith("thread_waits.py")
    assert os.getpid() in program.ancestors


def test_the_interpreters_variables_end_with_its_zeroed_memory() -> None:
    maps = """\
00400000-00500000 r-xp 00000000 08:01 1 /usr/bin/python3.12
00900000-00a00000 rw-p 00500000 08:01 1 /usr/bin/python3.12
00a00000-00b00000 rw-p 00000000 00:00 0
01000000-02000000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 rw-p 00100000 08:01 2 /opt/py 3/lib/libpython3.11.so.1.0
7f0000001000-7f0000002000 rw-p 00000000 00:00 0
7f0000003000-7f0000004000 rw-p 00000000 08:01 3 /lib/libc.so.6
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""
    assert interpreter_data(maps) == [(0x900000, 0xB00000), (0x7F0000000000, 0x7F0000002000)]
