"""Runs of operators of a C program that calls them as PyTorch does: their begins, their ends, and the gaps between."""

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import load
from tests.receivers.ebpf.jobs.operator_runs import (
    BACKWARD,
    GRAD_OFF,
    GRAD_ON,
    KNOWS_FILE_FAULTS,
    LOADING,
    MILLISECOND,
    STEP,
    Run,
    difference,
    gap,
    named,
    operators_of,
    ran,
    runs,
    runs_of,
    snapshots_of,
)
from tests.receivers.ebpf.jobs.python_job import gap_of, python_job
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, spans_of
from tests.waiting import measured

ITEM = ("cudaMemcpyAsync size=4 kind=2", "cudaStreamSynchronize")
"""The calls of `Tensor.item()` for a tensor on the GPU: c10::cuda::memcpy_and_sync."""
AROUND = 65536
"""A page fault on a file maps this many bytes around it, if they are in memory."""
FEW = 8
"""Page faults of a program's own code, when it is called for the first time."""


def test_a_pass_is_one_run_from_its_first_to_its_last_operator(watch: Watch, standin: Standin) -> None:
    batch, program = ran(watch, standin, ["addmm times=20", "spin work=3000000", "cross_entropy_loss", BACKWARD])
    (run,) = operators_of(batch, program)
    first, last = program.calls("addmm")[0], program.calls("cross_entropy_loss")[-1]
    assert runs_of(batch, program) == [Run(21)]
    length = run.end_time_unix_nano - run.start_time_unix_nano
    assert last["start"] - first["end"] <= length <= last["end"] - first["start"]
    (backward,) = [span for span in spans_of(batch, program.pid) if span.name == "backward"]
    assert run.end_time_unix_nano <= backward.start_time_unix_nano


@pytest.mark.parametrize(
    "mode",
    [Mode.SESSION, Mode.MULTI, pytest.param(Mode.PERF, marks=pytest.mark.soak)],  # each link takes 0.1 s to detach
    indirect=True,
)
def test_runs_are_the_same_in_every_mode(mode: Mode, standin: Standin) -> None:
    step = ["addmm times=5", BACKWARD, f"open {STEP}", GRAD_OFF, "_foreach_add_ times=9", GRAD_ON, "close"]
    passes = [GRAD_OFF, "addmm times=3", "spin work=20000000", GRAD_ON]
    loader = partial(load, modes=(mode,))
    with Watch(loader=loader) as watch:
        assert runs(watch, standin, *step, *passes) == [Run(5), Run(3, grad=False, end="region")]


def test_each_scope_and_each_backward_pass_ends_the_run(watch: Watch, standin: Standin) -> None:
    marks = [f"open {LOADING}", "close", BACKWARD, f"open {STEP}", "close"]
    commands = [command for mark in marks for command in ("addmm times=2", mark)]
    assert runs(watch, standin, *commands) == [Run(2)] * 5


def test_scopes_of_the_user_are_inside_a_run(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, "addmm", "open my layer", "addmm", "close", "addmm", BACKWARD) == [Run(3)]


def test_operators_of_backward_are_in_no_run(watch: Watch, standin: Standin) -> None:
    backward = f"{BACKWARD} count=7 size=4"
    assert runs(watch, standin, "addmm times=2", backward, "addmm times=3", backward) == [Run(2), Run(3)]


def test_operators_of_an_optimizer_are_in_no_run(watch: Watch, standin: Standin) -> None:
    step = [f"open {STEP}", GRAD_OFF, "addmm times=5", "_foreach_add_ times=5", GRAD_ON, "close"]
    assert runs(watch, standin, "addmm times=2", *step, "addmm times=3", BACKWARD) == [Run(2), Run(3)]


def test_the_closure_of_an_optimizer_is_a_run_and_computes(watch: Watch, standin: Standin) -> None:
    closure = [GRAD_ON, "addmm times=4", "cudaLaunchKernel times=3", BACKWARD, GRAD_OFF]
    own = ["_foreach_add_ times=2", "cudaLaunchKernel times=5"]
    step = [f"open {STEP}", GRAD_OFF, *own, *closure, *own, *closure, *own, "addmm times=2", GRAD_ON, "close"]
    batch, program = ran(watch, standin, step)
    assert runs_of(batch, program) == [Run(4), Run(4)]
    launches = {
        phase: calls(batch, "zernel.cuda.launch.latency", process_pid=program.pid, zernel_phase=phase)
        for phase in ("gpu_compute", "optimizer_step")
    }
    assert launches == {"gpu_compute": 6, "optimizer_step": 15}


