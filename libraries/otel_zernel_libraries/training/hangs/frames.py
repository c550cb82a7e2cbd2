"""Facts that the Python frames of a blocked thread show. Frames are the innermost first."""

import re
from collections.abc import Sequence
from typing import Final

from otel_zernel_libraries.training.code_paths import Tier, folder_of, line_text, of_worker, tier_of
from otel_zernel_libraries.training.code_positions import position_of
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.library_folders import path_in_library
from otel_zernel_libraries.training.stacks import LONGEST_TEXT, CodeLine

Lines = Sequence[CodeLine]

_INNER: Final = 8
"""The frames that a prompt or an event loop has below the code that called it. A debugger's frames are also the
outermost ones of a program that it runs."""
_PROMPTS: Final = re.compile(
    r"(pdb|bdb|cmd|code)[.]py$|_pyrepl/|(ipdb|pudb|prompt_toolkit|debugpy|_pydevd_bundle|pydevd|IPython/terminal)/"
)
_LOOPS: Final = re.compile(r"(selectors|socketserver)[.]py$|(asyncio|uvloop|tornado|zmq|grpc)/")
_OTHERS: Final = re.compile(r"multiprocessing/(queues|connection|managers)[.]py$|queue[.]py$|ray/")
"""Objects come from other processes and threads."""
_GETS: Final = frozenset({"get", "recv", "recv_bytes", "accept", "poll", "_poll", "_recv", "_recv_bytes", "wait"})
_JOINS: Final = re.compile(r"(threading|concurrent/futures/[a-z_]+|multiprocessing/pool)[.]py$")
_JOINED: Final = frozenset({"join", "_wait_for_tstate_lock", "_shutdown", "result", "wait", "result_iterator"})
_SERVICES: Final = re.compile(r"torch/(distributed/(elastic|launcher|run)|multiprocessing/spawn)")
"""They wait for the processes that they have started."""
_STARTED: Final = "_wrap"
"""The function of `torch.multiprocessing.spawn` in the processes that it has started."""
_LOADER: Final = re.compile(r"torch/utils/data/(dataloader|_utils/pin_memory)[.]py$")
_POOLS: Final = re.compile(r"(multiprocessing/pool|concurrent/futures/process)[.]py$")
_POOL_LOOPS: Final = frozenset({"worker", "_process_worker"})
"""What the processes of a pool do between two pieces of work."""
_MULTIPROCESSING: Final = re.compile(r"multiprocessing/")
_HELPERS: Final = re.compile(r"multiprocessing/(resource_tracker|forkserver)[.]py$")
_TORCH: Final = re.compile(r"torch/(autograd|nn|optim|distributed|utils/data|cuda|_tensor[.]py)")
_ENDINGS: Final = frozenset({"_shutdown", "_exit_function", "_python_exit", "finish"})
"""Functions of the end of a program: of threading, multiprocessing, concurrent.futures, and of loggers."""
_DISTRIBUTED: Final = re.compile(r"torch/distributed/(distributed_c10d|rendezvous)[.]py$")
_BACKWARD: Final = "_engine_run_backward"


def _name(line: CodeLine) -> str:
    return line.function.rpartition(".")[2]


def is_prompt(lines: Lines) -> bool:
    """Whether a person is asked: by a debugger, or by an interactive interpreter."""
    return any(_PROMPTS.match(path_in_library(line)) for line in lines[:_INNER])


def serves_others(lines: Lines) -> bool:
    """Whether the thread waits for work from elsewhere: an event loop, a queue, or the end of other processes."""
    inner = lines[:_INNER]
    if any(_LOADER.match(path_in_library(line)) for line in inner):
        return False
    if any(_LOOPS.match(path_in_library(line)) for line in lines[:1]):
        return True
    gets = next((_name(line) in _GETS for line in inner if _OTHERS.match(path_in_library(line))), False)
    return gets or any(_SERVICES.match(path_in_library(line)) and line.function != _STARTED for line in inner)


def joins(lines: Lines) -> bool:
    """Whether the thread waits for the work of another thread."""
    return any(_JOINS.match(path_in_library(line)) and _name(line) in _JOINED for line in lines[:_INNER])


def is_compiling(lines: Lines) -> bool:
    return any(position_of(line) is Position.COMPILE for line in lines)


def writes_checkpoint(lines: Lines) -> bool:
    return any(position_of(line) is Position.CHECKPOINT for line in lines)


def is_ending(lines: Lines) -> bool:
    """Whether the program is at its end."""
    return any(_name(line) in _ENDINGS and path_in_library(line) for line in lines)


def is_loading(lines: Lines) -> bool:
    """Whether the thread waits for a DataLoader."""
    return any(_LOADER.match(path_in_library(line)) for line in lines[:_INNER])


def is_torch(lines: Lines) -> bool:
    """Whether the thread is in a part of PyTorch that trains."""
    return any(_TORCH.match(path_in_library(line)) for line in lines)


def makes_batch(lines: Lines) -> bool:
    """Whether a DataLoader worker works on a batch."""
    return of_worker(lines)[1]


def waits_for_work(lines: Lines) -> bool:
    """Whether a DataLoader worker has nothing to do."""
    inner, has_batch = of_worker(lines)
    return len(inner) < len(lines) and not has_batch


def is_in_pool(lines: Lines) -> bool:
    """Whether the thread is the one of a process of a pool that works."""
    return any(_is_pool_loop(line) for line in lines)


def waits_in_pool(lines: Lines) -> bool:
    """Whether a process of a pool has nothing to do."""
    loop = next((at for at, line in enumerate(lines) if _is_pool_loop(line)), None)
    return bool(loop) and all(_MULTIPROCESSING.match(path_in_library(line)) for line in lines[:loop])


def _is_pool_loop(line: CodeLine) -> bool:
    return _name(line) in _POOL_LOOPS and bool(_POOLS.match(path_in_library(line)))


def helps(lines: Lines) -> bool:
    """Whether the process is one of Python's own that makes no data: it looks after others."""
    return any(_HELPERS.match(path_in_library(line)) for line in lines)


def operation_of(lines: Lines) -> str:
    """The collective that the thread is in: `all_reduce`, `init_process_group`; `backward` for one that a backward pass
    waits for. Empty without one."""
    names = [line.function for line in lines if _DISTRIBUTED.match(path_in_library(line))]
    named = [name for name in names if not name.startswith("_") and name != "wrapper"]
    if named or names:
        return (named or names)[0]
    return "backward" if any(line.function == _BACKWARD for line in lines) else ""


_MOST_CODE: Final = 16


def is_of_user(lines: Lines) -> bool:
    """Whether the thread runs code of the user's own files."""
    return bool(_own(lines))


def _own(lines: Lines) -> Lines:
    return [line for line in lines if tier_of(line) is Tier.USER]


def code_of(*stacks: Lines) -> tuple[str, ...]:
    """`train.py:12 function`: the lines of the user's own files, the deepest of the first stack first; all lines if
    there are none."""
    own = [line for lines in stacks for line in _own(lines)]
    shown, folder = (own or [line for lines in stacks for line in lines])[:_MOST_CODE], folder_of(stacks)
    return tuple(line_text(line, folder)[:LONGEST_TEXT] for line in shown)
