"""Standard input is read like a file, without delaying the end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.receivers.csv.running import HEADER, LAYOUT, rows

STDIN_PROGRAM = f"""
import asyncio
from tests.receivers.csv.running import points_of, receiver
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context

async def emit(batch, *, transport=""):
    print(batch.point_count, flush=True)

async def main():
    config = dict(files=["-"], layout={LAYOUT!r})
    running = asyncio.ensure_future(receiver(make_context(clock=SystemClock()), **config).run(emit))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler({signal.SIGTERM.value}, running.cancel)
    await asyncio.wait([running])
    print("cancelled" if running.cancelled() else running.exception() or "ended", flush=True)

asyncio.run(main())
"""


def stdin_program() -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root), str(root / "receivers")])
    return subprocess.Popen(
        [sys.executable, "-c", STDIN_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_rows_of_standard_input_are_emitted_at_once_and_waiting_does_not_delay_the_end() -> None:
    with stdin_program() as program:
        assert program.stdin
        assert program.stdout
        program.stdin.write((HEADER + rows(3)).encode())
        program.stdin.flush()
        assert program.stdout.readline() == b"3\n"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.readline() == b"cancelled\n"
        assert program.wait() == 0
