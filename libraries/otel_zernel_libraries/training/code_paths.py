"""Which lines of a Python stack to show: the user's deepest line, and the call of a library below it.

Files have three tiers: those of the user; other packages; PyTorch, NumPy, and the standard library. Some frames of
libraries only pass a call on. They are no answer to a question, so they are left out.

The path of a file decides. Packages and the standard library have folders of their own. A checkout of PyTorch may be
anywhere: its files are known by their paths in the folder `torch`. A frozen program has relative paths. All other files
are the user's, also those of a package that is installed in editable mode.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from otel_zernel.text import printable
from otel_zernel_libraries.training.code_positions import position_of
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.stacks import CodeLine

_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD: Final = re.compile(r".*/(?:lib(?:64)?/python3(?:\.\d+t?)?/(?!(?:site|dist)-packages/)|python3\d+\.zip/)")
_PYTORCH: Final = (
    r"_(?:C|VF|compile|custom_ops|dynamo|functorch|higher_order_ops|inductor|library|ops|prims|refs|subclasses|tensor)",
    "nn/(?:modules|parallel)/.*|nn/(?:functional|init|parameter)|nn/utils/(?:clip_grad|parametriz.*|rnn|.*_norm)",
    "autograd/(?:anomaly_mode|forward_ad|function|functional|grad_mode|graph|profiler|variable|_functions/.*)",
    r"optim/(?:_\w+|adadelta|adagrad|adam|adamax|adamw|asgd|lbfgs|lr_scheduler|nadam|optimizer|radam|rmsprop)",
    "optim/(?:rprop|sgd|sparse_adam|swa_utils)",
    r"utils/(?:_\w+|checkpoint|hooks|data/(?:dataloader|sampler|(?:_utils|datapipes)/.*))",
    r"distributed/(?:_\w+|c10d_logger|device_mesh|distributed_c10d|rendezvous)",
    r"distributed/(?:_\w+|algorithms|checkpoint|elastic|fsdp|pipelining|tensor)/.*",
    r"(?:cuda/)?amp/(?:autocast_mode|grad_scaler)|cuda/(?:_\w+|graphs|memory|nccl|random|streams)",
    r"fx/(?:_\w+|graph|graph_module|interpreter|node|proxy|traceback)|jit/_\w+|multiprocessing/(?:reductions|spawn)",
)
"""Files of PyTorch. A project of the user in a folder `torch` has others."""
_CHECKOUT: Final = re.compile(
    rf"(?:.*/)?(?=torch/(?:{'|'.join(_PYTORCH)})(?:\.py|/.*)$)|.*/pytorch(?:-[v\d.]+|-main)?/(?=torch/)"
)
_CORE: Final = re.compile(r"(?:torch|numpy|triton|functorch|torchgen)/|numpy\.")
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
_FETCH: Final = "torch/utils/data/_utils/fetch.py"
_CHECKPOINTS: Final = "torch/utils/checkpoint.py"
_CLIPPING: Final = ("torch/nn/utils/clip_grad.py", "torch/amp/grad_scaler.py", "torch/cuda/amp/grad_scaler.py")
_DYNAMO: Final = "torch/_dynamo/convert_frame.py"
_KERNELS: Final = re.compile(r".*/(?:torch/_inductor|triton)/")


class Tier(IntEnum):
    """The author of a file."""

    PLUMBING = 0
    CORE = 1
    """PyTorch, NumPy, or the standard library."""
    PACKAGE = 2
    USER = 3


@lru_cache(maxsize=8_192)
def tier_of(file: str, function: str = "") -> Tier:
    """The tier of a function."""
    if _PASSING.match(file) or (file == "<string>" and _DATACLASS.fullmatch(function)):
        return Tier.PLUMBING
    path = in_package(file)
    if path is None:
        return Tier.CORE if _GENERATED.match(file) else Tier.USER
    if _PLUMBING.match(path) or (path.startswith("torch/") and _WRAPPERS.fullmatch(function)):
        return Tier.PLUMBING
    return Tier.CORE if _is_standard(file) or _CORE.match(path) else Tier.PACKAGE


def in_package(file: str) -> str | None:
    """The path within the folder of packages, or of the standard library; None for any other file."""
    match = _PACKAGES.match(file) or _STANDARD.match(file) or _CHECKOUT.match(file)
    if match:
        return file[match.end() :]
    return file if _is_standard(file) else None


def _is_standard(file: str) -> bool:
    """Whether a file is of the standard library. In a frozen program its path is relative."""
    if file.startswith("/"):
        return _STANDARD.match(file) is not None
    name = file.partition("/")[0]
    return name.removesuffix(".py") in sys.stdlib_module_names and file.endswith(".py")


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
    tiers = [tier_of(one.file, one.function) for one in stack]
    deepest = {tier: tiers.index(tier) for tier in set(tiers)}
    at = next((deepest[tier] for tier in (Tier.USER, Tier.PACKAGE, Tier.CORE) if tier in deepest), None)
    if at is None:
        return None
    below = range(at - 1, -1, -1)
    of_package = deepest.get(Tier.PACKAGE, at) if tiers[at] is Tier.USER else at
    call = of_package if of_package < at else next((one for one in below if tiers[one] is Tier.CORE), None)
    return Place(stack[at], None if call is None else stack[call], tiers[at] is Tier.USER)


def of_worker(stack: Sequence[CodeLine]) -> tuple[Sequence[CodeLine], bool]:
    """The part of a stack of a DataLoader worker that the worker has called, and whether it makes a batch.

    A forked worker has the frames of its parent, too.
    """
    loop = next((at for at, one in enumerate(stack) if one.function == _WORKER_LOOP), len(stack))
    inner = stack[:loop]
    return inner, any(one.file.endswith(_FETCH) for one in inner)


def waits_for_python(stack: Sequence[CodeLine]) -> bool:
    """Whether a thread that waits does so in the standard library: for another Python thread, or a process."""
    return bool(stack) and _is_standard(stack[0].file)


def takes_one_by_one(stack: Sequence[CodeLine]) -> bool:
    """Whether a DataLoader takes samples that are ready, one by one, or joins them into a batch: without code of the
    user's."""
    fetch = next((at for at, one in enumerate(stack) if one.file.endswith(_FETCH)), 0)
    return fetch > 0 and all(tier_of(one.file, one.function) is not Tier.USER for one in stack[:fetch])


