"""Which lines of a Python stack to show: the user's deepest line, and the call of a library below it.

Files have three tiers: those of the user; other packages; PyTorch, NumPy, and the standard library. Some frames of
libraries only pass a call on. They are no answer to a question, so they are left out.

A file outside the folders of libraries is the user's, also one of a package that is installed in editable mode.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from otel_zernel.text import printable
from otel_zernel_libraries.training.code_positions import position_of
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.library_folders import is_core, is_standard, path_in_library
from otel_zernel_libraries.training.stacks import CodeLine

_GENERATED: Final = re.compile(r"<eval_with_key>|<__array_function__|.*/torchinductor_[^/]*/")
"""Code that PyTorch and NumPy write."""
_PASSING: Final = re.compile(r"<(?:frozen |decorator-gen-|makefun-gen-|attrs generated |boltons\.)")
"""Code of the import system and of `runpy`, and code that decorators write."""
_DATACLASS: Final = re.compile(r"(?:__create_fn__\.<locals>\.)?__(?:init|eq|lt|le|gt|ge|hash|repr|setattr|delattr)__")
"""Methods in `<string>` that `dataclass` writes."""
_CELLS: Final = (
    (re.compile(r"<ipython-input-(\d+)-\w+>|.*/ipython-input-(\d+)-\w+\.py"), "cell In[{}]"),
    (re.compile(r".*/ipykernel_\d+/(\d+)\.py|.*/ipython-input-(\d+)\.py"), "cell {}"),
    (re.compile(r"<command-(\d+)>|.*/command-(\d+)-\d+"), "cell {}"),
    (re.compile(r".*/__marimo__cell_(\w+?)_*\.py"), "cell {}"),
)
"""The files of notebook cells, and their names. IPython counts the runs of cells. Other kernels use a hash of the code,
as in their tracebacks."""
_PLUMBING: Final = re.compile(
    r"torch/(?:nn/modules/container|_ops|utils/_contextlib|utils/data/_utils/(?:fetch|worker)|_compile"
    r"|_dynamo/(?:eval_frame|external_utils)|amp/autocast_mode|autograd/grad_mode)\.py"
    r"|accelerate/utils/operations\.py|transformers/utils/(?:generic|output_capturing|deprecation)\.py"
    r"|(?:contextlib|functools|threading|runpy|multiprocessing/(?:process|context|popen_\w+)|concurrent/futures/thread"
    r"|importlib/\w+)\.py"
)
"""Files whose frames only pass a call on."""
_WRAPPERS: Final = re.compile(
    r"(?:Module\.)?(?:_wrapped_call_impl|_call_impl)|Module\._call_impl\.<locals>\.inner"
    r"|.*profile_hook_step\.<locals>\.wrapper|(?:use|_use)_grad_for_differentiable.*|_use_grad"
)
"""Functions of PyTorch that do."""
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")
_LONGEST_FILE, _LONGEST_FUNCTION = 120, 80
_LOCALS: Final = "<locals>."
_MODULE: Final = "<module>"
_WORKER_LOOP: Final = "_worker_loop"
_WORKERS: Final = "torch/utils/data/_utils/worker.py"
_FETCH: Final = "torch/utils/data/_utils/fetch.py"
_ONE_BY_ONE: Final = (_FETCH, "torch/utils/data/sampler.py")
_TRACES: Final = "torch/fx/traceback.py"
_TOP: Final = "torch/__init__.py"
_CHECKPOINTS: Final = "torch/utils/checkpoint.py"
_CLIPPING: Final = ("torch/nn/utils/clip_grad.py", "torch/amp/grad_scaler.py", "torch/cuda/amp/grad_scaler.py")
_FUNCTIONS: Final = "torch/autograd/function.py"
_OPTIMIZERS: Final = "torch/optim/"
_DISPATCHES: Final = frozenset({"__torch_dispatch__", "__torch_function__"})
_DYNAMO: Final = "torch/_dynamo/convert_frame.py"
_KERNELS: Final = ("torch/_inductor/", "triton/")


class Tier(IntEnum):
    """The author of a file."""

    PLUMBING = 0
    CORE = 1
    """PyTorch, NumPy, or the standard library."""
    PACKAGE = 2
    USER = 3


def tier_of(line: CodeLine) -> Tier:
    """The tier of a line's function."""
    return _tier_of(line.file, path_in_library(line), line.function)


