"""The lines of causes, of simulated jobs whose stacks are made."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from otel_zernel_libraries.training.causes import Cause, CauseName, CodeTime, Facts, answer_on
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent
from otel_zernel_libraries.training.stacks import CodeLine
from tests.libraries.training.causes.simulated import HEALTHY, Part, Plan, simulated
from tests.libraries.training.made_stacks import (
    BACKWARD,
    CALLS,
    CONDITION,
    FETCH,
    LOOP,
    MAIN,
    PACKAGES,
    QUEUE,
    TOKENIZE,
    WORKER_LOOP,
    line,
)

STEP = 0.05
"""About the seconds of a step, and the window of the made stacks."""
_INNER: Mapping[Position, tuple[CodeLine, ...]] = {
    Position.BACKWARD: (BACKWARD, line(70), MAIN),
    Position.OPTIMIZER: (line(71), MAIN),
    Position.FORWARD: (line(69), MAIN),
}
USUAL = tuple(PlacedStack(0.01, Activity.OPERATOR, lines, at) for at, lines in _INNER.items())
"""The stacks of the model: they show that `main` is the loop."""


def answered(plan: Plan, *of_ranks: Sequence[PlacedStack]) -> Sequence[Cause]:
    """The causes of a job. `of_ranks`: the stacks of each rank in as much time as a step takes."""
    job = simulated(plan)
    step = job.step
    job.ranks = [
        replace(rank, code=CodeTimes(step, (*USUAL, *stacks)) if stacks else CodeTimes())
        for rank, stacks in zip(job.ranks, of_ranks, strict=True)
    ]
    answer = answer_on(job)
    assert answer
    return answer.causes


def named(causes: Sequence[Cause], name: CauseName = CauseName.SEGMENT) -> Cause:
    return next(cause for cause in causes if cause.cause is name)


def test_a_segment_has_the_lines_of_its_activity_the_longest_first() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.SOCKET, 0.010)))
    stacks = (
        PlacedStack(0.007, Activity.SOCKET, (CALLS, TOKENIZE, LOOP, MAIN), Position.AFTER_STEP),
        PlacedStack(0.003, Activity.SOCKET, (line(61), MAIN), Position.AFTER_STEP),
        PlacedStack(0.009, Activity.SOCKET, (line(20, "elsewhere"), MAIN), Position.LOAD),
        PlacedStack(0.009, Activity.FILE, (line(21, "other"), MAIN), Position.AFTER_STEP),
    )
    cause = named(answered(plan, stacks))
    assert cause.code == ("data/text.py:42 tokenize", "train.py:61 main")
    assert cause.lines[0].call == "transformers/tokenization_utils.py:2877 PreTrainedTokenizer.__call__"
    assert [one.seconds for one in cause.lines] == pytest.approx([0.007, 0.003], rel=0.1)
    assert not any("data/text.py" in text for text in cause.advice), "the line is there; the advice says what to do"


def test_what_to_do_comes_before_the_place_to_look_at() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.LOCK, 0.010)))
    stack = PlacedStack(0.010, Activity.LOCK, (TOKENIZE, LOOP, MAIN), Position.AFTER_STEP)
    first, look = named(answered(plan, [stack])).advice
    assert first.startswith("Do not wait for the other thread in each step")
    assert re.fullmatch(r"Look at data/text\.py:42: tokenize takes (9|10)\.\d+ ms of each step\.", look)


def test_the_library_that_the_program_calls_decides_what_to_do_first() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.PYTHON, 0.010)))
    images = CodeLine(f"{PACKAGES}/PIL/Image.py", "Image.resize", 2300)
    stack = PlacedStack(0.010, Activity.PYTHON, (images, TOKENIZE, LOOP, MAIN), Position.AFTER_STEP)
    assert named(answered(plan, [stack])).advice[0].startswith("Prepare images in worker processes")
    own = PlacedStack(0.006, Activity.PYTHON, (TOKENIZE, LOOP, MAIN), Position.AFTER_STEP)
    mostly_own = named(answered(plan, [own, stack._replace(seconds=0.004)]))
    assert not any("images" in text for text in mostly_own.advice)


@pytest.mark.parametrize("activity", [Activity.PYTHON, Activity.LOCK])
def test_a_queue_of_processes_that_unpacks_is_told_from_one_that_waits(activity: Activity) -> None:
    plan = Plan((*HEALTHY, Part(Position.LOAD, activity, 0.010)))
    stack = PlacedStack(0.010, activity, (QUEUES, line(70), MAIN), Position.LOAD)
    first = named(answered(plan, [stack])).advice[0]
    assert first.startswith(
        "Let workers return one tensor" if activity is Activity.PYTHON else "Make batches in several"
    )


QUEUES = CodeLine("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 122)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_call_that_computes_and_waits_is_one_cause(is_same: bool) -> None:
    """A database takes time of the CPU and of its disk."""
    parts = [Part(Position.AFTER_STEP, activity, 0.0009) for activity in (Activity.PYTHON, Activity.FILE)]
    stacks = [
        PlacedStack(0.0009, activity, (inner, LOOP, MAIN), Position.AFTER_STEP)
        for activity, inner in ((Activity.PYTHON, TOKENIZE), (Activity.FILE, TOKENIZE if is_same else line(3, "log")))
    ]
    causes = answered(Plan((*HEALTHY, *parts)), stacks)
    usual = 0.0002
    assert [cause.gain for cause in causes] == ([pytest.approx(0.0018 + usual, rel=0.05)] if is_same else [])


@pytest.mark.parametrize("has_child", [True, False])
def test_a_pool_of_processes_is_one_cause_and_a_lock_beside_other_work_is_two(has_child: bool) -> None:
    activities = (Activity.PYTHON, Activity.LOCK, *((Activity.CHILD,) if has_child else ()))
    parts = [Part(Position.AFTER_STEP, activity, 0.004) for activity in activities]
    stacks = [PlacedStack(0.004, activity, (TOKENIZE, LOOP, MAIN), Position.AFTER_STEP) for activity in activities]
    causes = answered(Plan((*HEALTHY, *parts)), stacks)
    assert [cause.activity for cause in causes] == ([Activity.CHILD] if has_child else [Activity.PYTHON, Activity.LOCK])


def test_the_lines_of_a_function_are_one_place_but_those_of_the_loop_are_not() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.PYTHON, 0.010)))
    stacks = [
        PlacedStack(0.002, Activity.PYTHON, (line(number, function), MAIN), Position.AFTER_STEP)
        for function, number in (("metric", 12), ("metric", 12), ("metric", 14), ("main", 62), ("main", 65))
    ]
    cause = named(answered(plan, stacks))
    assert cause.code == ("train.py:12 metric", "train.py:62 main", "train.py:65 main")
    assert cause.lines[0].seconds == pytest.approx(0.006, rel=0.1)


def test_lines_never_take_longer_than_their_cause() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.TIMER, 0.010)))
    cause = named(answered(plan, [PlacedStack(0.03, Activity.TIMER, (line(61), MAIN), Position.AFTER_STEP)]))
    assert cause.lines == (CodeTime("train.py:61 main", "", cause.lines[0].seconds),)
    assert cause.lines[0].seconds == pytest.approx(cause.gain, rel=0.05)


def test_a_line_has_its_part_of_the_waits_for_a_cpu() -> None:
    waits = Part(Position.AFTER_STEP, Activity.CPU_WAIT, 0.020)
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.PYTHON, 0.010), waits))
    cause = named(answered(plan, [PlacedStack(0.010, Activity.PYTHON, (TOKENIZE, MAIN), Position.AFTER_STEP)]))
    assert cause.gain > 0.025
    assert cause.lines[0].seconds == pytest.approx(cause.gain, rel=0.1)


def test_a_late_rank_has_the_functions_in_which_it_needs_more() -> None:
    plan = Plan((*HEALTHY, Part(Position.FORWARD, Activity.NATIVE, 0.020, rank=1)), ranks=3)
    tokenizes = PlacedStack(0.020, Activity.NATIVE, (CALLS, TOKENIZE, MAIN), Position.FORWARD)
    shared = PlacedStack(0.002, Activity.NATIVE, (line(68), MAIN), Position.FORWARD)
    cause = named(answered(plan, (shared,), (tokenizes, shared), (shared,)), CauseName.STRAGGLER)
    assert cause.rank == 1
    assert cause.code == ("data/text.py:42 tokenize",)
    assert cause.lines[0].seconds == pytest.approx(0.020, rel=0.05)
    sentence = cause.evidence[-1]
    assert (
        sentence.text
        == f"It spends {sentence.text.split()[2]} ms more in tokenize() (data/text.py:42) than the others."
    )
    assert sentence.value == pytest.approx(0.020, rel=0.05)
    unknown = named(answered(plan, (), (tokenizes, shared), ()), CauseName.STRAGGLER)
    assert unknown.code[0] == "data/text.py:42 tokenize"
    assert not any("than the others" in one.text and "tokenize" in one.text for one in unknown.evidence)


def test_a_wait_for_a_thread_has_the_lines_of_that_thread() -> None:
    plan = Plan((*HEALTHY, Part(Position.LOAD, Activity.LOCK, 0.020)))
    waits = PlacedStack(0.020, Activity.LOCK, (CONDITION, QUEUE, LOOP, MAIN), Position.LOAD)
    reads = PlacedStack(0.018, Activity.FILE, (line(9, "Prefetcher.run"),), is_other=True)
    idle = PlacedStack(0.050, Activity.LOCK, (CONDITION, line(5, "Logger.run")), is_other=True)
    alone = named(answered(plan, (waits, idle)))
    assert alone.code == ("train.py:60 main",)
    assert alone.lines[0].call == "queue.py:171 Queue.get"
    cause = named(answered(plan, (waits, reads, idle)))
    assert cause.code == ("train.py:9 Prefetcher.run",)
    assert cause.lines[0].seconds == pytest.approx(0.018, rel=0.1)


def test_slow_workers_have_the_lines_in_which_workers_make_batches() -> None:
    plan = Plan(
        (*HEALTHY, Part(Position.LOAD, Activity.LOCK, 0.020)),
        facts=Facts(workers=2, worker_cpu=1.9, cpus=2.0, has_loader=True),
        events=Counter({StepEvent("worker_batch"): 1}),
    )
    waits = PlacedStack(0.020, Activity.LOCK, (CONDITION, QUEUE, LOOP, MAIN), Position.LOAD)
    worker = (FETCH, WORKER_LOOP, LOOP, MAIN)
    stacks = (
        waits,
        PlacedStack(0.040, Activity.PYTHON, (TOKENIZE, *worker), Position.LOAD, 7, is_other=True),
        PlacedStack(0.050, Activity.PIPE, (QUEUE, *worker[1:]), Position.LOAD, 8, is_other=True),
    )
    causes = answered(plan, stacks)
    cause = next(cause for cause in causes if cause.cause in (CauseName.WORKERS_SLOW, CauseName.WORKERS_TOO_FEW))
    assert cause.code == ("data/text.py:42 tokenize",)
    assert cause.lines[0].seconds == pytest.approx(cause.gain, rel=0.05)


def test_a_wait_for_pythons_lock_has_the_lines_of_its_holder() -> None:
    plan = Plan((*HEALTHY, Part(Position.FORWARD, Activity.GIL, 0.020)))
    stacks = (
        PlacedStack(0.020, Activity.GIL, (line(69), MAIN), Position.FORWARD),
        PlacedStack(0.030, Activity.PYTHON, (line(8, "spin"),), is_other=True),
    )
    assert named(answered(plan, stacks), CauseName.GIL).code == ("train.py:8 spin",)


@pytest.mark.parametrize(
    ("file", "function", "advice"),
    [
        ("/home/me/run/with blank/übung 数.py", "step", "Look at with blank/übung 数.py:3: step takes "),
        ("/home/me/run/train.py", "<module>", "Look at train.py:3: this line takes "),
        ("/home/me/run/\x1b[31m.py", "f\nTry: this", 'Look at "\\u001b[31m.py:3": "f\\nTry: this" takes '),
    ],
)
def test_an_advice_names_any_file_and_function(file: str, function: str, advice: str) -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.LOCK, 0.010)))
    stack = PlacedStack(0.010, Activity.LOCK, (line(3, function, file), MAIN), Position.AFTER_STEP)
    cause = named(answered(plan, [stack]))
    assert cause.advice[1].startswith(advice)
    assert cause.code[0].isprintable()


def test_the_line_of_slow_workers_replaces_the_advice_to_look_for_it() -> None:
    plan = Plan(
        (*HEALTHY, Part(Position.LOAD, Activity.LOCK, 0.020)),
        facts=Facts(workers=2, worker_cpu=0.1, worker_io=0.0, cpus=2.0, has_loader=True),
        events=Counter({StepEvent("worker_batch"): 1}),
    )
    worker = PlacedStack(0.040, Activity.TIMER, (TOKENIZE, FETCH, WORKER_LOOP), Position.LOAD, 7, is_other=True)
    assert any("py-spy" in text for text in named(answered(plan, ()), CauseName.WORKERS_SLOW).advice)
    advice = named(answered(plan, [worker]), CauseName.WORKERS_SLOW).advice
    assert advice[1].startswith("Look at data/text.py:42: tokenize takes ")
    assert not any("py-spy" in text for text in advice)


FORMAT_STACK = CodeLine(f"{PACKAGES}/torch/fx/traceback.py", "format_stack", 160)
ENGINE = CodeLine(f"{PACKAGES}/torch/autograd/graph.py", "_engine_run_backward", 825)
HOOK = line(8, "check")


@pytest.mark.parametrize(
    ("position", "stack", "words", "advice"),
    [
        (Position.FORWARD, (FORMAT_STACK, line(69), MAIN), "Anomaly mode keeps", "Switch anomaly mode off"),
        (Position.BACKWARD, (HOOK, ENGINE, BACKWARD, line(70), MAIN), "Hooks, or functions", "Remove the hook"),
    ],
)
def test_frames_show_the_reason_of_python_in_a_pass(
    position: Position, stack: tuple[CodeLine, ...], words: str, advice: str
) -> None:
    plan = Plan((*HEALTHY, Part(position, Activity.PYTHON, 0.020)), events=Counter({StepEvent("backward"): 1}))
    cause = named(answered(plan, [PlacedStack(0.020, Activity.PYTHON, stack, position)]))
    assert any(one.text.startswith(words) for one in cause.evidence)
    assert cause.advice[0].startswith(advice)
    usual = named(answered(plan, [PlacedStack(0.020, Activity.PYTHON, (line(70), MAIN), position)]))
    assert not any(one.text.startswith(words) for one in usual.evidence)


@pytest.mark.parametrize("is_on", [True, False])
def test_anomaly_mode_is_named_also_where_its_stacks_take_little_since_it_looks_at_gradients_too(is_on: bool) -> None:
    plan = Plan((*HEALTHY, Part(Position.FORWARD, Activity.PYTHON, 0.0006)))
    stack = (*((FORMAT_STACK,) if is_on else ()), line(69), MAIN)
    causes = answered(plan, [PlacedStack(0.0006, Activity.PYTHON, stack, Position.FORWARD)])
    assert [cause.advice[0].startswith("Switch anomaly mode off") for cause in causes] == ([True] if is_on else [])
    assert all("for a time that is not known" in cause.evidence[-1].text for cause in causes)
    assert all(cause.gain_high > 0.020 for cause in causes)  # all operators of the backward pass


APPLY = CodeLine(f"{PACKAGES}/torch/autograd/function.py", "BackwardCFunction.apply", 307)
SGD = CodeLine(f"{PACKAGES}/torch/optim/sgd.py", "SGD.step", 80)
QUANTIZED = line(9, "Quantized.__torch_dispatch__")


@pytest.mark.parametrize(
    ("inner", "share"), [((HOOK,), 0.5), ((HOOK, APPLY), 0.0), ((SGD, HOOK), 0.0), ((QUANTIZED,), 0.0)]
)
def test_operators_of_hooks_are_no_part_of_a_backward_pass(inner: tuple[CodeLine, ...], share: float) -> None:
    whole = next(one.seconds for one in HEALTHY if one.position is Position.BACKWARD)
    beside = next(one.seconds for one in USUAL if one.position is Position.BACKWARD)
    stack = (*inner, ENGINE, BACKWARD, line(70), MAIN)
    waits = Part(Position.BACKWARD, Activity.CPU_WAIT, 2 * whole)
    answers = answered(Plan((*HEALTHY, waits)), [PlacedStack(beside, Activity.OPERATOR, stack, Position.BACKWARD)])
    causes = [answer for answer in answers if answer.cause is CauseName.SEGMENT]
    assert [cause.gain for cause in causes] == ([pytest.approx(share * 3 * whole, rel=0.05)] if share else [])
    assert all(cause.advice[0].startswith("Remove the hook") for cause in causes)
    assert all(cause.lines[0].seconds == pytest.approx(cause.gain, rel=0.05) for cause in causes)


COLLATE = CodeLine(f"{PACKAGES}/torch/utils/data/_utils/collate.py", "default_collate", 240)
LOADER = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 701)


ROWS = CodeLine(f"{PACKAGES}/datasets/arrow_dataset.py", "Dataset.__getitems__", 2880)


@pytest.mark.parametrize("inner", [(COLLATE,), (line(12, "Images.__getitem__"),), (ROWS,)])
def test_a_loader_that_takes_ready_samples_one_by_one_is_told_from_one_whose_samples_take_time(
    inner: tuple[CodeLine, ...],
) -> None:
    stack = (*inner, FETCH, LOADER, line(70), MAIN)
    facts = Facts(has_loader=True, workers=0, cpus=8)
    plan = Plan((*HEALTHY, Part(Position.LOAD, Activity.PYTHON, 0.020)), facts=facts)
    cause = named(answered(plan, [PlacedStack(0.020, Activity.PYTHON, stack, Position.LOAD)]))
    is_ready = inner == (COLLATE,)
    assert cause.advice[0].startswith("Take a whole batch at once: ") is is_ready
    assert any(one.text.startswith("The DataLoader takes samples one by one") for one in cause.evidence) is is_ready
    assert any("single rows of a table" in advice for advice in cause.advice) is (inner == (ROWS,))


def test_a_forward_pass_that_a_checkpoint_runs_again_is_no_hook() -> None:
    checkpoint = CodeLine(f"{PACKAGES}/torch/utils/checkpoint.py", "CheckpointFunction.backward", 313)
    stack = (line(8, "Block.forward"), checkpoint, ENGINE, BACKWARD, line(70), MAIN)
    plan = Plan((*HEALTHY, Part(Position.BACKWARD, Activity.PYTHON, 0.020)), events=Counter({StepEvent("backward"): 1}))
    cause = named(answered(plan, [PlacedStack(0.020, Activity.PYTHON, stack, Position.BACKWARD)]))
    assert cause.code[0] == "train.py:8 Block.forward"
    assert not any("Hooks" in one.text for one in cause.evidence)
    assert any(one.text.startswith("The backward pass runs parts of the forward pass again") for one in cause.evidence)
    assert cause.advice[0].startswith("Keep the activations of more modules")


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_clipping_by_pytorch_is_the_work_itself_and_what_the_program_does_beside_it_is_not(share: float) -> None:
    clip = CodeLine(f"{PACKAGES}/torch/nn/utils/clip_grad.py", "clip_grad_norm_", 82)
    plan = Plan((*HEALTHY, Part(Position.CLIP, Activity.PYTHON, 0.010)))
    stacks = [
        PlacedStack(0.010 * part, Activity.OPERATOR, lines, Position.CLIP)
        for part, lines in ((share, (clip, line(72), MAIN)), (1 - share, (line(9, "log_norms"), line(73), MAIN)))
        if part
    ]
    gains = [one.gain for one in answered(plan, stacks)]
    assert gains == ([] if share == 1.0 else [pytest.approx(0.010 * (1 - share), rel=0.05)])


@pytest.mark.parametrize(
    ("inner", "is_own"),
    [
        ((), True),
        (("torch/_tensor.py", "Tensor.norm"), True),
        (("torch/nn/utils/clip_grad.py", "clip_grad_norm_"), False),
        (("deepspeed/runtime/utils.py", "clip_grad_norm_"), False),
    ],
)
def test_operators_on_gradients_that_the_program_calls_are_no_work_and_those_of_libraries_are(
    inner: tuple[str, str] | tuple[()], is_own: bool
) -> None:
    called = (CodeLine(f"{PACKAGES}/{inner[0]}", inner[1], 70),) if inner else ()
    plan = Plan((*HEALTHY, Part(Position.CLIP, Activity.OPERATOR, 0.010), Part(Position.CLIP, Activity.PYTHON, 0.004)))
    stacks = [
        PlacedStack(seconds, activity, (*called, line(9, "check_gradients"), line(73), MAIN), Position.CLIP)
        for activity, seconds in ((Activity.OPERATOR, 0.010), (Activity.PYTHON, 0.004))
    ]
    causes = answered(plan, stacks)
    if is_own:
        (cause,) = causes
        assert cause.position is Position.CLIP
        assert cause.gain == pytest.approx(0.014, rel=0.05)
        assert cause.advice[0].startswith("Look at gradients (norms, checks for NaN) every few steps only.")
        assert cause.code[0] == "train.py:9 check_gradients"
    else:
        assert not any(cause.activity is Activity.OPERATOR for cause in causes)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_native_code_that_a_function_of_pytorch_has_called_in_a_pass_is_the_work_itself(share: float) -> None:
    lstm = CodeLine(f"{PACKAGES}/torch/nn/modules/rnn.py", "LSTM.forward", 1123)
    numpy = CodeLine(f"{PACKAGES}/numpy/linalg/_linalg.py", "svd", 1796)
    plan = Plan((*HEALTHY, Part(Position.FORWARD, Activity.NATIVE, 0.010)))
    stacks = [
        PlacedStack(0.010 * part, Activity.NATIVE, lines, Position.FORWARD)
        for part, lines in (
            (share, (lstm, line(8, "Model.forward"), MAIN)),
            (1 - share, (numpy, line(9, "Model.forward"), MAIN)),
        )
        if part
    ]
    gains = [one.gain for one in answered(plan, stacks)]
    assert gains == ([] if share == 1.0 else [pytest.approx(0.010 * (1 - share), rel=0.1)])


CONVERT = CodeLine(f"{PACKAGES}/torch/_dynamo/convert_frame.py", "_compile", 1700)
SYMBOLS = CodeLine(f"{PACKAGES}/torch/_dynamo/symbolic_convert.py", "InstructionTranslator.run", 1500)
INDUCTOR = CodeLine(f"{PACKAGES}/torch/_inductor/compile_fx.py", "compile_fx", 700)
TRITON = CodeLine(f"{PACKAGES}/triton/runtime/autotuner.py", "Autotuner._bench", 200)
COMPILE = CodeLine(f"{PACKAGES}/torch/__init__.py", "compile", 2836)


@pytest.mark.parametrize(
    ("inner", "words", "advice"),
    [
        ((SYMBOLS, CONVERT), "torch.compile translates functions of the program: ", "`TORCH_LOGS=recompiles`"),
        ((INDUCTOR, CONVERT), "Inductor or Triton make kernels, or tune them: ", "`TORCHINDUCTOR_CACHE_DIR`"),
        ((TRITON,), "Inductor or Triton make kernels, or tune them: ", "`TRITON_CACHE_DIR`"),
    ],
)
def test_frames_show_what_a_compilation_does(inner: tuple[CodeLine, ...], words: str, advice: str) -> None:
    plan = Plan((*HEALTHY, Part(Position.COMPILE, Activity.PYTHON, 0.020)))
    stack = PlacedStack(0.020, Activity.PYTHON, (*inner, line(69), MAIN), Position.COMPILE)
    cause = named(answered(plan, [stack]), CauseName.COMPILE)
    assert "There is one in each step" in cause.evidence[1].text
    assert cause.code == ("train.py:69 main",)
    assert [one.text.startswith(words) for one in cause.evidence[2:]] == [True]
    assert any(advice in text for text in cause.advice)


RUNS = (
    ("torch/_inductor/output_code.py", "CompiledFxGraph.__call__"),
    ("torch/_inductor/codecache.py", "CompiledFxGraph.__call__"),
    ("torch/_inductor/compile_fx.py", "cudagraphify.<locals>.run"),
    ("torch/_inductor/compile_fx.py", "align_inputs_from_check_idxs.<locals>.run"),
    ("torch/_inductor/utils.py", "align_inputs_from_check_idxs.<locals>.run"),
    ("torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.run"),
    ("torch/_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>.compile_wrapper"),
    ("triton/runtime/jit.py", "JITFunction.run"),
    ("triton/runtime/autotuner.py", "Autotuner.run"),
)


@pytest.mark.parametrize(("file", "function"), RUNS)
def test_frames_that_run_a_compiled_model_show_no_compilation(file: str, function: str) -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.PYTHON, 0.020)))
    stack = (CodeLine(f"{PACKAGES}/{file}", function, 7), line(69), MAIN)
    cause = named(answered(plan, [PlacedStack(0.020, Activity.PYTHON, stack, Position.AFTER_STEP)]))
    assert cause.code == ("train.py:69 main",)
    assert not any("compile" in one.text or "kernels" in one.text for one in cause.evidence)


@pytest.mark.parametrize("every", [1, 100_000])
def test_a_call_of_compile_in_a_loop_that_compiles_again_is_named(every: int) -> None:
    compiles = Part(Position.COMPILE, Activity.PYTHON, 0.020 * min(every, 500), every=every)
    stacks = (
        PlacedStack(0.020, Activity.PYTHON, (SYMBOLS, CONVERT, line(69), MAIN), Position.COMPILE),
        PlacedStack(0.001, Activity.PYTHON, (COMPILE, line(18, "step"), MAIN), Position.FORWARD),
    )
    causes = answered(Plan((*HEALTHY, compiles)), stacks)
    said = [text for cause in causes for text in (*cause.advice, *(fact.text for fact in cause.evidence))]
    assert ("train.py:18 step calls `torch.compile` between compilations." in said) is (every == 1)
    assert any(text.startswith("Call `torch.compile` once, before the loop") for text in said) is (every == 1)


def test_a_job_without_stacks_has_no_lines() -> None:
    plan = Plan((*HEALTHY, Part(Position.AFTER_STEP, Activity.SOCKET, 0.010)))
    cause = named(answered(plan, ()))
    assert (cause.code, cause.lines) == ((), ())
    assert not any(text.startswith("Look at") for text in cause.advice)
