"""Python stacks of a training program, as a receiver sees them."""

from collections.abc import Iterable, Sequence

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import CodeLine, ProcessStacks, StackTime

PACKAGES = "/venv/lib/python3.11/site-packages"
STANDARD = "/usr/lib/python3.11"
MAIN = CodeLine("/home/me/run/train.py", "<module>", 90)
LOOP = CodeLine("/home/me/run/train.py", "main", 60)
TOKENIZE = CodeLine("/home/me/run/data/text.py", "tokenize", 42)
CALLS = CodeLine(f"{PACKAGES}/transformers/tokenization_utils.py", "PreTrainedTokenizer.__call__", 2877)
BACKWARD = CodeLine(f"{PACKAGES}/torch/_tensor.py", "Tensor.backward", 522)
WRAPPER = CodeLine(f"{PACKAGES}/torch/nn/modules/module.py", "Module._call_impl", 1750)
QUEUE = CodeLine(f"{STANDARD}/queue.py", "Queue.get", 171)
CONDITION = CodeLine(f"{STANDARD}/threading.py", "Condition.wait", 327)
FETCH = CodeLine(f"{PACKAGES}/torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 52)
WORKER_LOOP = CodeLine(f"{PACKAGES}/torch/utils/data/_utils/worker.py", "_worker_loop", 349)


def line(number: int, function: str = "main", file: str = "/home/me/run/train.py") -> CodeLine:
    """A line of the program."""
    return CodeLine(file, function, number)


def stack_time(  # the fields of a stack
    seconds: float,
    activity: Activity,
    mark: str,
    *lines: CodeLine,
    is_inside: bool = False,
    thread: int = 1,
    worker: int = 0,
) -> tuple[StackTime, Sequence[CodeLine]]:
    """A stack of the training thread, whose innermost line is the first, and its lines."""
    time = StackTime(
        thread=thread,
        worker=worker,
        mark=mark,
        is_inside=is_inside,
        activity=activity,
        seconds=seconds,
        lines=tuple(range(len(lines))),
    )
    return time, lines


def stacks_of(times: Iterable[tuple[StackTime, Sequence[CodeLine]]]) -> ProcessStacks:
    """The stacks of a process in one record."""
    table: dict[CodeLine, int] = {}
    stacks = []
    for time, lines in times:
        numbers = tuple(table.setdefault(line, len(table)) for line in lines)
        stacks.append(
            StackTime(
                thread=time.thread,
                worker=time.worker,
                mark=time.mark,
                is_inside=time.is_inside,
                activity=time.activity,
                seconds=time.seconds,
                lines=numbers,
            )
        )
    return ProcessStacks(lines=tuple(table), stacks=tuple(stacks))