@lru_cache(maxsize=8_192)
def _tier_of(file: str, path: str, function: str) -> Tier:
    if _PASSING.match(file) or (file == "<string>" and _DATACLASS.fullmatch(function)):
        return Tier.PLUMBING
    if not path:
        return Tier.CORE if _GENERATED.match(file) else Tier.USER
    if _PLUMBING.match(path) or (path.startswith("torch/") and _WRAPPERS.fullmatch(function)):
        return Tier.PLUMBING
    return Tier.CORE if is_core(path) else Tier.PACKAGE


def cell_of(file: str) -> str:
    """The name of a notebook's cell for a person: `cell In[12]`. Empty for any other file."""
    for pattern, name in _CELLS:
        if match := pattern.fullmatch(file):
            return name.format(next(filter(None, match.groups())))
    return ""


class Place(NamedTuple):
    """Where a stack is, for a person."""

    line: CodeLine
    """The user's deepest line; of a stack without one, the deepest line of a package."""
    call: CodeLine | None
    """The call of a library below it."""
    is_user: bool


def place_of(stack: Sequence[CodeLine]) -> Place | None:
    """The place of a stack, whose innermost line is the first; None if it has none."""
    tiers = [tier_of(frame) for frame in stack]
    deepest = {tier: tiers.index(tier) for tier in set(tiers)}
    at = next((deepest[tier] for tier in (Tier.USER, Tier.PACKAGE, Tier.CORE) if tier in deepest), None)
    if at is None:
        return None
    below = range(at - 1, -1, -1)
    of_package = deepest.get(Tier.PACKAGE, at) if tiers[at] is Tier.USER else at
    call = of_package if of_package < at else next((frame for frame in below if tiers[frame] is Tier.CORE), None)
    return Place(stack[at], None if call is None else stack[call], tiers[at] is Tier.USER)


def of_worker(stack: Sequence[CodeLine]) -> tuple[Sequence[CodeLine], bool]:
    """The part of a stack of a DataLoader worker that the worker has called, and whether it makes a batch.

    A forked worker has the frames of its parent, too.
    """
    loops = (
        at for at, frame in enumerate(stack) if frame.function == _WORKER_LOOP and path_in_library(frame) == _WORKERS
    )
    inner = stack[: next(loops, len(stack))]
    return inner, _is_in(inner, _FETCH)


def _is_in(stack: Sequence[CodeLine], *files: str) -> bool:
    """Whether a stack has a frame of one of these files of libraries."""
    return any(path_in_library(frame) in files for frame in stack)


def waits_for_python(stack: Sequence[CodeLine]) -> bool:
    """Whether a thread that waits does so in the standard library: for another Python thread, or a process."""
    return bool(stack) and is_standard(path_in_library(stack[0]))


def takes_one_by_one(stack: Sequence[CodeLine]) -> bool:
    """Whether a DataLoader takes samples that are ready, one by one, or joins them into a batch: without code of the
    user's, or of a package that makes them."""
    fetch = next((at for at, frame in enumerate(stack) if path_in_library(frame) in _ONE_BY_ONE), None)
    return fetch is not None and all(tier_of(frame) <= Tier.CORE for frame in stack[:fetch])


def in_anomaly_mode(stack: Sequence[CodeLine]) -> bool:
    """Whether autograd's anomaly mode keeps the stack of an operator."""
    return any(frame.function == "format_stack" and path_in_library(frame) == _TRACES for frame in stack)


def in_translation(stack: Sequence[CodeLine]) -> bool:
    """Whether torch.compile translates a function of the program, and makes no kernel meanwhile."""
    return _is_in(stack, _DYNAMO) and not in_kernel_compiler(stack)


def in_kernel_compiler(stack: Sequence[CodeLine]) -> bool:
    """Whether Inductor or Triton make or tune kernels. Their other frames run them."""
    return any(
        path_in_library(frame).startswith(_KERNELS) and position_of(frame) is Position.COMPILE for frame in stack
    )


