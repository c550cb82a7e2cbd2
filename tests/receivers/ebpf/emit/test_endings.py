"""Ends of processes are emitted at once, with their reasons."""

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.ring import Wakeup
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, endings_of

SYNC = "zernel.cuda.sync.wait"
ERROR = 2
CALLS = "import ctypes, os, signal, sys; [ctypes.CDLL(sys.argv[1]).cudaDeviceSynchronize() for _ in range(7)]; "


@pytest.fixture
def attached(watch: Watch, standin: Standin) -> Watch:
    """A session whose probes are on before a process starts."""
    with standin.start(loads=["libcudart.so.12"]):
        watch.attach()
    watch.read()
    watch.taken()
    return watch


def ran(standin: Standin, code: str) -> int:
    """Runs a Python that makes seven calls and then ends with this code. Returns its pid."""
    command = [sys.executable, "-c", CALLS + code, str(standin.cudart)]
    with subprocess.Popen(command, env={**os.environ, "LD_LIBRARY_PATH": str(standin.folder)}) as process:
        process.wait()
    return process.pid


def ending(batch: Batch, pid: int) -> tuple[dict[str, object], bool]:
    """The attributes of a process's only span about its end, and whether its status is an error."""
    (span,) = endings_of(batch, pid)
    assert span.name == "process"
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    attributes = {name: value for name, value in attributes_of(span).items() if "process" in name}
    return attributes, span.status.code == ERROR


@pytest.mark.parametrize(
    ("code", "attributes", "is_error"),
    [
        ("", {"zernel_process_end": "exit", "process_exit_code": 0}, False),
        ("sys.exit(3)", {"zernel_process_end": "exit", "process_exit_code": 3}, True),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            {"zernel_process_end": "signal", "zernel_process_signal": 9, "process_signal": "SIGKILL"},
            True,
        ),
        (
            "signal.signal(11, signal.SIG_DFL); os.kill(os.getpid(), 11)",
            {"zernel_process_end": "signal", "zernel_process_signal": 11, "process_signal": "SIGSEGV"},
            True,
        ),
        ("os.execv('/bin/true', ['x'])", {"zernel_process_end": "exec", "zernel_process_exec": "true"}, False),
    ],
)
def test_the_span_of_a_process_has_the_reason_of_its_end(
    attached: Watch, standin: Standin, code: str, attributes: dict[str, object], is_error: bool
) -> None:
    pid = ran(standin, code)
    assert ending(attached.read(), pid) == (attributes, is_error)


def test_each_child_process_has_an_end_of_its_own(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaDeviceSynchronize")
        program.do("cudaDeviceSynchronize times=2 forks=3")
        batch = watch.read()
        assert endings_of(batch, program.pid) == []
        children = {int(pid) for pid in program.log["pid"]} - {program.pid}
        assert [len(endings_of(batch, child)) for child in children] == [1] * 3
        watch.taken()
        program.kill()
        attributes, _ = ending(watch.read(), program.pid)
    assert attributes["zernel_process_signal"] == 9


def test_a_process_without_probed_calls_has_no_span(attached: Watch) -> None:
    subprocess.run(["true"], check=True)
    assert "traces" not in attached.read().signals


class SilentWakeup(Wakeup):
    """Never becomes readable."""

    def __init__(self) -> None:
        self._epoll = select.epoll()


@contextlib.asynccontextmanager
async def rarely_received(standin: Standin, *, is_woken: bool = True) -> AsyncIterator[Downstream]:
    """The batches of a receiver that reads once an hour, after its probes are on."""
    context = make_context(clock=SystemClock())
    attached: list[Session] = []

    class Attaching(Session):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if not is_woken:
                self.wakeup = SilentWakeup()

        def attach(self) -> None:
            super().attach()
            attached.append(self)

    config = EbpfConfig.model_validate({"interval": "1h"})
    receiver, downstream = EbpfReceiver(config, context, Attaching.open), Downstream()
    with standin.start(loads=["libcudart.so.12"]):
        running = asyncio.create_task(receiver.run(downstream))
        try:
            await until(lambda: attached)
            yield downstream
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_the_last_counts_are_emitted_at_once(loadable: None, standin: Standin) -> None:
    codes = ("", "os.kill(os.getpid(), signal.SIGKILL)", "os.execv('/bin/true', ['x'])", "")
    async with rarely_received(standin) as downstream:
        for number, code in enumerate(codes, 1):
            pid = await asyncio.to_thread(ran, standin, code)
            await until(lambda: any(endings_of(batch, pid) for batch in downstream.batches))  # noqa: B023
            assert sum(calls(batch, SYNC, process_pid=pid) for batch in downstream.batches) == 7
            assert sum("traces" in batch.signals for batch in downstream.batches) == number


async def test_an_end_is_emitted_at_once_without_a_wakeup(loadable: None, standin: Standin) -> None:
    """The ring buffer is readable until its events are moved, which may happen before the wakeup is handled."""
    async with rarely_received(standin, is_woken=False) as downstream:
        pid = await asyncio.to_thread(ran, standin, "")
        await until(lambda: any(endings_of(batch, pid) for batch in downstream.batches))
