"""Training loops that record their spans, as the ebpf receiver would send them, and their true phases."""

from collections.abc import Callable

from tests.processors.phases.training_loops.loops_without_a_loader import WITHOUT_A_LOADER, lbfgs
from tests.processors.phases.training_loops.simulated_thread import SimulatedThread


def nanogpt(thread: SimulatedThread) -> None:
    """`get_batch` reads mapped memory. An evaluation now and then, and clipping."""
    _nanogpt(thread, gap_file_faults=6)


def nanogpt_without_types_of_faults(thread: SimulatedThread) -> None:
    """The same on a kernel that counts all page faults together."""
    _nanogpt(thread, gap_faults=40)


def _nanogpt(thread: SimulatedThread, **evidence: float) -> None:
    for number in range(30):
        if number % 10 == 0:
            for _ in range(3):
                thread.data(1.5, **evidence)
                thread.inference(8)
            thread.host(0.5)
        thread.data(1.5, **evidence)
        thread.forward()
        thread.backward()
        thread.spend("gpu_compute", 1.0)  # clips gradients
        thread.optimizer()
        thread.zero_grad()
        thread.host(0.3)


def new_memory(thread: SimulatedThread) -> None:
    """Batches are made by computing, in new memory: its page faults are not those of files."""
    for _ in range(20):
        thread.spend("unknown", 20, gap_file_faults=0)
        thread.train()


def data_after_forward(thread: SimulatedThread) -> None:
    """nanoGPT gets the next batch between the forward and the backward pass; here it takes long."""
    for _ in range(20):
        thread.forward(faults=4000)
        thread.data(20)
        thread.gap = {}
        thread.learn()


def data_after_forward_from_cached_pages(thread: SimulatedThread) -> None:
    """The same with few page faults: large pages of a file that is in memory."""
    for _ in range(20):
        thread.forward(faults=27)
        thread.data(40)
        thread.gap = {}
        thread.learn()


def copied_batches(thread: SimulatedThread) -> None:
    """Batches are made by computing, and copied to the GPU."""
    for _ in range(30):
        thread.data(3, gap_copies=2)
        thread.train()


def copied_after_forward(thread: SimulatedThread) -> None:
    """The next batch is made and copied after the forward pass."""
    for _ in range(30):
        thread.forward(copies=2)
        thread.data(12)
        thread.gap = {}
        thread.learn()


def evaluation_by_hand(thread: SimulatedThread) -> None:
    """An evaluation in one region without gradients that gets its batches by hand."""
    for _ in range(10):
        thread.train()
        for _ in range(4):
            thread.inference(9, end="operator")
            thread.data(20, gap_faults=30)
        thread.inference(9)


def evaluation_from_cached_pages(thread: SimulatedThread) -> None:
    """The same with few page faults for the time, before the first batch of the evaluation, too."""
    for _ in range(10):
        thread.train()
        for _ in range(4):
            thread.data(40, gap_faults=27)
            thread.inference(9, end="operator")
        thread.data(40, gap_faults=27)
        thread.inference(9)


def waits_for_a_lock(thread: SimulatedThread) -> None:
    """With a loader, a thread that is blocked in a pass waits for a lock of Python."""
    for _ in range(20):
        thread.load()
        thread.forward(15, blocked=0.006)
        thread.spend("gpu_compute", 6)
        thread.gap = {}
        thread.learn()


def clears_first(thread: SimulatedThread) -> None:
    """Gradients are cleared between the data and the pass."""
    for _ in range(20):
        thread.host(3)
        thread.data(9)
        thread.zero_grad()
        thread.train()


def pauses_in_forward(thread: SimulatedThread) -> None:
    """A loss that assigns boxes to targets on the host, after a result of the GPU."""
    for _ in range(20):
        thread.load()
        thread.forward(10)
        thread.spend("gpu_compute", 6)
        thread.train(2, 6)


def accumulation(thread: SimulatedThread) -> None:
    """A queue, and an update after every 4th batch."""
    for number in range(40):
        thread.data(8)
        thread.forward()
        thread.backward()
        if number % 4 == 3:
            thread.optimizer()
            thread.zero_grad()


def lightning(thread: SimulatedThread) -> None:
    """An optimizer that calls the closure, and then updates."""
    for _ in range(20):
        thread.load()
        with thread.around("optimizer"):
            thread.forward()
            thread.zero_grad(0.2)
            thread.backward()
            thread.spend("optimizer_step", 5)


def in_backward(thread: SimulatedThread, by: int | None = None) -> None:
    """Optimizers that step in backward's hooks. `by` is the thread that runs the hooks, if it is another."""
    for _ in range(20):
        thread.load()
        thread.forward()
        with thread.around("backward"):
            for _ in range(6):
                thread.spend("gpu_compute", 1.5)
                own, thread.thread = thread.thread, by or thread.thread
                thread.optimizer(1.2)
                thread.zero_grad(0.6)
                thread.thread = own


def in_hooks_of_autograd(thread: SimulatedThread) -> None:
    """The same on autograd's own thread."""
    in_backward(thread, 9)


def evaluation_between_epochs(thread: SimulatedThread) -> None:
    """Epochs with a loader, and between them an evaluation on slices of a tensor."""
    for _ in range(3):
        for _ in range(10):
            thread.load()
            thread.train()
            thread.zero_grad()
        thread.load(0.03)
        for _ in range(6):
            thread.inference(9)
            thread.host(0.6)


def unmarked(thread: SimulatedThread) -> None:
    """Neither a loader nor marks of operators: the pass is what lies before backward."""
    thread.marks = False
    for _ in range(30):
        thread.train()
        thread.zero_grad()


def compiled(thread: SimulatedThread) -> None:
    """A compiled model: only its loss is marked."""
    for _ in range(30):
        thread.spend("gpu_compute", 9)
        thread.train(0.5, 3)
        thread.zero_grad()


def by_backward(thread: SimulatedThread) -> None:
    """An optimizer that nothing shows."""
    for _ in range(150):
        thread.data(2)
        thread.forward()
        thread.backward()
        thread.host(1)


LOOPS: dict[str, Callable[[SimulatedThread], None]] = {
    loop.__name__: loop
    for loop in (
        *WITHOUT_A_LOADER,
        *(nanogpt, nanogpt_without_types_of_faults, new_memory, accumulation, lightning, evaluation_between_epochs),
        *(in_backward, in_hooks_of_autograd, unmarked, compiled, by_backward, clears_first, waits_for_a_lock),
        *(evaluation_by_hand, evaluation_from_cached_pages, pauses_in_forward, copied_batches, copied_after_forward),
        *(data_after_forward, data_after_forward_from_cached_pages),
    )
}
LOOPS["lbfgs_without_a_loader"] = lambda thread: lbfgs(thread, loads=False)


def simulated(name: str) -> SimulatedThread:
    """A thread that has run a loop."""
    thread = SimulatedThread()
    LOOPS[name](thread)
    return thread