def calls_compile(stack: Sequence[CodeLine]) -> bool:
    """Whether the program calls `torch.compile`, which makes a function that is compiled at its first call."""
    return any(frame.function == "compile" and path_in_library(frame) == _TOP for frame in stack)


def in_hook(stack: Sequence[CodeLine]) -> bool:
    """Whether a backward pass has called code of the user: a hook, or the backward pass of a function."""
    is_called = any(tier_of(frame) is Tier.USER for frame in _called_in_backward(stack))
    return is_called and not in_recomputation(stack)


def is_of_hook(stack: Sequence[CodeLine]) -> bool:
    """Whether a hook of the user runs, which is no part of the backward pass. Functions and tensors of the user's that
    have operators of their own are a part of it, and so is an optimizer that takes its step there."""
    return in_hook(stack) and not any(_is_of_pass(frame) for frame in _called_in_backward(stack))


def _is_of_pass(line: CodeLine) -> bool:
    path = path_in_library(line)
    return path == _FUNCTIONS or path.startswith(_OPTIMIZERS) or line.function.rpartition(".")[2] in _DISPATCHES


def in_clipping(stack: Sequence[CodeLine]) -> bool:
    """Whether PyTorch clips gradients, or divides them by the scale of the loss."""
    return _is_in(stack, *_CLIPPING)


def is_called_by_user(stack: Sequence[CodeLine]) -> bool:
    """Whether the user's code has called it, and no package between does."""
    tiers = [tier_of(frame) for frame in stack]
    return Tier.USER in tiers and Tier.PACKAGE not in tiers[: tiers.index(Tier.USER)]


def in_recomputation(stack: Sequence[CodeLine]) -> bool:
    """Whether a backward pass runs a part of the forward pass again, for a checkpoint of activations."""
    return _is_in(_called_in_backward(stack), _CHECKPOINTS)


def _called_in_backward(stack: Sequence[CodeLine]) -> Sequence[CodeLine]:
    """The frames that a backward pass has called."""
    return stack[: next((at for at, frame in enumerate(stack) if frame.function == "_engine_run_backward"), 0)]


def without_plumbing(stack: Sequence[CodeLine]) -> tuple[CodeLine, ...]:
    """The stack without the frames that only pass a call on."""
    return tuple(frame for frame in stack if tier_of(frame) is not Tier.PLUMBING)


def folder_of(stacks: Iterable[Sequence[CodeLine]]) -> str:
    """The folder of a program, with a slash: that of the outermost user's module. Empty if no stack shows it."""
    folders: Counter[str] = Counter()
    for stack in stacks:
        outer = next((frame for frame in reversed(stack) if tier_of(frame) is Tier.USER), None)
        if outer and outer.function == _MODULE and outer.file.startswith("/") and not cell_of(outer.file):
            folders[outer.file.rpartition("/")[0] + "/"] += 1
    return folders.most_common(1)[0][0] if folders else ""


def short_file(line: CodeLine, folder: str = "") -> str:
    """The path of a line's file within the program's folder, or its library's; else its last two parts. The name of a
    notebook's cell."""
    file = line.file
    path = cell_of(file) or path_in_library(line)
    if not path:
        inside = folder and file.startswith(folder)
        path = file[len(folder) :] if inside else "/".join(file.split("/")[-2:])
    return _cut(path, _LONGEST_FILE)


def short_function(function: str) -> str:
    """The name without the functions around it: `collate`, `Trainer.fit`. torch.compile divides a function into parts:
    they have its name."""
    name = function.rpartition(_LOCALS)[2]
    while match := _RESUMED.fullmatch(name):
        name = match[1]
    return _cut(name, _LONGEST_FUNCTION)


def place_text(line: CodeLine, folder: str = "") -> str:
    """A file and its line for a person: `train.py:42`."""
    number = f":{line.line}" if line.line else ""
    return printable(f"{short_file(line, folder)}{number}")


def line_text(line: CodeLine, folder: str = "") -> str:
    """A line for a person: `train.py:42 tokenize`."""
    return f"{place_text(line, folder)} {printable(short_function(line.function))}".strip()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"…{text[-longest + 1 :]}"
