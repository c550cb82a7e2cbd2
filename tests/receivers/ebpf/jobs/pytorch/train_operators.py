"""Loops of unmodified PyTorch without a DataLoader, one for each case; run by test_operators_in_torch.py.

    python -m tests.receivers.ebpf.jobs.pytorch.train_operators

A case (see cases.py) notes the passes that it made, in order, in the words of `PASSES`.
"""

import contextlib
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.receivers.ebpf.jobs.pytorch.cases import serve

torch.set_num_threads(1)
torch.manual_seed(0)

STEPS, MICRO_BATCHES = 6, 3
FORWARD, WITHOUT_GRAD, UPDATE, BACKWARD, STEP, ZERO = "forward", "without grad", "update", "backward", "step", "zero"
PASSES = (FORWARD, WITHOUT_GRAD, UPDATE, BACKWARD, STEP, ZERO)

made: list[str] = []


class Transformer(nn.Module):  # type: ignore[misc]
    """A small GPT: embeddings, attention, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.qkv, self.out, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True)))


class Recurrent(nn.Module):  # type: ignore[misc]
    """An LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 16), nn.GRU(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(self.lstm(x)[0])[0]


class Graph(nn.Module):  # type: ignore[misc]
    """Messages along the edges of a graph: gather, then scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4))
        self.edges = torch.randint(0, 16, (2, 64))

    def forward(self, x: Tensor) -> Tensor:
        messages = (x @ self.weight)[self.edges[0]]
        return torch.zeros(16, 4).scatter_add(0, self.edges[1][:, None].expand(-1, 4), messages)


class Products(nn.Module):  # type: ignore[misc]
    """Matrix products by `Tensor.mm` and `torch.mm`, as in PyTorch's tutorial, with a loss by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(8, 16)), nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x.mm(self.first).clamp(min=0), self.second)


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


transformer = Transformer()
tokens = torch.randint(0, 50, (4, 12))


def note(*passes: str) -> None:
    made.extend(passes)


def loss_of(model: Transformer) -> Tensor:
    batch = torch.randint(0, 50, (4, 12))
    return functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())


def nano() -> None:
    """Micro-batches, clipping and an optimizer, as nanoGPT's loop."""
    optimizer = torch.optim.AdamW(transformer.parameters())
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            loss_of(transformer).backward()
        nn.utils.clip_grad_norm_(transformer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        note(*[FORWARD, BACKWARD] * MICRO_BATCHES, STEP, ZERO)


def rollout() -> None:
    """Actions of a policy without gradients, then an update."""
    policy, optimizer = nn.Linear(8, 2), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.01)
    for _ in range(STEPS):
        for _ in range(50):
            with torch.no_grad():
                torch.multinomial(policy(torch.randn(1, 8)).softmax(-1), 1).item()
        functional.mse_loss(policy(torch.randn(50, 8)), torch.randn(50, 2)).backward()
        optimizer.step()
        note(WITHOUT_GRAD, FORWARD, BACKWARD, STEP)


def policy_gradient() -> None:
    """Actions of a policy with gradients, and a loss from what they returned."""
    policy = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    for _ in range(STEPS):
        logs = []
        for _ in range(4):
            chosen = torch.distributions.Categorical(logits=policy(torch.randn(8)))
            action = chosen.sample()
            logs.append(chosen.log_prob(action))
            computes(0.004)
        (-torch.stack(logs).sum()).backward()
        note(*[FORWARD] * 4, BACKWARD)


def greedy() -> None:
    """Gradients on while each action is the one of the highest value, and the environment computes after each."""
    values = nn.Linear(8, 2)
    for _ in range(STEPS):
        chosen = []
        for _ in range(4):
            best = values(torch.randn(8)).max(-1)
            chosen.append(best.values)
            best.indices.item()
            computes(0.004)
        torch.stack(chosen).sum().backward()
        note(*[FORWARD] * 4, BACKWARD)


def closure() -> None:
    """Lightning's way: the optimizer's step calls zero_grad, the forward pass and backward."""
    step_closures(torch.optim.AdamW(transformer.parameters()))


def lbfgs() -> None:
    """An optimizer that calls its closure several times in each step."""
    step_closures(torch.optim.LBFGS(transformer.parameters(), max_iter=4))