def test_a_pass_without_gradients_in_a_closure_is_a_run(watch: Watch, standin: Standin) -> None:
    teacher = [GRAD_OFF, "addmm times=3", "spin work=3000000", GRAD_ON]
    own = [GRAD_OFF, "addmm times=5", "spin work=3000000", GRAD_ON]
    begin, end = [f"open {STEP}", GRAD_OFF, GRAD_ON], [BACKWARD, *own, "close"]
    of_teacher = Run(3, grad=False, end="region")
    assert runs(watch, standin, *begin, *teacher, "addmm times=2", *end) == [of_teacher, Run(2)]
    assert runs(watch, standin, *begin, "addmm times=2", *teacher, "addmm", *end) == [Run(6)], "it is in a pass"
    assert runs(watch, standin, *begin, BACKWARD, *teacher, *end) == [of_teacher]
    assert runs(watch, standin, *begin, BACKWARD, *teacher, *own, "close") == [of_teacher], "a metric at its end"


def test_the_run_of_a_thread_that_sleeps_is_emitted(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libc10.so", "libtorch_cpu.so"]) as program:
        watch.attach()
        for command in (GRAD_OFF, "addmm", "spin work=100000", GRAD_ON):
            program.send(command)
        program.do("sleep times=20")
        assert runs_of(watch.read(), program) == [Run(1, grad=False, end="region")]


def test_updates_outside_an_optimizer_s_scope_are_a_run_of_their_own(watch: Watch, standin: Standin) -> None:
    update = [GRAD_OFF, "_foreach_add_ times=6", "spin work=15000000", GRAD_ON]
    assert runs(watch, standin, "addmm times=2", BACKWARD, *update) == [
        Run(2),
        Run(6, grad=False, end="region", kind="update"),
    ]
    assert runs(watch, standin, "_foreach_add_ times=6", BACKWARD) == [], "with gradients they are part of a model"


BY_HAND = [GRAD_OFF, "spin work=100000", "mul_ times=2", GRAD_ON]
IN_PLACE = Run(2, grad=False, end="region", kind="in_place")


def test_tensors_that_change_after_a_backward_pass_or_an_optimizer_are_a_run(watch: Watch, standin: Standin) -> None:
    step = [f"open {STEP}", GRAD_OFF, "_foreach_add_ times=5", "mul_", GRAD_ON, "close"]
    clip_and_average = ["addmm times=2", BACKWARD, *BY_HAND, *step, *BY_HAND]
    expected = [Run(2), IN_PLACE, IN_PLACE, Run(1)]
    assert runs(watch, standin, *BY_HAND, *clip_and_average, "addmm", *BY_HAND, BACKWARD) == expected
    several = runs(watch, standin, "addmm", BACKWARD, *BY_HAND * 99, "addmm", BACKWARD)
    assert sum(int(str(run.operators)) for run in several) == 2 * 99 + 2
    assert len(several) < 99, "they are joined, unless the machine does something else between"
    loads = [BACKWARD, f"open {LOADING}", "close", *BY_HAND]
    assert runs(watch, standin, *loads) == [], "it prepares a batch"
    metric = [GRAD_OFF, "multinomial", "mean", "spin work=100000", GRAD_ON]
    assert runs(watch, standin, "addmm", BACKWARD, *step, *metric) == [Run(1)]


def test_random_numbers_before_a_pass_are_a_batch(watch: Watch, standin: Standin) -> None:
    batch = Run(3, kind="batch")
    made = ["random_ times=3"]
    assert runs(watch, standin, "random_", "normal_", BACKWARD)[-1].kind == "noise"
    assert runs(watch, standin, *made, "addmm times=2", BACKWARD) == [batch, Run(2)]
    assert runs(watch, standin, *made, "sleep times=1", *made, "mean", "addmm", BACKWARD) == [batch, batch, Run(1)]
    assert runs(watch, standin, "addmm", "normal_", "addmm", BACKWARD) == [Run(2)], "the model draws them"
    elsewhere = [f"open {LOADING}", "normal_", "close", GRAD_OFF, "normal_", GRAD_ON]
    assert runs(watch, standin, *elsewhere, "addmm", BACKWARD) == [Run(1)]


def test_autocast_begins_a_pass_before_its_first_operator(watch: Watch, standin: Standin) -> None:
    """It casts the weights. A wait for a CPU between the operators divides the run."""
    cast = ["autocast.__enter__", "spin work=3000000", "addmm times=2", BACKWARD]
    batch, program = measured(lambda: ran(watch, standin, cast), lambda result: runs_of(*result) == [Run(2)])
    assert runs_of(batch, program) == [Run(2)]
    (run,) = operators_of(batch, program)
    (entry,), (first, _) = program.calls("autocast.__enter__"), program.calls("addmm")
    assert run.start_time_unix_nano + first["start"] - entry["end"] <= run.end_time_unix_nano


def test_a_run_of_losses_alone_says_so(watch: Watch, standin: Standin) -> None:
    losses = ["cross_entropy_loss", "mean", "cross_entropy_loss"]
    assert runs(watch, standin, *losses, BACKWARD, *losses, "addmm", BACKWARD) == [Run(3, kind="loss"), Run(4)]


def test_a_reduction_or_a_sample_continues_a_run_but_begins_none(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, "mean", "multinomial", BACKWARD, "addmm", "mean", "multinomial", BACKWARD) == [Run(3)]
    after_a_region = [GRAD_OFF, "addmm", GRAD_ON, "multinomial"]
    assert runs(watch, standin, *after_a_region) == [Run(1, grad=False, end="region")]


def test_a_pause_after_a_sample_ends_the_run(watch: Watch, standin: Standin) -> None:
    act = ["addmm times=3", "multinomial", "spin work=3000000"]
    assert runs(watch, standin, *act * 3, BACKWARD) == [Run(4)] * 3
    busy = ["addmm times=3", "spin work=3000000"]
    assert runs(watch, standin, *busy * 3, BACKWARD) == [Run(9)], "an operator may take that long itself"


def test_a_pause_after_a_loss_ends_the_run(watch: Watch, standin: Standin) -> None:
    evaluate = ["addmm times=3", "cross_entropy_loss", "spin work=3000000", "cross_entropy_loss"]
    pauses = [*evaluate, "spin work=20000000", *evaluate, GRAD_ON]
    assert runs(watch, standin, GRAD_OFF, *pauses) == [Run(5, grad=False), Run(5, grad=False, end="region")]


@pytest.mark.parametrize("pause", ["spin work=5000000", "sleep times=1"])
def test_a_pass_of_a_rollout_ends_before_a_step_of_the_environment(watch: Watch, standin: Standin, pause: str) -> None:
    act = ["addmm times=3", "multinomial"]
    found = runs(watch, standin, GRAD_OFF, *act, pause, *act, GRAD_ON)
    assert sum(int(str(run.operators)) for run in found) == 8
    assert sum(int(str(run.parts or 1)) for run in found) == 2, "parts of one run, or two runs on a busy machine"


def test_a_short_pause_after_a_token_is_in_the_pass(watch: Watch, standin: Standin) -> None:
    token = ["addmm times=4", "spin work=9000000", "multinomial", "spin work=300000"]
    assert runs(watch, standin, GRAD_OFF, *token * 2, GRAD_ON) == [Run(10, grad=False, end="region")]


@pytest.mark.parametrize("wait", [("cudaDeviceSynchronize",), ITEM], ids=["synchronize", "item"])
def test_a_pause_after_a_wait_for_the_gpu_ends_the_run(watch: Watch, standin: Standin, wait: tuple[str, ...]) -> None:
    item = ["addmm times=3", *wait, "spin work=3000000"]
    assert runs(watch, standin, *item * 3, BACKWARD) == [Run(3)] * 3


def test_a_thread_that_sleeps_between_operators_ends_the_run(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, *["addmm times=2", "sleep times=400"] * 3) == [Run(2)] * 3
    without = [GRAD_OFF, *["addmm times=2", "sleep times=150"] * 3, GRAD_ON]
    *first, last = runs(watch, standin, *without)
    assert first == [Run(2, grad=False)] * 2
    assert last == Run(2, grad=False, end="region")


def test_a_thread_that_waits_for_other_threads_in_an_operator_is_in_one_pass(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, *["addmm times=2", "sleep times=15"] * 3, BACKWARD) == [Run(6)]


def test_a_pass_of_more_than_a_second_is_reported_while_it_runs(watch: Watch, standin: Standin) -> None:
    """A busy machine may let less than 0.6 s of CPU time last for a second, and pause the thread in all runs."""
    for _ in range(3):
        batch, program = ran(watch, standin, ["addmm", "spin work=600000000"] * 4 + ["addmm", BACKWARD])
        reported = runs_of(batch, program)
        assert all(run in (Run(count, end=end) for count in (1, 2) for end in ("next", "operator")) for run in reported)
        assert sum(int(str(run.operators)) for run in reported) == 5
        for run, (before, after) in zip(reported, pairwise(operators_of(batch, program)), strict=False):
            assert run.end == "operator" or before.end_time_unix_nano == after.start_time_unix_nano
        if any(run.end == "next" for run in reported):
            return
    pytest.fail("no run was reported while it ran")


def test_a_pass_that_pauses_for_more_than_a_second_is_reported_before_its_next_operator(
    watch: Watch, standin: Standin
) -> None:
    with standin.start(loads=["libc10.so", "libtorch_cpu.so"]) as program:
        watch.attach()
        program.do("addmm times=3")
        program.do("sleep times=1200")
        program.do("sleep times=1")  # the program waits for its next command: no operator follows
        assert runs_of(watch.read(), program) == [Run(3)]


def test_each_thread_has_its_own_runs(watch: Watch, standin: Standin) -> None:
    batch, program = ran(watch, standin, ["addmm times=3 threads=4", "addmm times=2", BACKWARD])
    assert sorted(runs_of(batch, program)) == [Run(2), *[Run(3)] * 4]
    assert len({attributes_of(span)["thread_id"] for span in operators_of(batch, program)}) == 5


def test_the_last_run_of_a_program_is_emitted(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, "addmm times=2") == [Run(2)]


def test_the_gap_of_a_thread_that_computes_shows_no_wait(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "spin work=20000000")
    assert found.blocked < 0.01
    assert found.copies == 0


def test_the_gap_of_a_thread_that_sleeps_shows_how_long(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "sleep times=50")
    assert 0.05 <= found.seconds[Activity.TIMER] < 0.5


def test_the_gap_shows_bytes_and_copies(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "read size=4000000 times=3", "cudaMemcpy size=64 kind=1 times=2", "cudaMemcpy kind=2")
    assert found.read >= 2 * 3 * 4_000_000
    assert found.copies == 2


def test_the_gap_shows_page_faults_on_files(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "map size=4000000")
    assert (found.file_faults if KNOWS_FILE_FAULTS else found.faults) >= 4_000_000 // AROUND


@pytest.mark.skipif(not KNOWS_FILE_FAULTS, reason="before Linux 6.2 only the number of all page faults is known")
def test_new_memory_is_no_page_fault_on_a_file(watch: Watch, standin: Standin) -> None:
    assert gap(watch, standin, "read size=4000000").file_faults < FEW


def test_a_wait_for_the_gpu_in_a_gap_is_not_blocked_time(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "cudaLaunchKernel work=50000000", "cudaDeviceSynchronize")
    assert found.blocked < 0.03
    assert found.seconds[Activity.GPU_WAIT] >= 0.03


def test_all_time_between_two_snapshots_is_in_a_state(watch: Watch, standin: Standin) -> None:
    batch, program = ran(watch, standin, ["addmm", BACKWARD, "sleep times=30", "spin work=9000000", "addmm", BACKWARD])
    first, *_, last = (snapshots_of(span) for span in named(batch, program, "backward"))
    lasted = (last[1].time - first[0].time) / 1e9
    assert sum(difference(first[0], last[1]).seconds.values()) == pytest.approx(lasted, abs=1e-6)


def test_clearing_gradients_does_not_end_a_gap(watch: Watch, standin: Standin) -> None:
    found = gap(watch, standin, "read size=4000000", "open Optimizer.zero_grad#AdamW.zero_grad", "close")
    assert found.read >= 4_000_000


def test_the_time_after_the_last_operator_is_described(watch: Watch, standin: Standin) -> None:
    commands = ["sleep times=50", "read size=4000000", "map size=4000000"]
    batch, program = ran(watch, standin, ["addmm", *commands, BACKWARD, "addmm", BACKWARD])
    runs_, backwards = operators_of(batch, program), named(batch, program, "backward")
    first, second = (
        difference(snapshots_of(run)[1], snapshots_of(backward)[0])
        for run, backward in zip(runs_, backwards, strict=True)
    )
    assert first.blocked >= 0.05
    assert first.read >= 4_000_000
    assert (first.file_faults if KNOWS_FILE_FAULTS else first.faults) >= 4_000_000 // AROUND
    assert second.read < 4096


def test_operators_are_counted_wherever_they_run(watch: Watch, standin: Standin) -> None:
    step = [f"open {STEP}", GRAD_OFF, "_foreach_add_ times=5", GRAD_ON, "close"]
    batch, program = ran(watch, standin, ["addmm times=4", f"{BACKWARD} count=7 size=4", *step])
    (run,), (optimizer,) = operators_of(batch, program), named(batch, program, STEP)
    first, last = snapshots_of(run)[0], snapshots_of(optimizer)[1]
    assert last.operators - first.operators == 4 + 4 + 5
    of_scopes = 6  # a backward pass, two changes of the mode, and a scope, whose end is hit twice
    assert last.hits - first.hits == 3 + 4 + 5 + of_scopes
    assert first.time < snapshots_of(optimizer)[0].time < last.last_operator < last.time


def test_launches_since_the_last_snapshot_are_counted(watch: Watch, standin: Standin) -> None:
    commands = ["addmm", "cudaLaunchKernel times=3", "addmm", "cudaLaunchKernel times=2", BACKWARD, BACKWARD]
    batch, program = ran(watch, standin, commands)
    (run,), backwards = operators_of(batch, program), named(batch, program, "backward")
    begin, end = snapshots_of(run)
    after, later = snapshots_of(backwards[0])[0], snapshots_of(backwards[1])[0]
    assert (end.launches - begin.launches, after.launches - end.launches) == (3, 2)
    assert begin.time < end.first_launch < end.last_launch < end.time < after.first_launch < after.last_launch
    assert later.first_launch == 0
    assert later.last_launch == after.last_launch


def test_launches_of_autograd_s_threads_are_counted_in_their_backward_pass(watch: Watch, standin: Standin) -> None:
    waiting = 120
    count, work = 1024 + waiting, MILLISECOND
    commands = [
        "addmm",
        "cudaLaunchKernel times=3",
        f"{BACKWARD} count={count} work={work}",
        "cudaLaunchKernel",
        BACKWARD,
    ]
    batch, program = ran(watch, standin, commands)
    (begin, end), (after, _) = map(snapshots_of, named(batch, program, "backward"))
    assert end.backward_launches - begin.backward_launches == count
    assert end.launches == begin.launches
    assert after.backward_launches == end.backward_launches
    assert begin.time < end.backward_first_launch < end.backward_last_launch < end.time
    blocked = end.backward_blocked - begin.backward_blocked
    assert blocked > 0.1 * waiting * work, "a queue has room for 1,024 launches; a busy machine is late with them"


def test_launches_of_autograd_s_threads_count_only_for_the_thread_that_waits(watch: Watch, standin: Standin) -> None:
    commands = [f"{BACKWARD} count=7 work=1000", "addmm times=2 threads=2", "addmm", BACKWARD]
    batch, program = ran(watch, standin, commands)
    _, (own, _) = map(snapshots_of, named(batch, program, "backward"))
    assert own.backward_launches == 7
    others = [one for one in map(snapshots_of, operators_of(batch, program)) if one[1].backward_launches != 7]
    assert [end.backward_launches for _, end in others] == [0, 0]


READS = """
import glob
def read_facts():  # also as psutil's Process.children(), which reads a few bytes of each process
    for path in 20 * ["/proc/self/smaps"] + 50 * glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, "rb") as file:
                file.read()
        except OSError:
            pass  # it has ended

def read_data():
    with open(sys.argv[2], "rb") as file:
        file.read()
"""


def test_facts_of_the_kernel_are_no_data(watch: Watch, standin: Standin, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(100_000))
    with python_job(standin, READS, str(data)) as process:
        watch.attach()
        assert gap_of(watch, process, "read_facts").read < 4096
        assert 100_000 <= gap_of(watch, process, "read_data").read < 110_000


def test_a_region_without_a_pass_hides_no_launch(watch: Watch, standin: Standin) -> None:
    launches = ["cudaLaunchKernel", GRAD_OFF, GRAD_ON, "sleep times=2", "cudaLaunchKernel"]
    batch, program = ran(watch, standin, [f"open {LOADING}", "close", *launches, "addmm", BACKWARD])
    (run,), (before,) = operators_of(batch, program), named(batch, program, LOADING)
    first, last = snapshots_of(before)[1], snapshots_of(run)[0]
    assert last.launches - first.launches == 2
    assert first.time < last.first_launch < last.last_launch - 2 * MILLISECOND
