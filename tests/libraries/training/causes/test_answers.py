"""The causes of simulated jobs, against the same jobs without them."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_zernel_libraries.training import device
from otel_zernel_libraries.training.causes import (
    CauseName,
    Facts,
    GpuFacts,
    Job,
    JobAnswer,
    Unknown,
    answer_on,
    lead_of,
)
from otel_zernel_libraries.training.causes.verdicts import verdict_of
from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent
from tests.libraries.training.causes.planted import draw
from tests.libraries.training.causes.simulated import (
    HEALTHY,
    Part,
    Plan,
    answer_to,
    job_on_device,
    simulated,
    step_of,
    with_operators,
)
from tests.libraries.training.device.simulated import Loop, Phase, simulate

POINT = 0.01
"""Of a step."""


def test_a_healthy_job_has_no_cause_and_its_best_step_is_near_the_step() -> None:
    answer = answer_to()
    assert answer.causes == ()
    assert answer.best == pytest.approx(answer.step, rel=0.03)


@pytest.mark.parametrize("operators", [0, 300], ids=["hooks", "operators of a forward pass"])
def test_python_of_a_backward_pass_is_the_work_itself_around_operators_of_a_forward_pass(operators: int) -> None:
    """A checkpoint of activations runs a part of the forward pass again."""
    job = simulated(Plan((*HEALTHY, Part(Position.BACKWARD, Activity.PYTHON, 0.004))))
    job.operators = [
        {**operator, Position.BACKWARD: np.full_like(job.seconds, operators)} for operator in job.operators
    ]
    answer = answer_on(job)
    assert [(cause.position, cause.activity) for cause in answer.causes] == (
        [] if operators else [(Position.BACKWARD, Activity.PYTHON)]
    )


def test_passes_in_which_no_operators_were_seen_say_nothing_about_their_python() -> None:
    """Their probes are off in most of the time."""
    job = simulated(Plan((*HEALTHY, Part(Position.FORWARD, Activity.PYTHON, 0.004))))
    seen = np.where(np.arange(len(job.seconds)) % 20 == 0, 250.0, 0.0)
    job.operators = [{**operator, Position.FORWARD: seen} for operator in job.operators]
    answer = answer_on(job)
    assert answer.causes == ()


def test_the_time_of_probes_is_no_cause() -> None:
    probes = [Part(one.position, Activity.PROBE, 0.01) for one in HEALTHY]
    answer = answer_to(*probes)
    assert answer.causes == ()
    assert answer.best == pytest.approx(answer.step, rel=0.03)


@pytest.mark.parametrize(
    "planted",
    [
        Part(Position.LOAD, Activity.PYTHON, 0.012),
        Part(Position.FORWARD, Activity.TIMER, 0.010),
        Part(Position.FORWARD, Activity.PYTHON, 0.008),
        Part(Position.AFTER_STEP, Activity.SOCKET, 0.009),
        Part(Position.CLIP, Activity.FILE, 0.02),
    ],
    ids=lambda part: f"{part.position}-{part.activity}",
)
def test_the_gain_of_a_segment_is_that_of_the_job_without_it(planted: Part) -> None:
    plan = Plan((*HEALTHY, planted))
    answer = answer_on(simulated(plan))
    (cause,) = answer.causes
    assert (cause.cause, cause.position, cause.activity) == (CauseName.SEGMENT, planted.position, planted.activity)
    assert cause.gain == pytest.approx(answer.step - step_of(plan.without(planted)), abs=POINT * answer.step)
    assert cause.gain_low <= cause.gain <= cause.gain_high
    assert cause.share == pytest.approx(cause.gain / answer.step)


def two_causes(clip: float, after: float) -> Job:
    """A job with two causes, by their shares of its healthy step."""
    step = sum(part.seconds for part in HEALTHY)
    before = Part(Position.CLIP, Activity.FILE, clip * step)
    return simulated(Plan((*HEALTHY, before, Part(Position.AFTER_STEP, Activity.SOCKET, after * step))))


def test_the_first_cause_stays_first_until_another_leads_by_a_point() -> None:
    before = answer_on(two_causes(0.2, 0.19))
    firsts = [
        answer.causes[0].position
        for answer in (
            answer_on(two_causes(0.19, 0.2)),
            answer_on(two_causes(0.19, 0.2), before),
            answer_on(two_causes(0.19, 0.22), before),
        )
    ]
    assert firsts == [Position.AFTER_STEP, Position.CLIP, Position.AFTER_STEP]


def test_a_named_cause_stays_named_a_little_below_the_limit() -> None:
    before = answer_on(two_causes(0.2, 0.05))
    named = []
    for share, known in ((0.035, None), (0.035, before), (0.028, before)):
        answer = answer_on(two_causes(0.2, share), known)
        named.append(Position.AFTER_STEP in {cause.position for cause in answer.causes})
    assert named == [False, True, False]


def test_two_steps_are_too_few_for_an_answer() -> None:
    assert answer_on(simulated(Plan(HEALTHY, steps=3))).unknown is Unknown.FEW_STEPS


def test_workers_are_advised_to_a_loader_without_them_only() -> None:
    slow = Part(Position.LOAD, Activity.PYTHON, 0.03)
    advice = {}
    for workers in (0, 2):
        facts = Facts(has_loader=True, workers=workers, cpus=8)
        answer = answer_to(slow, facts=facts)
        advice[workers] = " ".join(answer.causes[0].advice)
    assert "num_workers" in advice[0]
    assert "num_workers" not in advice[2]


@pytest.mark.parametrize("seed", range(2))
def test_each_planted_cause_leads_with_the_gain_of_the_job_without_it(seed: int) -> None:
    for planted in draw(random.Random(seed)):
        answer = answer_on(simulated(planted.job, seed=seed))
        truth = answer.step - step_of(planted.without, seed=seed)
        if truth > 0.04 * answer.step:
            lead = answer.causes[0]
            assert (lead.cause, lead.rank) == (planted.name, planted.rank)
            assert lead.gain == pytest.approx(truth, abs=2 * POINT * answer.step)
            assert lead.evidence


NEIGHBOUR, COLLECTOR = CpuTaker(TakerKind.OTHER, "encoder"), CpuTaker(TakerKind.COLLECTOR)
OWN_THREAD, OWN_WORKER = CpuTaker(TakerKind.SELF), CpuTaker(TakerKind.CHILD, "pt_data_worker")


def test_each_taker_of_the_cpu_has_its_part_of_the_waits_and_the_collector_has_no_cause() -> None:
    waits = Part(Position.OPTIMIZER, Activity.CPU_WAIT, 0.02)
    facts = Facts(takers={NEIGHBOUR: 5.0, OWN_WORKER: 3.0, COLLECTOR: 2.0})
    answer = answer_to(waits, facts=facts)
    assert {cause.cause: cause.gain for cause in answer.causes} == {
        CauseName.CPU_TAKEN: pytest.approx(0.010, abs=2e-4),
        CauseName.THREADS: pytest.approx(0.006, abs=2e-4),
    }
    texts = [[fact.text for fact in cause.evidence] for cause in answer.causes]
    assert "encoder had the CPU in 50 %" in texts[0][1]
    assert "Processes that it has started (pt_data_worker) had the CPU in 30 %" in texts[1][1]


def test_waits_for_a_cpu_that_the_holder_of_the_gil_has_are_waits_for_the_gil() -> None:
    waits = [Part(Position.OPTIMIZER, activity, 0.02) for activity in (Activity.GIL, Activity.CPU_WAIT)]
    answer = answer_to(*waits, facts=Facts(takers={OWN_THREAD: 3.0, NEIGHBOUR: 1.0}))
    assert {cause.cause: cause.gain for cause in answer.causes} == {
        CauseName.GIL: pytest.approx(0.035, abs=4e-4),
        CauseName.CPU_TAKEN: pytest.approx(0.005, abs=2e-4),
    }


def test_threads_that_compute_without_the_gil_leave_a_neighbour_the_cpu_that_it_takes() -> None:
    waits = [Part(Position.OPTIMIZER, *wait) for wait in ((Activity.GIL, 0.004), (Activity.CPU_WAIT, 0.018))]
    facts = Facts(takers={NEIGHBOUR: 1.0}, runnable=5.0, cpus=8.0)
    answer = answer_to(*waits, facts=facts)
    assert answer.causes[0].cause is CauseName.CPU_TAKEN
    assert answer.causes[0].gain > 0.9 * 0.018


def test_a_holder_of_the_gil_on_another_cpu_is_the_cause_of_most_waits_for_a_cpu() -> None:
    waits = [Part(Position.OPTIMIZER, *wait) for wait in ((Activity.GIL, 0.2), (Activity.CPU_WAIT, 0.05))]
    facts = Facts(takers={NEIGHBOUR: 1.0}, runnable=1.6, cpus=2.0)
    answer = answer_to(*waits, facts=facts)
    assert answer.causes[0].cause is CauseName.GIL
    assert answer.causes[0].gain > 0.2 + 0.8 * 0.05


def test_the_garbage_collector_stays_a_cause_beside_a_metric_in_the_same_place() -> None:
    usual = Part(Position.AFTER_STEP, Activity.PYTHON, 0.005)
    rare = [replace(usual, seconds=0.2, every=every) for every in (37, 53)]
    answer = answer_to(usual, *rare)
    assert [cause.cause for cause in answer.causes] == [CauseName.SLOW_STEPS, CauseName.SEGMENT]
    assert answer.causes[1].gain == pytest.approx(0.005, rel=0.1)
    assert any("gc.freeze" in text for text in answer.causes[0].advice)


def test_slow_steps_of_what_takes_long_in_all_steps_are_no_cause_of_their_own() -> None:
    usual = Part(Position.AFTER_STEP, Activity.FILE, 0.02)
    rare = [replace(usual, seconds=0.06, every=every) for every in (7, 11)]
    plan = Plan((*HEALTHY, usual, *rare))
    answer = answer_on(simulated(plan))
    (cause,) = answer.causes
    assert (cause.cause, cause.activity) == (CauseName.SEGMENT, Activity.FILE)
    assert cause.gain == pytest.approx(answer.step - step_of(plan.without(usual, *rare)), rel=0.01)


def test_the_time_of_one_cause_is_not_named_again() -> None:
    late = Part(Position.LOAD, Activity.PYTHON, 0.02, rank=1)
    answer = answer_to(late, ranks=2)
    assert [cause.cause for cause in answer.causes] == [CauseName.STRAGGLER]


def test_two_ranks_that_wait_for_a_cpu_in_turns_are_no_stragglers() -> None:
    turns = Part(Position.BACKWARD, Activity.CPU_WAIT, 0.01, turns=True)
    answer = answer_to(turns, ranks=2)
    assert CauseName.STRAGGLER not in [cause.cause for cause in answer.causes]


def test_a_late_rank_is_never_a_slow_link() -> None:
    late = Part(Position.FORWARD, Activity.CPU_WAIT, 0.02, rank=1, noise=0.5)
    answer = answer_to(late, ranks=4, transfer=0.0001)
    assert answer.causes[0].rank == 1
    assert CauseName.SLOW_LINK not in [cause.cause for cause in answer.causes]


def test_without_all_ranks_no_cause_over_ranks_is_named() -> None:
    late = Part(Position.LOAD, Activity.PYTHON, 0.02, rank=1)
    job = simulated(Plan((*HEALTHY, late), ranks=2, transfer=0.03))
    answer = answer_on(Job(job.ranks, job.times, expected=4))
    assert (answer.ranks_seen, answer.ranks_expected) == (2, 4)
    assert not {cause.cause for cause in answer.causes} & {
        CauseName.STRAGGLER,
        CauseName.SLOW_LINK,
        CauseName.IMBALANCE,
    }


def on_device(
    *, sync_every: int, load: float = 0.008, launching: float = 0.002, work: float = 0.031, kernels: int = 300
) -> tuple[Job, float]:
    """Data for 8 ms, and 31 ms of kernels that are launched within 6 ms. Returns the job and the seconds of a step."""
    count = kernels // 3
    lasting, gaps = (work / kernels,) * count, (1 / (count + 1),) * (count + 1)
    loop = Loop(
        (
            Phase(Position.LOAD, load),
            Phase(Position.FORWARD, launching, lasting, gaps),
            Phase(Position.BACKWARD, launching, lasting, gaps),
            Phase(Position.OPTIMIZER, launching, lasting, gaps),
        ),
        steps=150,
        sync_every=sync_every,
        sync_after=Position.OPTIMIZER,
        noise=0.02,
    )
    run = simulate(loop, random.Random(1))
    use = device.device_use([with_operators(part) for part in run.segments], run.busy_share)
    assert use
    return job_on_device(loop, use), run.seconds / loop.steps


def test_data_that_a_busy_device_hides_gains_nothing() -> None:
    answer = answer_on(on_device(sync_every=50)[0])
    assert answer.causes == ()
    assert (answer.hidden[0].position, answer.hidden[0].activity) == (Position.LOAD, Activity.PYTHON)


def test_data_for_which_the_device_starves_gains_what_the_job_without_it_shows() -> None:
    job, step = on_device(sync_every=1)
    answer = answer_on(job)
    (cause,) = answer.causes
    assert (cause.position, cause.activity) == (Position.LOAD, Activity.PYTHON)
    _, without = on_device(sync_every=1, load=0.0)
    assert cause.gain == pytest.approx(step - without, abs=POINT * step)


def test_a_device_that_waits_for_launches_gains_what_the_job_that_launches_at_once_shows() -> None:
    job, step = on_device(sync_every=1, load=0.0002, launching=0.006, work=0.003, kernels=600)
    answer = answer_on(job)
    (cause,) = answer.causes
    assert cause.cause is CauseName.SMALL_LAUNCHES
    _, without = on_device(sync_every=1, load=0.0002, launching=0.0, work=0.003, kernels=3)
    assert cause.gain == pytest.approx(step - without, abs=2 * POINT * step)


def test_the_time_of_the_device_is_that_of_a_step() -> None:
    answer = answer_on(on_device(sync_every=1)[0])
    assert answer.device
    assert answer.device.busy == pytest.approx(0.7 * answer.step)
    assert answer.device.starved == {Position.LOAD: pytest.approx(0.2 * answer.step)}
    assert answer.device.undetermined == pytest.approx(0.1 * answer.step)


def slowed(gpu: GpuFacts, **loop: Any) -> JobAnswer:
    """The answer on a job on a device that something slows down."""
    job, _ = on_device(**loop)
    (rank,) = job.ranks
    return answer_on(Job([replace(rank, facts=replace(rank.facts, gpu=gpu))], job.times))


def test_low_clocks_gain_at_most_what_a_faster_device_shows() -> None:
    gpu = GpuFacts(clock=0.7, lowered={"hw_thermal_slowdown": 1.0})
    answer = slowed(gpu, sync_every=1, load=0.0002)
    (cause,) = answer.causes
    _, faster = on_device(sync_every=1, load=0.0002, work=0.7 * 0.031)
    assert (cause.cause, cause.gain_low) == (CauseName.DEVICE_CLOCKS, 0.0)
    assert cause.gain == pytest.approx(answer.step - faster, abs=2 * POINT * answer.step)
    assert "Cool the GPU" in cause.advice[0]
    assert "100 % of the time, the reason is: heat" in cause.evidence[0].text
    assert verdict_of(answer) == "compute_bound"


@pytest.mark.parametrize(
    "gpu",
    [
        GpuFacts(clock=0.7),
        GpuFacts(clock=0.7, lowered={"sw_thermal_slowdown": 0.02}),
    ],
    ids=["for no reason that somebody can remove", "for a short time"],
)
def test_low_clocks_are_no_cause(gpu: GpuFacts) -> None:
    assert slowed(gpu, sync_every=1, load=0.0002).causes == ()


def test_low_clocks_of_a_device_that_waits_for_its_thread_gain_little() -> None:
    gpu = GpuFacts(clock=0.7, lowered={"hw_power_brake": 1.0})
    answer = slowed(gpu, sync_every=1, load=0.05, work=0.002, kernels=60)
    assert CauseName.DEVICE_CLOCKS not in {cause.cause for cause in answer.causes}


def test_another_program_on_the_device_is_a_cause_with_its_pid() -> None:
    answer = slowed(GpuFacts(others={4711: 0.3, 4712: 0.004}), sync_every=1, load=0.0002)
    (cause,) = answer.causes
    assert cause.cause is CauseName.DEVICE_SHARED
    assert cause.evidence[0].text == "Process 4711 uses it for 30 % of the time."
    assert cause.share == pytest.approx(0.3 * 0.031 / answer.step, abs=2 * POINT)


@pytest.mark.parametrize("late", [0.0, 0.02])
def test_ranks_whose_gpus_are_never_the_limit_are_those_without_gpus(late: float) -> None:
    plan = Plan((*HEALTHY, Part(Position.LOAD, Activity.PYTHON, late, rank=1)), ranks=4, transfer=0.01)
    with_gpus, without = (answer_on(simulated(replace(plan, on_gpus=on))) for on in (True, False))
    gains = {cause.cause: cause.gain for cause in without.causes}
    on_gpus = {cause.cause: cause.gain for cause in with_gpus.causes if cause.cause is not CauseName.SMALL_LAUNCHES}
    assert on_gpus == pytest.approx(gains, abs=POINT * without.step)


def test_a_stop_that_was_seen_once_is_a_cause() -> None:
    evaluation = Part(Position.EVALUATION, Activity.OPERATOR, 5.0, every=150)
    answer = answer_to(evaluation)
    (cause,) = answer.causes
    assert cause.cause is CauseName.EVALUATION
    assert "once" in cause.evidence[1].text


def test_longer_samples_are_no_cause() -> None:
    bucketed = [Part(position, Activity.OPERATOR, 0.03, every=4) for position in (Position.FORWARD, Position.BACKWARD)]
    longer = [
        Part(position, Activity.OPERATOR, 0.0, growth=0.0001) for position in (Position.FORWARD, Position.BACKWARD)
    ]
    for parts in (bucketed, longer):
        answer = answer_to(*parts)
        assert answer.causes == ()


def test_a_graph_that_grows_is_a_cause() -> None:
    answer = answer_to(Part(Position.BACKWARD, Activity.OPERATOR, 0.0, growth=0.0002))
    assert [cause.cause for cause in answer.causes] == [CauseName.GROWTH]


def slowing(rng: random.Random, parts: tuple[Part, ...], least: float, most: float, steps: int) -> tuple[Part, ...]:
    """The parts on a machine that becomes slower: each takes so much longer at the end, with the noise of a machine."""
    return tuple(
        replace(part, growth=part.seconds * rng.uniform(least, most) / steps, noise=rng.uniform(0.03, 0.3))
        for part in parts
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_machine_that_becomes_slower_is_no_growth_of_the_job(seed: int) -> None:
    """Everything takes 10 to 30 % longer at the end, and nothing as much as anything else."""
    rng = random.Random(seed)
    more = [Part(rng.choice(list(Position)[:8]), Activity.PYTHON, rng.uniform(0.001, 0.02)) for _ in range(3)]
    healthy = tuple(replace(part, seconds=part.seconds * rng.uniform(0.2, 3)) for part in (*HEALTHY, *more))
    answer = answer_on(simulated(Plan(slowing(rng, healthy, 0.1, 0.3, 200)), seed))
    assert CauseName.GROWTH not in {cause.cause for cause in answer.causes}


@pytest.mark.parametrize("position", [Position.OPTIMIZER, Position.AFTER_STEP])
def test_work_that_begins_during_the_watch_is_no_growth(position: Position) -> None:
    begins = Part(position, Activity.OPERATOR, 0.01, since=100)
    answer = answer_to(begins)
    assert CauseName.GROWTH not in {cause.cause for cause in answer.causes}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("position", "activity", "advice"),
    [
        (Position.AFTER_STEP, Activity.PYTHON, "list that keeps results"),
        (Position.FORWARD, Activity.PYTHON, "list that keeps results"),
        (Position.AFTER_STEP, Activity.FILE, ""),
        (Position.BACKWARD, Activity.OPERATOR, "list that keeps results"),
        (Position.OPTIMIZER, Activity.OPERATOR, "set_flush_denormal"),
    ],
)
def test_a_place_that_grows_is_a_cause_also_on_a_machine_that_becomes_slower(
    seed: int, position: Position, activity: Activity, advice: str
) -> None:
    rng = random.Random(seed)
    grows = Part(position, activity, 0.0, growth=rng.uniform(0.01, 0.05) / 200)
    answer = answer_on(simulated(Plan((*slowing(rng, HEALTHY, -0.05, 0.15, 200), grows)), seed))
    lead = answer.causes[0]
    assert (lead.cause, lead.position, lead.activity) == (CauseName.GROWTH, position, activity)
    assert advice in " ".join(lead.advice)


def test_a_place_that_grows_is_shown_with_its_operators() -> None:
    grows = Part(Position.OPTIMIZER, Activity.OPERATOR, 0.0, growth=0.02 / 200)
    answer = answer_to(grows)
    texts = [fact.text for fact in answer.causes[0].evidence]
    assert "in the optimizer" in texts[1]
    assert "2 operators there, as at the beginning" in texts[2]


def test_waits_for_a_cpu_belong_to_one_cause() -> None:
    """Python in the load waits for a CPU as long as it has one."""
    parts = [Part(Position.LOAD, activity, 0.01) for activity in (Activity.PYTHON, Activity.CPU_WAIT)]
    answer = answer_to(*parts)
    (cause,) = answer.causes
    assert cause.gain == pytest.approx(0.0202, abs=POINT * answer.step)
    assert sum(one.value for one in cause.evidence) == pytest.approx(cause.gain, rel=0.05)


def test_taking_a_batch_from_workers_is_the_work_itself_and_unpacking_many_tensors_is_not() -> None:
    named = []
    for seconds in (0.0009, 0.008):
        takes = Part(Position.LOAD, Activity.PYTHON, seconds)
        facts = Facts(workers=2, cpus=4, has_loader=True)
        plan = Plan((*HEALTHY[1:3], takes), facts=facts, events=Counter({StepEvent("worker_batch"): 1}))
        answer = answer_on(simulated(plan))
        named.append([cause.gain for cause in answer.causes])
    assert named == [[], [pytest.approx(0.007, abs=1e-4)]]


def test_transfers_without_nccl_are_not_slow_for_the_time_in_which_they_wait_for_a_cpu() -> None:
    """Half of the time of the threads goes by while other programs have the CPU."""
    step = sum(part.seconds for part in HEALTHY)
    plan = Plan((*HEALTHY, Part(Position.FORWARD, Activity.CPU_WAIT, step)), ranks=2, transfer=0.02)
    gains = []
    for uses_nccl in (False, True):
        answer = answer_on(simulated(replace(plan, facts=Facts(uses_nccl=uses_nccl))))
        gains += [cause.gain for cause in answer.causes if cause.cause is CauseName.SLOW_LINK]
    assert gains == [pytest.approx(0.01, rel=0.02), pytest.approx(0.02, rel=0.02)]


def test_workers_that_use_little_cpu_are_not_said_to_compute() -> None:
    waits = Part(Position.LOAD, Activity.LOCK, 0.02)
    facts = Facts(workers=4, cpus=4, worker_cpu=0.1, worker_io=0.0)
    answer = answer_to(waits, facts=facts, events=Counter({StepEvent("worker_batch"): 1}))
    advice = " ".join(answer.causes[0].advice)
    assert "wait for" in advice
    assert "compute" not in advice


def test_a_replay_that_misses_the_measured_steps_gives_no_answer() -> None:
    job, _ = on_device(sync_every=1)
    (one,) = job.ranks
    half = {kind: work / 2 for kind, work in one.works.items()}
    assert answer_on(Job([replace(one, works=half)], job.times)).unknown is Unknown.REPLAY


def test_waits_for_a_gpu_whose_work_is_unknown_give_no_answer() -> None:
    answer = answer_on(simulated(Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.GPU_WAIT, 0.03)))))
    assert answer.unknown is Unknown.GPU_WORK


def test_ranks_with_gpus_whose_work_is_unknown_give_no_answer() -> None:
    """Their waits for a GPU may be called waits for their peers."""
    assert answer_to(ranks=2, transfer=0.03, facts=Facts(has_device=True)).unknown is Unknown.GPU_WORK


def test_the_evidence_of_a_segment_has_no_time_of_another_cause() -> None:
    """Python after the step takes 2 ms, and 100 ms more in every tenth step."""
    each = Part(Position.AFTER_STEP, Activity.PYTHON, 0.002)
    answer = answer_to(each, replace(each, seconds=0.1, every=10))
    assert [cause.cause for cause in answer.causes] == [CauseName.PERIODIC, CauseName.SEGMENT]
    for cause in answer.causes[1:]:
        assert sum(one.value for one in cause.evidence) == pytest.approx(cause.gain, rel=0.1)


def test_slow_steps_at_the_ends_of_epochs_count_as_the_others_do() -> None:
    """The garbage collector runs every 10 steps, and an epoch has 20."""
    collects = Part(Position.AFTER_STEP, Activity.PYTHON, 0.4, every=10)
    plan = Plan((*HEALTHY, collects), epoch=20)
    answer = answer_on(simulated(plan))
    (cause,) = answer.causes
    assert cause.cause is CauseName.PERIODIC
    assert cause.gain == pytest.approx(answer.step - step_of(plan.without(collects)), abs=POINT * answer.step)
    assert "Every 10 steps" in cause.evidence[0].text


def test_restarted_workers_cost_the_begin_and_the_end_of_an_epoch_and_the_copies_of_memory() -> None:
    """The old ones stop in the last step of an epoch. The first pass copies the pages that new ones share."""
    events = Counter({StepEvent("worker_batch"): 1})
    ends, begins = (Part(Position.LOAD, Activity.PIPE, 0.05, every=20, after=after) for after in (0, 1))
    copies = Part(Position.FORWARD, Activity.OPERATOR, 0.02, every=20, after=1)
    plan = Plan((*HEALTHY, ends, begins, copies), epoch=20, events=events, starts_workers=True)
    answer = answer_on(simulated(plan))
    (cause,) = answer.causes
    assert cause.cause is CauseName.WORKERS_RESTART
    truth = answer.step - step_of(plan.without(ends, begins, copies))
    assert cause.gain == pytest.approx(truth, abs=POINT * answer.step)
    assert "An epoch has 20 steps" in cause.evidence[0].text


def test_workers_that_stay_and_need_long_for_the_first_batch_of_an_epoch_are_not_restarted() -> None:
    """They fill a shuffle buffer, for example."""
    fills = Part(Position.LOAD, Activity.PIPE, 0.5, every=20, after=1)
    facts = Facts(workers=2, cpus=8, has_loader=True)
    lead = answer_to(fills, epoch=20, events=Counter({StepEvent("worker_batch"): 1}), facts=facts).causes[0]
    assert lead.cause is CauseName.FIRST_OF_EPOCH
    assert "shuffle buffer" in lead.advice[0]


@pytest.mark.parametrize("rank", [0, None])
def test_work_of_one_rank_every_few_steps_names_the_rank(rank: int | None) -> None:
    logs = Part(Position.AFTER_STEP, Activity.PYTHON, 0.3, every=10, rank=rank)
    lead = answer_on(simulated(Plan((*HEALTHY, logs), ranks=2))).causes[0]
    assert (lead.cause, lead.rank) == (CauseName.PERIODIC, rank)
    assert lead.evidence[-1].text.startswith(f"In them {'the thread' if rank is None else 'rank 0'} runs Python")


@pytest.mark.parametrize(("wait", "left"), [(0.03, 0.0), (0.3, 0.1)], ids=["fast workers", "slow workers"])
def test_an_iterator_per_step_gains_what_its_workers_can_make_meanwhile(wait: float, left: float) -> None:
    """Two workers of one iterator make two batches at once, while the thread trains. What is `left` are their waits."""
    makes = Part(Position.LOAD, Activity.PYTHON, 0.02)
    waits = Part(Position.LOAD, Activity.PIPE, wait)
    events = {StepEvent("worker_batch"): 1, StepEvent("iterator"): 1, StepEvent("worker_start"): 2}
    plan = Plan((*HEALTHY[1:], makes, waits), events=Counter(events))
    answer = answer_on(simulated(plan))
    lead = answer.causes[0]
    assert (lead.cause, lead.position) == (CauseName.ITERATOR_PER_STEP, Position.LOAD)
    trains = step_of(plan.without(makes, waits))
    kept = max(wait / 2 - trains, 0.0) if left else 0.0
    assert lead.gain == pytest.approx(answer.step - trains - kept, abs=2 * POINT * answer.step)
    assert "iter(loader)" in lead.advice[0]
    assert sum(cause.gain for cause in answer.causes) <= answer.step


def test_an_iterator_of_each_epoch_is_no_cause() -> None:
    events = Counter({StepEvent("worker_batch"): 1})
    answer = answer_to(epoch=20, events=events, starts_workers=True)
    assert answer.causes == ()
    assert CauseName.ITERATOR_PER_STEP in answer.looked_at


def test_python_in_passes_whose_operators_are_not_seen_is_no_cause() -> None:
    """They are compiled, or their probes are off."""
    forward = replace(HEALTHY[1], activity=Activity.PYTHON)
    answer = answer_on(simulated(Plan((forward, *HEALTHY[2:]))))
    assert answer.causes == ()


@pytest.mark.parametrize(
    ("transfer", "cause"), [(0.008, CauseName.SMALL_COLLECTIVES), (0.08, CauseName.SLOW_LINK)], ids=["short", "long"]
)
def test_collectives_of_unknown_size_are_small_if_they_are_short(transfer: float, cause: CauseName) -> None:
    """Calls of gloo show no size."""
    events = Counter({StepEvent("collective", Position.AFTER_STEP): 40})
    answer = answer_to(ranks=2, transfer=transfer, meets_in=Position.AFTER_STEP, events=events)
    assert answer.causes[0].cause is cause


def test_the_output_of_a_child_process_is_waited_for_with_its_end() -> None:
    """`subprocess.run(..., capture_output=True)` reads a pipe, and then waits for the end."""
    reads, ends = (
        Part(Position.AFTER_STEP, one, part) for one, part in ((Activity.PIPE, 0.02), (Activity.CHILD, 1e-4))
    )
    (cause,) = answer_on(simulated(Plan((*HEALTHY, reads, ends)))).causes
    assert cause.activity is Activity.CHILD
    assert cause.gain == pytest.approx(0.0201, rel=0.05)
    assert cause.advice[0].startswith("Start this program less often")


@pytest.mark.parametrize(("left", "says"), [(4 * 2**30, "in 3 h 20 min"), (None, "1.2 GiB an hour")])
def test_memory_that_grows_is_named_without_a_gain(left: float | None, says: str) -> None:
    facts = Facts(memory_growth=1.2 * 2**30 / 3600, memory_left=left)
    answer = answer_to(facts=facts)
    (cause,) = answer.causes
    assert (cause.cause, cause.gain, cause.gain_high) == (CauseName.MEMORY_GROWTH, 0.0, 0.0)
    assert says in lead_of(answer)
    assert "saves" not in lead_of(answer)
    assert "loss.item()" in cause.advice[0]


def test_a_job_in_which_one_long_stop_may_be_a_cause_has_no_answer_yet() -> None:
    """It would be wrong to say that nothing is worth changing: without the stop, a step would take half as long."""
    stop = Part(Position.LOAD, Activity.FILE, 0.3, every=7)
    assert answer_on(simulated(Plan((*HEALTHY, stop), steps=12))).unknown is Unknown.UNCERTAIN
    assert answer_to(stop, steps=70).causes


def test_ranks_that_share_a_limit_meet_it_together() -> None:
    facts = Facts(memory_growth=1.2 * 2**30 / 3600, memory_left=4 * 2**30)
    answer = answer_to(ranks=4, facts=facts)
    assert "in 0 h 50 min" in lead_of(answer)


@pytest.mark.parametrize(
    ("left", "verdict"), [(2**30, "unstable"), (40 * 2**30, "compute_bound"), (None, "compute_bound")]
)
def test_memory_that_grows_is_a_verdict_if_it_meets_its_limit_within_a_day(left: float | None, verdict: str) -> None:
    facts = Facts(memory_growth=2**30 / 3600, memory_left=left)
    assert verdict_of(answer_on(simulated(Plan(HEALTHY, facts=facts)))) == verdict


def test_a_rank_with_a_gpu_that_is_seen_alone_waits_for_the_others() -> None:
    facts = Facts(has_device=True, uses_nccl=True)
    plan = Plan(HEALTHY, ranks=2, transfer=0.03, meets_in=Position.AFTER_STEP, on_gpus=True, facts=facts)
    job = simulated(plan)
    answer = answer_on(Job(job.ranks[:1], job.times[:, :1], 2))
    assert answer.waits == pytest.approx(0.03, rel=0.05)
    assert verdict_of(answer) == "communication_bound"


@pytest.mark.parametrize(("python", "causes"), [(0.003, []), (0.02, [(Position.OPTIMIZER, Activity.PYTHON)])])
def test_python_in_an_optimizer_of_pytorch_is_a_cause_if_its_operators_do_not_need_it(
    python: float, causes: list[tuple[Position, Activity]]
) -> None:
    parts = (*HEALTHY, Part(Position.OPTIMIZER, Activity.PYTHON, python))
    answer = answer_on(simulated(Plan(parts, facts=Facts(optimizer="AdamW"))))
    assert [(cause.position, cause.activity) for cause in answer.causes] == causes
    assert all("hooks" in cause.advice[0] for cause in answer.causes)


@pytest.mark.parametrize(
    ("optimizer", "operators", "has_device", "part"),
    [("AdamW", 1_200, False, 0.84), ("AdamW", 30, False, 0.0), ("AdamW", 1_200, True, 0.0), ("SGD", 1_200, False, 0.0)],
)
def test_the_calls_of_an_optimizer_for_many_small_parameters_are_not_its_arithmetic(
    optimizer: str, operators: int, has_device: bool, part: float
) -> None:
    runs, calls = (Part(Position.OPTIMIZER, one, 0.005) for one in (Activity.OPERATOR, Activity.PYTHON))
    facts = Facts(optimizer=optimizer, has_device=has_device)
    beside = (one for one in HEALTHY if one.position is not Position.OPTIMIZER)
    job = simulated(Plan((*beside, runs, calls), facts=facts))
    job.operators = [{Position.OPTIMIZER: np.full(len(job.seconds), float(operators))}]
    causes = answer_on(job).causes
    assert [cause.gain for cause in causes] == ([pytest.approx(part * 0.010, rel=0.05)] if part else [])
    assert all(cause.advice[0].startswith("Give the optimizer `fused=True`") for cause in causes)


def test_steps_of_which_probes_have_seen_a_part_of_the_operators_do_not_count_as_whole() -> None:
    takes = Part(Position.OPTIMIZER, Activity.OPERATOR, 0.010)
    facts = Facts(optimizer="AdamW")
    job = simulated(Plan((*(one for one in HEALTHY if one.position is not Position.OPTIMIZER), takes), facts=facts))
    operators = np.where(np.arange(len(job.seconds)) % 4 == 0, 1_000.0, 400.0)
    job.operators = [{Position.OPTIMIZER: operators}]
    (cause,) = answer_on(job).causes
    assert cause.gain == pytest.approx(1_000 * 7e-6, rel=0.05)


@pytest.mark.parametrize("growth", [None, 0.0, 1_000.0])
def test_memory_that_hardly_grows_is_no_cause(growth: float | None) -> None:
    answer = answer_to(facts=Facts(memory_growth=growth, memory_left=1e6))
    assert answer.causes == ()
    assert (CauseName.MEMORY_GROWTH in answer.looked_at) == (growth is not None)


def test_the_memory_of_workers_counts_with_that_of_their_rank() -> None:
    facts = Facts(memory_growth=0.0, worker_growth=2 * 2**30 / 3600, memory_left=4 * 2**30)
    answer = answer_to(facts=facts)
    (cause,) = answer.causes
    assert [fact.text for fact in cause.evidence] == [
        "Its memory grows by 2.0 GiB an hour.",
        "The memory of its DataLoader workers grows by 2.0 GiB of that.",
        "At this rate it meets the limit of its container in 2 h 0 min.",
    ]
    assert "copy in each worker" in cause.advice[0]


def test_a_cause_that_takes_time_comes_before_memory_that_grows() -> None:
    facts = Facts(memory_growth=2**30 / 60, memory_left=2**30)
    answer = answer_to(Part(Position.LOAD, Activity.PYTHON, 0.02), facts=facts)
    assert [cause.cause for cause in answer.causes] == [CauseName.SEGMENT, CauseName.MEMORY_GROWTH]


@pytest.mark.parametrize(
    "planted",
    [
        Part(Position.AFTER_STEP, Activity.TIMER, 0.05, rank=1),
        Part(Position.LOAD, Activity.PYTHON, 0.02, rank=1),
        Part(Position.AFTER_STEP, Activity.FILE, 0.4, every=20),
    ],
    ids=["sleeps on a rank", "loads on a rank", "writes every 20 steps"],
)
def test_what_a_named_cause_saves_is_not_hidden(planted: Part) -> None:
    answer = answer_to(planted, ranks=2, on_gpus=True)
    assert answer.causes[0].gain > 0.1 * answer.step
    assert (planted.position, planted.activity) not in [(one.position, one.activity) for one in answer.hidden]
