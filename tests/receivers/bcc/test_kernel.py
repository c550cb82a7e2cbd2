"""Programs are compiled, attached and read by the real BCC."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from otel_zernel_receivers.bcc import BccReceiver
from tests.receivers.bcc.programs import receiver, require_bcc, values

LIBRARY = """
#include <unistd.h>
__attribute__((noinline)) int work(int us) { usleep(us); return us; }
"""
CALLER = """
import ctypes, sys
work = ctypes.CDLL(sys.argv[1]).work
for line in sys.stdin:
    for one in line.split():
        work(int(one))
    print("done", flush=True)
"""
COUNTS = """
struct key { u32 pid; char comm[16]; int argument; };
BPF_HASH(calls, struct key, u64);
int on_call(struct pt_regs *ctx)
{
        struct key key = { .pid = bpf_get_current_pid_tgid() >> 32, .argument = PT_REGS_PARM1(ctx) };
        bpf_get_current_comm(key.comm, sizeof(key.comm));
        calls.increment(key);
        return 0;
}
"""
CALLS = {
    "table": "calls",
    "name": "calls",
    "type": "sum",
    "labels": [
        {"name": "pid", "field": "pid", "decoders": ["pid"]},
        {"name": "comm", "field": "comm", "decoders": ["comm"]},
        {"name": "us", "field": "argument"},
    ],
}


@pytest.fixture(scope="module", autouse=True)
def _works() -> None:
    require_bcc()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "work.c").write_text(LIBRARY)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-fcf-protection=none", "-o", "libwork.so", "work.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "libwork.so"


@contextmanager
def caller(library: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that calls `work` with each number that it reads."""
    command = [sys.executable, "-c", CALLER, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def call(process: subprocess.Popen[str], *microseconds: int) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(" ".join(map(str, microseconds)) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def counting(library: Path, **fields: Any) -> dict[str, Any]:
    attach = [{"kind": "uprobe", "path": str(library), "symbol": "work", "function": "on_call"}]
    return {"source": COUNTS, "attach": attach, "metrics": [CALLS], **fields}


def loops(source: str, kind: dict[str, Any], metric: dict[str, Any]) -> dict[str, Any]:
    return {"source": source, "attach": [{"function": "on_event", **kind}], "metrics": [metric]}


def test_every_call_of_a_process_is_counted_and_its_series_end_with_it(library: Path) -> None:
    with closing(receiver({"work": counting(library)})) as bcc:
        bcc.scrape()
        with caller(library) as process:
            call(process, 1, 1, 1, 2)
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            expected = {("calls", process.pid, name, 1): 3, ("calls", process.pid, name, 2): 1}
            assert values(bcc.scrape()) == expected
            call(process, 1)
            assert values(bcc.scrape())["calls", process.pid, name, 1] == 4
        assert len(values(bcc.scrape())) == 2
        assert values(bcc.scrape()) == dict.fromkeys(expected)
        assert values(bcc.scrape()) == {}


def test_a_file_is_read_and_its_errors_have_its_name_and_lines(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "count.c"
    file.write_text(COUNTS)
    program = {**counting(library, file=str(file)), "source": None}
    with closing(receiver({"work": program})) as bcc:
        bcc.scrape()
    file.write_text(COUNTS.replace("calls.increment(key);", "calls.increment(kee);"))
    with closing(receiver({"work": program})) as bcc, pytest.raises(CannotStart) as error:
        bcc.scrape()
    first, second, third, *_ = str(error.value).splitlines()
    assert first == "receivers::test::programs::work: the program does not compile:"
    assert second.startswith("count.c:8:")
    assert "use of undeclared identifier 'kee'" in second
    assert third.strip() == "calls.increment(kee);"


def test_all_problems_of_all_programs_are_listed_at_once(library: Path) -> None:
    attach = [
        {"kind": "uprobe", "path": str(library), "symbol": "no_such", "function": "on_call"},
        {"kind": "uprobe", "path": str(library), "symbol": "work", "function": "no_such_function"},
        {"kind": "usdt", "path": str(library), "probe": "no:such", "function": "on_call"},
        {"kind": "tracepoint", "event": "sched:no_such", "function": "on_call"},
    ]
    metrics = [CALLS, {"table": "missing", "name": "missing", "type": "sum"}]
    programs = {"one": counting(library, attach=attach, metrics=metrics), "two": counting(library, source="int x")}
    with closing(receiver(programs)) as bcc, pytest.raises(CannotStart) as error:
        bcc.scrape()
    lines = [line for line in str(error.value).splitlines() if line.startswith("receivers::test::programs::")]
    places = [line.removeprefix("receivers::test::programs::").partition(": ")[0] for line in lines]
    assert sorted(places) == sorted(["one", *(f"one::attach::{number}" for number in range(4)), "two"])
    assert "no_such" in lines[1]


def test_a_program_that_the_kernel_refuses_is_an_error_of_the_start(library: Path) -> None:
    endless = "BPF_ARRAY(calls, u64, 1); int on_call(void *ctx) { u64 *p = (u64 *)ctx; return *(int *)*p; }"
    metric = {"table": "calls", "name": "calls", "type": "sum"}
    program = counting(library, source=endless, metrics=[metric])
    with closing(receiver({"work": program})) as bcc, pytest.raises(CannotStart) as error:
        bcc.scrape()
    first, *log = str(error.value).splitlines()
    place = "receivers::test::programs::work::attach::0"
    assert first == f"{place}: the kernel refuses the program (Permission denied). Its verifier's last lines:"
    assert 0 < len(log) <= 12
    assert any("invalid mem access" in line for line in log)


COMPLEX = """
BPF_HASH(calls, u32, u64);
int on_call(struct pt_regs *ctx)
{
        u32 key = 1;
        for (u32 i = 0; i < 5000000; i++) {
                key += bpf_get_prandom_u32();
                if (key == 77)
                        key *= 3;
        }
        calls.increment(key);
        return 0;
}
"""
"""Its verifier's log has several MB, and the kernel may return another error than the verifier's own."""


def test_the_end_of_a_long_verifier_log_is_shown(library: Path) -> None:
    metric = {"table": "calls", "name": "calls", "type": "sum"}
    program = counting(library, source=COMPLEX, metrics=[metric])
    with (
        closing(receiver({"work": program})) as bcc,
        pytest.raises(CannotStart, match=r"too complex|too large") as error,
    ):
        bcc.scrape()
    assert len(str(error.value)) < 4000


def test_a_function_that_bcc_attaches_by_itself_is_refused_with_the_log_too() -> None:
    source = "TRACEPOINT_PROBE(sched, sched_process_fork) { u64 *p = 0; return *p; }\nBPF_HASH(calls, u32, u64);"
    program = {"source": source, "metrics": [{"table": "calls", "name": "calls", "type": "sum"}]}
    with closing(receiver({"p": program})) as bcc, pytest.raises(CannotStart, match="the kernel refuses the program"):
        bcc.scrape()


def test_the_log_says_when_programs_are_compiled_and_when_they_are_attached(
    library: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with closing(receiver({"work": counting(library)})) as bcc:
        bcc.scrape()
        bcc.scrape()
    assert caplog.messages == [
        "Compiling the BPF programs, which takes some seconds for each: work",
        "Attached the BPF programs: work",
    ]


def test_values_of_all_cpus_are_added_up_and_fields_of_structures_found() -> None:
    source = """
    struct sums { u64 events; u64 weight; };
    BPF_PERCPU_ARRAY(sums, struct sums, 1);
    int on_event(struct bpf_perf_event_data *ctx)
    {
            int first = 0;
            struct sums *mine = sums.lookup(&first);
            if (mine) { mine->events += 1; mine->weight += 5; }
            return 0;
    }
    """
    metric = {"table": "sums", "type": "sum"}
    program = loops(source, {"kind": "perf_event", "event": "cpu_clock", "frequency": 99}, metric)
    program["metrics"] = [{**metric, "name": name, "value": name} for name in ("events", "weight")]
    with closing(receiver({"p": program})) as bcc:
        bcc.scrape()
        found = values(bcc.scrape())
        while not found["events",]:
            found = values(bcc.scrape())
        assert found["weight",] == 5 * found["events",]


def test_a_tracepoint_counts_the_calls_of_this_process_and_names_them() -> None:
    source = """
    BPF_HASH(calls, long, u64);
    int on_event(struct tracepoint__raw_syscalls__sys_enter *args)
    {
            long number = args->id;
            if (bpf_get_current_pid_tgid() >> 32 == OURS)
                    calls.increment(number);
            return 0;
    }
    """
    metric = {"table": "calls", "name": "calls", "type": "sum", "labels": [{"name": "call", "decoders": ["syscall"]}]}
    program = loops(source, {"kind": "tracepoint", "event": "raw_syscalls:sys_enter"}, metric)
    with closing(receiver({"p": {**program, "cflags": [f"-DOURS={os.getpid()}"]}})) as bcc:
        bcc.scrape()
        before = values(bcc.scrape()).get(("calls", "getppid"), 0)
        for _ in range(9):
            os.getppid()
        assert values(bcc.scrape())["calls", "getppid"] == before + 9


def test_an_address_in_the_kernel_becomes_its_symbol() -> None:
    source = """
    BPF_HASH(functions, u64, u64);
    int on_event(struct bpf_raw_tracepoint_args *ctx)
    {
            u64 function = ctx->args[1]; /* of (work, function) */
            functions.increment(function);
            return 0;
    }
    """
    metric: dict[str, Any] = {"table": "functions", "name": "functions", "type": "sum"}
    metric["labels"] = [{"name": "function", "decoders": ["ksym"]}]
    program = loops(source, {"kind": "raw_tracepoint", "event": "workqueue_execute_end"}, metric)
    symbols = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    with closing(receiver({"p": program})) as bcc:
        bcc.scrape()
        while not (found := values(bcc.scrape())):
            pass
        assert {name for _, name in found} <= symbols


def test_a_function_of_the_kernel_is_probed_or_the_place_named_that_cannot_be() -> None:
    """The kernel may lack kprobes."""
    source = """
    BPF_ARRAY(calls, u64, 1);
    int on_event(struct pt_regs *ctx) { if (bpf_get_current_pid_tgid() >> 32 == OURS) calls.increment(0); return 0; }
    """
    metric = {"table": "calls", "name": "calls", "type": "sum"}
    program = loops(source, {"kind": "kprobe", "symbol": "vfs_read"}, metric)
    with closing(receiver({"p": {**program, "cflags": [f"-DOURS={os.getpid()}"]}})) as bcc:
        if not Path("/sys/bus/event_source/devices/kprobe").exists():
            with pytest.raises(CannotStart, match=r"receivers::test::programs::p::attach::0: .* kprobe vfs_read"):
                bcc.scrape()
            return
        bcc.scrape()
        before = values(bcc.scrape())["calls",]
        Path("/proc/self/comm").read_text()
        assert values(bcc.scrape())["calls",] > before


def test_the_child_ends_with_the_receiver(library: Path) -> None:
    bcc = receiver({"work": counting(library)})
    bcc.scrape()
    child = child_of(bcc)
    bcc.close()
    bcc.close()
    assert not Path(f"/proc/{child}").exists()


async def test_the_child_dies_with_a_killed_collector(library: Path) -> None:
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests.receivers.bcc.test_kernel import child_of, counting
from tests.receivers.bcc.programs import receiver
bcc = receiver({{"work": counting(Path({str(library)!r}))}})
bcc.scrape()
print(child_of(bcc), flush=True)
sys.stdin.read()
"""
    pipe = asyncio.subprocess.PIPE
    collector = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdin=pipe, stdout=pipe)
    assert collector.stdout
    child = int(await collector.stdout.readline())
    assert psutil.pid_exists(child)
    collector.kill()
    await collector.wait()
    await until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def child_of(bcc: BccReceiver) -> int:
    child = bcc._session._child
    assert child
    return child.pid