def step_closures(optimizer: torch.optim.Optimizer) -> None:
    """Steps whose passes run in the closure of the optimizer."""

    def compute() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(transformer)
        loss.backward()
        note(ZERO, FORWARD, BACKWARD)
        return loss

    for _ in range(STEPS):
        note(STEP)
        optimizer.step(compute)


def generation() -> None:
    """Tokens one after the other, without gradients."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def generate() -> None:
        text = tokens
        for _ in range(20):
            text = torch.cat([text, transformer(text)[:, -1].argmax(-1, keepdim=True)], 1)

    for _ in range(STEPS):
        generate()
        computes(0.02)
        note(WITHOUT_GRAD)


def validation() -> None:
    """Inference mode around each pass."""
    for _ in range(STEPS):
        with torch.inference_mode():
            loss_of(transformer)
            computes(0.02)
        computes(0.005)
        note(WITHOUT_GRAD)
        loss_of(transformer).backward()
        note(FORWARD, BACKWARD)


def keras() -> None:
    """An optimizer that is not PyTorch's: it updates all parameters at once and opens no scope."""
    for _ in range(STEPS):
        loss_of(transformer).backward()
        with torch.no_grad():
            parameters = list(transformer.parameters())
            gradients = [parameter.grad for parameter in parameters]
            torch._foreach_add_(parameters, gradients, alpha=-0.01)
            for parameter in parameters:
                parameter.grad = None
            computes(0.012)
        note(FORWARD, BACKWARD, UPDATE)


def another_thread() -> None:
    """The loop runs on a thread that is not the first."""
    thread = Thread(target=nano)
    thread.start()
    thread.join()


def recomputed() -> None:
    """Activation checkpoints: backward runs parts of the forward pass again."""
    block = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    for _ in range(STEPS):
        x: Any = torch.randn(4, 32, requires_grad=True)
        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=False)
        x.sum().backward()
        note(FORWARD, BACKWARD)


class Product(torch.autograd.Function):  # type: ignore[misc]
    """A product with a weight. Without one it fails."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            raise ValueError("no weight")
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = context.saved_tensors
        return gradient @ weight.T, x.T @ gradient


def functions() -> None:
    """A pass of custom functions, as a compiled model is one, after a teacher without gradients."""
    block, weight = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), nn.Parameter(torch.randn(32, 32))
    for _ in range(STEPS):
        x: Any = torch.randn(4, 32, requires_grad=True)
        with contextlib.suppress(ValueError):
            Product.apply(x, None)
        with torch.no_grad():
            block(x)
            computes(0.005)
        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=True)
        Product.apply(x, weight).sum().backward()
        note(WITHOUT_GRAD, FORWARD, BACKWARD)


def evaluation() -> None:
    """Evaluation with gradients off for good, in which nothing but operators is a mark."""
    with torch.no_grad():
        for _ in range(STEPS):
            loss_of(transformer).item()
        computes(0.02)
    note(WITHOUT_GRAD)


def failing() -> None:
    """An operator throws an exception, which crosses the probed functions."""
    for _ in range(STEPS):
        with contextlib.suppress(RuntimeError):
            torch.randn(3, 4) @ torch.randn(5, 6)
        loss_of(transformer).backward()
        note(FORWARD, BACKWARD)


def trained(model: nn.Module, *shape: int) -> Callable[[], None]:
    """A loop with a loss by hand."""

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            x = torch.randn(*shape)
            computes(0.001)
            (model(x) ** 2).mean().backward()
            optimizer.step()
            note(FORWARD, BACKWARD, STEP)

    return train


def computes(seconds: float) -> None:
    """Uses the CPU without PyTorch."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        *(nano, rollout, policy_gradient, greedy, closure, lbfgs, generation, validation, keras, another_thread),
        *(recomputed, functions, evaluation, failing),
    )
} | {
    "recurrent": trained(Recurrent(), 5, 4, 8),
    "graph": trained(Graph(), 16, 8),
    "products": trained(Products(), 16, 8),
    "convolutional": trained(convolutional(), 4, 1, 8, 8),
}


if __name__ == "__main__":
    serve(CASES, made, warms_up=True)
