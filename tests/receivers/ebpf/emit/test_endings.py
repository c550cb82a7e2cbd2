"""Ends of processes are told at once, and how they came."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, endings_of

SYNC = "zernel.cuda.sync.wait"
ERROR = 2
CALLS = "import ctypes, os, signal, sys; [ctypes.CDLL(sys.argv[1]).cudaDeviceSynchronize() for _ in range(7)]; "


@pytest.fixture
def attached(watch: Watch, standin: Standin) -> Watch:
    """A watch whose probes are in place before a process begins."""
    with standin.start() as program:
        program.do("load libcudart.so.12")
        watch.attach()
    watch.read()
    watch.taken()
    return watch


def ran(standin: Standin, code: str) -> int:
    """The pid of a Python that has made seven calls and then ended by this code."""
    command = [sys.executable, "-c", CALLS + code, str(standin.cudart)]
    with subprocess.Popen(command, env={**os.environ, "LD_LIBRARY_PATH": str(standin.folder)}) as process:
        process.wait()
    return process.pid


def ending(batch: Batch, pid: int) -> tuple[dict[str, object], bool]:
    """What the only span of a process tells of its end, and whether that is an error."""
    (span,) = endings_of(batch, pid)
    assert span.name == "process"
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    told = {name: value for name, value in attributes_of(span).items() if "process" in name}
    return told, span.status.code == ERROR


@pytest.mark.parametrize(
    ("code", "told", "is_error"),
    [
        ("", {"zernel_process_end": "exit", "process_exit_code": 0}, False),
        ("sys.exit(3)", {"zernel_process_end": "exit", "process_exit_code": 3}, True),
        ("os.kill(os.getpid(), signal.SIGKILL)", {"zernel_process_end": "signal", "zernel_process_signal": 9}, True),
        (
            "signal.signal(11, signal.SIG_DFL); os.kill(os.getpid(), 11)",
            {"zernel_process_end": "signal", "zernel_process_signal": 11},
            True,
        ),
        ("os.execv('/bin/true', ['x'])", {"zernel_process_end": "exec", "zernel_process_exec": "true"}, False),
    ],
)
def test_an_end_is_told_with_its_reason(
    attached: Watch, standin: Standin, code: str, told: dict[str, object], is_error: bool
) -> None:
    pid = ran(standin, code)
    assert ending(attached.read(), pid) == (told, is_error)


def test_children_end_by_themselves(watch: Watch, standin: Standin) -> None:
    with standin.start() as program:
        program.do("load libcudart.so.12")
        watch.attach()
        program.do("cudaDeviceSynchronize")
        program.do("cudaDeviceSynchronize times=2 forks=3")
        batch = watch.read()
        assert endings_of(batch, program.pid) == []
        children = {int(pid) for pid in program.log["pid"]} - {program.pid}
        assert [len(endings_of(batch, child)) for child in children] == [1] * 3
        watch.taken()
        program.kill()
        told, _ = ending(watch.read(), program.pid)
    assert told["zernel_process_signal"] == 9


def test_what_made_no_probed_call_is_not_told(attached: Watch) -> None:
    subprocess.run(["true"], check=True)
    assert not attached.read().has_spans


@contextlib.asynccontextmanager
async def rarely_received(standin: Standin) -> AsyncIterator[Downstream]:
    """What a receiver that reads once in an hour hands on, once its probes are in place."""
    context = make_context(clock=SystemClock())
    attached: list[Session] = []

    class Attaching(Session):
        def attach(self) -> None:
            super().attach()
            attached.append(self)

    config = EbpfConfig.model_validate({"interval": "1h"})
    receiver, downstream = EbpfReceiver(config, context, Attaching.open), Downstream()
    with standin.start() as program:
        program.do("load libcudart.so.12")
        running = asyncio.create_task(receiver.run(downstream))
        try:
            await until(lambda: attached)
            yield downstream
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.mark.parametrize("code", ["", "os.kill(os.getpid(), signal.SIGKILL)", "os.execv('/bin/true', ['x'])"])
async def test_the_last_counts_come_at_once(loadable: None, standin: Standin, code: str) -> None:
    async with rarely_received(standin) as downstream:
        for expected in (1, 2):
            pid = await asyncio.to_thread(ran, standin, code)
            await until(lambda: any(endings_of(batch, pid) for batch in downstream.batches))  # noqa: B023
            assert sum(calls(batch, SYNC, process_pid=pid) for batch in downstream.batches) == 7
            assert sum(bool(batch.has_spans) for batch in downstream.batches) == expected
