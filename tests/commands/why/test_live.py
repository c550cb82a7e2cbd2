"""The real command on real training programs: it needs root, eBPF and PyTorch."""

import asyncio
import fcntl
import importlib.util
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from docs.why_schema import PATH
from otel_zernel.testing import until
from otel_zernel_libraries.training.amounts import amount, percent
from tests.commands.why.chromium import browsing
from tests.frameworks.running import PYTHON, require_frameworks
from tests.receivers.ebpf.watching import require_ebpf

JOBS = Path(__file__).parent / "jobs"
LONGEST = 240
"""Seconds that a program trains at most. It is stopped when its test is over."""
PATIENCE = 120.0
"""Seconds for a program to import PyTorch on a busy machine."""
WATCH = "10s"
WHY = (sys.executable, "-m", "otel_zernel", "why")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")

pytestmark = pytest.mark.timeout(300)


def uses_torch(pid: int) -> bool:
    """Whether the process, or one of its children, has loaded PyTorch."""
    with suppress(psutil.Error):
        return any("libtorch_cpu.so" in mapped.path for one in family(pid) for mapped in one.memory_maps())
    return False


def family(pid: int) -> list[psutil.Process]:
    """The process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        program = psutil.Process(pid)
        return [program, *program.children(recursive=True)]
    return []


def require_torch() -> None:
    require_ebpf()
    if importlib.util.find_spec("torch") is None:
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)("torch is not installed: make peers")


@asynccontextmanager
async def training(*words: str) -> AsyncIterator[int]:
    """Trains until the end of the block. The value is the pid of the program, or of its launcher."""
    require_torch()
    job = await asyncio.create_subprocess_exec(
        sys.executable, *words, str(LONGEST),
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until(lambda: uses_torch(job.pid), within=PATIENCE)
        yield job.pid
    finally:
        for one in family(job.pid):  # a process group is not enough: torchrun gives each rank its own
            with suppress(psutil.NoSuchProcess):
                one.kill()
        await job.wait()


OF_SUDO = {"SUDO_UID": "65534", "SUDO_GID": "65534"}
"""The environment of a command that user 65534 has called by sudo."""


async def why(*words: str, caller: Mapping[str, str] = OF_SUDO) -> tuple[int, str, str]:
    """The status, the output and the errors of a finished command."""
    environment = {**os.environ, **caller}
    command = await asyncio.create_subprocess_exec(
        *WHY, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    async with ending(command):
        output, errors = await command.communicate()
    return command.returncode or 0, output.decode(), errors.decode()


@asynccontextmanager
async def ending(command: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """Kills the command at the end of the block if it still runs, for example after a failure."""
    try:
        yield
    finally:
        if command.returncode is None:
            command.kill()
        await command.wait()


async def test_a_slow_loader_is_named_in_text_json_and_page(tmp_path: Path) -> None:
    async with training(str(JOBS / "slow_loader.py")) as pid:
        for _ in range(3):  # on a busy machine, other programs cost the job more
            status, output, errors = await why(str(pid), "--for", WATCH, "--json", "--html", str(tmp_path / "why.html"))
            assert status == 0, errors
            [job] = json.loads(output)["jobs"]
            sleeps = next((row["per_step"] for row in job["time"] if is_of_sleeps(row)), 0.0)
            causes = [one for one in job["causes"] if is_of_sleeps(one)]
            if [cause["gain"] for cause in causes] == pytest.approx([sleeps], rel=0.3):
                break
        text_status, text, _ = await why("--job", "slow_loader.py", "--for", "5s")
    assert job["title"] == "slow_loader.py"
    assert job["ranks"][0]["pid"] == pid
    assert job["step"]["p50"] > 0.032  # 8 samples of 4 ms
    assert sleeps >= 8 * 0.004  # longer if the machine is busy
    [cause] = causes
    assert cause["gain"] == pytest.approx(sleeps, rel=0.3)
    assert any("num_workers" in one for one in cause["advice"])
    jsonschema.validate(json.loads(output), json.loads(PATH.read_text("utf-8")))
    assert text_status == 0
    assert "data loading: sleeps" in text
    assert "\x1b" not in text

    assert (tmp_path / "why.html").stat().st_uid == 65534
    with browsing(tmp_path) as tab:
        tab.open((tmp_path / "why.html").as_uri(), 1200, 900, "light")
        assert tab.evaluate("document.querySelector('h1').textContent") == job["why"]
        tiles = tab.evaluate("[...document.querySelectorAll('.tiles b')].map((one) => one.textContent)")
        step = job["step"]
        assert tiles == [
            *(amount(step[name]) for name in ("p50", "p90", "p99", "longest")),
            percent(step["jitter"]),
            f"{step['count']:,}",
        ]
        assert (
            tab.evaluate("JSON.parse(document.getElementById('data').textContent).jobs[0].ranks[0].bars.length") > 100
        )
        assert (tab.complaints, tab.requests) == ([], [])


@pytest.mark.soak
async def test_a_job_of_two_thousand_steps_a_second_gets_an_answer() -> None:
    async with training(str(JOBS / "short_steps.py")) as pid:
        status, output, errors = await why(str(pid), "--for", WATCH, "--json")
    assert status == 0, errors
    [job] = json.loads(output)["jobs"]
    assert job["verdict"] != "lost_events"
    assert job["causes"] or job["best"]


def is_of_sleeps(row: Mapping[str, object]) -> bool:
    return (row["position"], row["activity"]) == ("load", "timer")


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param((*TORCHRUN, "--nproc-per-node=3"), id="torchrun"),
        pytest.param((), id="spawn", marks=pytest.mark.soak),
    ],
)
async def test_a_slow_rank_is_named(launcher: tuple[str, ...]) -> None:
    async with training(*launcher, str(JOBS / "slow_rank.py")) as pid:
        for _ in range(3):  # other programs on the machine may delay another rank
            status, output, errors = await why(str(pid), "--for", WATCH, "--json")
            assert status == 0, errors
            [job] = json.loads(output)["jobs"]
            late = [cause["rank"] for cause in job["causes"] if cause["cause"] == "straggler"]
            if late == [1]:
                break
    assert late == [1]
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1, 2]
    assert max(job["ranks"], key=lambda rank: rank["lateness"])["rank"] == 1


class OnTerminal:
    """A running command whose progress line is on a terminal of 60 columns."""

    def __init__(self, command: asyncio.subprocess.Process, terminal: int) -> None:
        self.command = command
        self._terminal = terminal
        self._shown = ""

    @classmethod
    @asynccontextmanager
    async def start(cls, *words: str) -> "AsyncIterator[OnTerminal]":
        terminal, of_command = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        os.set_blocking(terminal, False)
        command = await asyncio.create_subprocess_exec(*WHY, *words, stdout=subprocess.PIPE, stderr=of_command)
        os.close(of_command)
        try:
            async with ending(command):
                yield cls(command, terminal)
        finally:
            os.close(terminal)

    def has_shown(self, pattern: str) -> bool:
        """Whether the progress line has ever had this text."""
        with suppress(OSError):
            self._shown += os.read(self._terminal, 65_536).decode(errors="replace")
        return re.search(pattern, self._shown) is not None

    async def end(self) -> tuple[int, str]:
        """The status and the output of the command."""
        output, _ = await self.command.communicate()
        return self.command.returncode or 0, output.decode()


SEVERAL_STEPS = r"slow_loader\.py: \d\d+ steps"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_early_with_the_report_so_far(number: signal.Signals) -> None:
    async with training(str(JOBS / "slow_loader.py")) as pid, OnTerminal.start(str(pid), "--for", "1h") as why:
        await until(lambda: why.has_shown(SEVERAL_STEPS), within=PATIENCE)
        why.command.send_signal(number)
        status, output = await why.end()
    assert status == 0
    title = r"slow_loader\.py · pid \d+ on \S+ · \d+ steps in \S+ m?s,\s+ended early"
    assert re.match(title, output)
    assert "data loading: sleeps" in output


async def test_the_end_of_the_job_ends_the_watch() -> None:
    async with (
        training(str(JOBS / "slow_loader.py")) as pid,
        OnTerminal.start(str(pid), "--for", "1h", "--json") as why,
    ):
        await until(lambda: why.has_shown(SEVERAL_STEPS), within=PATIENCE)
        os.kill(pid, signal.SIGTERM)
        status, output = await why.end()
    assert status == 0
    tree = json.loads(output)
    assert not tree["interrupted"]
    assert tree["seconds"] < LONGEST
    assert tree["jobs"][0]["step"]["count"] >= 10


async def test_a_started_job_is_watched_from_its_first_step_and_gives_its_exit_status() -> None:
    require_torch()
    program = (sys.executable, str(JOBS / "slow_loader.py"), "30", "20", "7")
    status, output, errors = await why("--json", "--", *program, caller={})
    assert status == 7, "that of the program"
    assert "done after 20 steps" in errors, "its output is not in the JSON"
    [job] = json.loads(output)["jobs"]
    assert job["title"] == "slow_loader.py"
    assert job["step"]["count"] in (19, 20), "the end of the program may cut off the last one"
    assert job["start"]["first_step_after"] > 0


async def test_ctrl_c_stops_a_started_job_and_prints_the_report() -> None:
    require_torch()
    words = ("--for", "1h", "--json", "--", sys.executable, "-u", str(JOBS / "slow_loader.py"), str(LONGEST), "100000")
    async with OnTerminal.start(*words) as why:
        await until(lambda: why.has_shown("after 10 steps"), within=PATIENCE)
        why.command.send_signal(signal.SIGINT)
        status, output = await why.end()
    assert status == 130
    tree = json.loads(output)
    assert tree["interrupted"]
    assert tree["jobs"][0]["step"]["count"] >= 9


async def test_a_started_program_without_steps_has_a_report_too() -> None:
    require_ebpf()
    sleeping = (sys.executable, "-c", "import time; time.sleep(2); print('out')")
    status, output, errors = await why("--", *sleeping, caller={})
    assert status == 0, errors
    assert output.startswith("out\n")
    assert "This program has not loaded PyTorch" in output


async def test_a_started_program_that_fails_at_once_gives_its_exit_status() -> None:
    require_ebpf()
    status, output, errors = await why("--", "sh", "-c", "exit 3", caller={})
    assert (status, output) == (3, "")
    assert re.search(
        r"^Error: the program ended in \d+ s with status 3, and took no training step$", errors, re.MULTILINE
    )


async def test_without_a_job_it_says_what_it_looked_for_and_what_it_cannot_see() -> None:
    require_ebpf()
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: it hides the other jobs of this machine")
    hidden = ("unshare", "--pid", "--fork", "--mount-proc", *WHY, "--for", "5s")
    command = await asyncio.create_subprocess_exec(*hidden, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = await command.communicate()
    assert (command.returncode, output) == (1, b"")
    sentence = r"Error: no training job is running: none of the \d+ processes that are seen uses PyTorch, CUDA or NCCL"
    assert re.match(rf"{sentence}\. Only the processes of this PID namespace are seen", errors.decode())


async def test_a_process_that_is_no_training_says_what_its_thread_does() -> None:
    require_ebpf()
    sleeping = await asyncio.create_subprocess_exec("sleep", "300")
    async with ending(sleeping):
        status, output, errors = await why(str(sleeping.pid), "--json")
    assert status == 0, errors
    tree = json.loads(output)
    [job] = tree["jobs"]
    assert tree["seconds"] < 30, "and not for a minute"
    assert job["why"].endswith("Its main thread sleeps 100 % of the time.")


@asynccontextmanager
async def fitting(work: str) -> AsyncIterator[str]:
    """The pid of a program without PyTorch that has called its function `fit` once, and goes on."""
    require_ebpf()
    require_frameworks()
    setup = f"import numpy; X = numpy.random.rand(2000, 40); y = X.sum(1) > 20; {work}; fit(); print(0, flush=True)"
    source = f"{setup}\nwhile True: fit()"
    job = await asyncio.create_subprocess_exec(PYTHON, "-c", source, stdout=subprocess.PIPE)
    async with ending(job):
        assert job.stdout
        assert await job.stdout.readline()
        yield str(job.pid)


async def test_a_program_without_pytorch_is_watched_for_less_than_a_minute() -> None:
    async with fitting("fit = lambda: sum(range(10_000))") as pid:
        status, output, errors = await why(pid, "--json")
        text_status, text, _ = await why(pid, "--for", "2s")
    assert status == 0, errors
    tree = json.loads(output)
    assert tree["seconds"] < 30, "and not for a minute"
    assert "unknown." in tree["jobs"][0]["why"]
    assert_without_pytorch(tree)
    assert text_status == 0
    assert "This program has not loaded PyTorch" in text


@pytest.mark.parametrize(
    ("library", "work"),
    [
        (
            "scikit-learn",
            "from sklearn.ensemble import GradientBoostingClassifier as M; fit = lambda: M(n_estimators=5).fit(X, y)",
        ),
        ("XGBoost", "import xgboost; D = xgboost.DMatrix(X, y); fit = lambda: xgboost.train({'nthread': 1}, D, 5)"),
        ("JAX", "import jax; J = jax.numpy.array(X); f = jax.jit(lambda: (J @ J.T).sum()); fit = lambda: float(f())"),
    ],
)
async def test_a_program_without_pytorch_says_what_it_can(library: str, work: str) -> None:
    async with fitting(work) as pid:
        status, output, errors = await why(pid, "--for", "5s", "--json")
    assert status == 0, errors
    tree = json.loads(output)
    assert f"; it uses {library}." in tree["jobs"][0]["why"]
    assert_without_pytorch(tree)


def assert_without_pytorch(tree: dict[str, Any]) -> None:
    """The report has no step, and a thread that never waits for anything but a CPU."""
    [found] = tree["jobs"]
    assert (found["verdict"], found["step"]["count"]) == ("no_pytorch", 0)
    busiest = found["threads"][0]
    assert busiest["cpu"] + busiest["waits"]["cpu_wait"] > 0.5


def test_without_root_it_asks_for_sudo() -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to give up root")
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    ended = subprocess.run([*nobody, *WHY, "--for", "1s"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(
        r"Error: watching other processes needs root: run `sudo \S+ why`, or let an administrator .*"
        r"`sudo setpriv --reuid=65534 \S+ \S+ \S+ \S+ why`\n",
        ended.stderr,
    )


def test_the_fewest_rights_that_it_names_are_enough() -> None:
    require_ebpf()
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to give up root")
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    refused = subprocess.run([*nobody, *WHY, "--for", "1s"], capture_output=True, text=True, check=False)
    rights = shlex.split(refused.stderr.rpartition("`sudo ")[2])[:-2]
    allowed = subprocess.run([*rights, *WHY, "--for", "1s"], capture_output=True, text=True, check=False)
    assert "needs root" not in allowed.stderr
    assert "cannot be watched" not in allowed.stderr