def in_anomaly_mode(stack: Sequence[CodeLine]) -> bool:
    """Whether autograd's anomaly mode keeps the stack of an operator."""
    return any(one.function == "format_stack" and one.file.endswith("torch/fx/traceback.py") for one in stack)


def in_translation(stack: Sequence[CodeLine]) -> bool:
    """Whether torch.compile translates a function of the program, and makes no kernel meanwhile."""
    return any(one.file.endswith(_DYNAMO) for one in stack) and not in_kernel_compiler(stack)


def in_kernel_compiler(stack: Sequence[CodeLine]) -> bool:
    """Whether Inductor or Triton make or tune kernels. Their other frames run them."""
    return any(_KERNELS.match(one.file) and position_of(one.file, one.function) is Position.COMPILE for one in stack)


def calls_compile(stack: Sequence[CodeLine]) -> bool:
    """Whether the program calls `torch.compile`, which makes a function that is compiled at its first call."""
    return any(one.function == "compile" and one.file.endswith("torch/__init__.py") for one in stack)


def in_hook(stack: Sequence[CodeLine]) -> bool:
    """Whether a backward pass has called code of the user: a hook, or the backward pass of a function."""
    is_called = any(tier_of(one.file, one.function) is Tier.USER for one in _called_in_backward(stack))
    return is_called and not in_recomputation(stack)


def in_clipping(stack: Sequence[CodeLine]) -> bool:
    """Whether PyTorch clips gradients, or divides them by the scale of the loss."""
    return any(one.file.endswith(_CLIPPING) for one in stack)


def in_recomputation(stack: Sequence[CodeLine]) -> bool:
    """Whether a backward pass runs a part of the forward pass again, for a checkpoint of activations."""
    return any(one.file.endswith(_CHECKPOINTS) for one in _called_in_backward(stack))


def _called_in_backward(stack: Sequence[CodeLine]) -> Sequence[CodeLine]:
    """The frames that a backward pass has called."""
    return stack[: next((at for at, one in enumerate(stack) if one.function == "_engine_run_backward"), 0)]


def without_plumbing(stack: Sequence[CodeLine]) -> tuple[CodeLine, ...]:
    """The stack without the frames that only pass a call on."""
    return tuple(one for one in stack if tier_of(one.file, one.function) is not Tier.PLUMBING)


def folder_of(stacks: Iterable[Sequence[CodeLine]]) -> str:
    """The folder of a program, with a slash: that of the outermost user's module. Empty if no stack shows it."""
    folders: Counter[str] = Counter()
    for stack in stacks:
        outer = next((one for one in reversed(stack) if tier_of(one.file, one.function) is Tier.USER), None)
        if outer and outer.function == _MODULE and outer.file.startswith("/") and not cell_of(outer.file):
            folders[outer.file.rpartition("/")[0] + "/"] += 1
    return folders.most_common(1)[0][0] if folders else ""


def short_file(file: str, folder: str = "") -> str:
    """The path of a file within the program's folder, its package, or the standard library; else its last two parts.
    The name of a notebook's cell."""
    path = cell_of(file) or in_package(file)
    if path is None:
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
    return printable(f"{short_file(line.file, folder)}{number}")


def line_text(line: CodeLine, folder: str = "") -> str:
    """A line for a person: `train.py:42 tokenize`."""
    return f"{place_text(line, folder)} {printable(short_function(line.function))}".strip()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"…{text[-longest + 1 :]}"
