"""Loops whose positions marks alone do not show: before the forward pass, after the step, between passes."""

import copy
import fcntl
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, CLASSES, STEPS, WIDTH, layers, random_batch
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.slowness import busy

LOG_S = 0.04
STATES, ACTIONS, HORIZON = 32, 4, 60
EPISODES, PIPED_EPISODES = 100, 20
ENVIRONMENT_S = 0.0006
ENVIRONMENTS, PIPED_S = 2, 0.003
PIPE_BYTES = 4_096


def _log(run: TorchRun, log: Callable[[int], None]) -> None:
    """A loop without a loader, which logs after each step."""
    model = layers()
    run.watch_model(model)
    run.train(model, torch.optim.AdamW(model.parameters()), _made(run), run.truth.wrapped("host", log))


def _made(run: TorchRun) -> Iterator[Any]:
    for _ in range(STEPS):
        with run.truth.region("data"):
            batch = random_batch()
        yield batch


def computed_batches(run: TorchRun) -> None:
    """Each batch is computed in Python, without random numbers of PyTorch. So is a report after each step."""
    model = layers(10, 512)
    run.watch_model(model)
    report = run.truth.wrapped("host", lambda number: sum(_token(f"step{number}{at}") for at in range(2_000)))

    def batches() -> Iterator[Any]:
        for number in range(STEPS):
            with run.truth.region("data"):
                rows = [[_token(f"word{number}{at * row}") / 10_000 for at in range(512)] for row in range(64)]
                batch = torch.tensor(rows), torch.zeros(64, dtype=torch.long)
            yield batch

    run.train(model, torch.optim.AdamW(model.parameters()), batches(), report)


def parsed_batches(run: TorchRun) -> None:
    """Each batch is parsed in Python. After the step, the loss is read, and each fifth step has a report."""
    model = layers(10, 512)
    run.watch_model(model)
    optimizer = torch.optim.AdamW(model.parameters())
    lines = [",".join(f"{(at * row) % 97 / 97:.4f}" for at in range(512)) for row in range(1, 129)]
    history: list[float] = []
    run.get_ready()
    with run.truth.loop():
        for number in range(2 * STEPS):
            with run.truth.region("data"):
                batch = torch.tensor([[float(word) for word in line.split(",")] for line in lines])
            with run.truth.region("forward"):
                loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            with run.truth.region("host"):
                history.append(loss.item())
                if number % 5 == 4:
                    sorted(_token(f"{number}{at}") for at in range(60_000))
            run.truth.stepped()


def sleeping_logger(run: TorchRun) -> None:
    """After each step, the program sleeps, for example to limit its rate of requests."""
    _log(run, lambda _: time.sleep(LOG_S))


def syncing_logger(run: TorchRun) -> None:
    """After each step, a line is written and synchronized to the disk until `LOG_S` is over."""
    path = Path(run.truth.folder) / "log"

    def log(number: int) -> None:
        end = time.monotonic() + LOG_S
        with path.open("a") as file:
            while time.monotonic() < end:
                file.write(f"step {number}\n" * 100)
                file.flush()
                os.fsync(file.fileno())

    _log(run, log)


def piping_logger(run: TorchRun) -> None:
    """After each step, lines go to a pipe that is full most of the time, because its reader is slow."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def drain() -> None:
        while os.read(reader, PIPE_BYTES):
            time.sleep(LOG_S / 2)

    threading.Thread(target=drain, daemon=True).start()

    def log(_: int) -> None:
        for _ in range(2):
            os.write(writer, bytes(PIPE_BYTES))

    _log(run, log)


def averaged_state(run: TorchRun) -> None:
    """An exponential average of the weights and of the statistics of a layer, as timm's ModelEmaV2 copies it."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    average = copy.deepcopy(model).eval()
    run.watch_model(model)

    def update(_: int) -> None:
        with run.truth.region("average"), torch.no_grad():
            for mean, value in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                mean.copy_(0.99 * mean + 0.01 * value)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.train(model, optimizer, DataLoader(run.samples(), batch_size=BATCH), update)


def averaged(run: TorchRun) -> None:
    """An exponential average of the weights by PyTorch's AveragedModel."""
    model = layers()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    run.watch_model(model)

    def update(_: int) -> None:
        with run.truth.region("average"):
            for _ in range(4):
                average.update_parameters(model)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.train(model, optimizer, DataLoader(run.samples(), batch_size=BATCH), update)


def tokenizing(run: TorchRun) -> None:
    """Words are looked up in Python after the loader has given a batch of text."""
    model = nn.Sequential(nn.EmbeddingBag(10_000, 512), *layers(10, 512))
    run.watch_model(model)
    run.train(model, torch.optim.AdamW(model.parameters()), _tokenized(run))


def _tokenized(run: TorchRun) -> Iterator[Any]:
    lines = [" ".join(f"word{(number * 7 + at) % 9_973}" for at in range(200)) for number in range(STEPS * 64)]
    for texts in DataLoader(lines, batch_size=64):
        with run.truth.region("prepare"):
            tokens = [[_token(word) for word in text.lower().split()] for text in texts for _ in range(2)]
            batch = torch.tensor(tokens), torch.zeros(len(tokens), dtype=torch.long)
        yield batch


def _token(word: str) -> int:
    number = 0
    for letter in word:
        number = (number * 31 + ord(letter)) % 10_000
    return number


def slices(run: TorchRun) -> None:
    """Gradient descent by hand on slices of one flat tensor, as examples of functional code have it."""
    width = 1024
    flat = torch.randn(2 * width * width).mul_(0.02).requires_grad_()
    run.get_ready()
    with run.truth.loop():
        for _ in range(STEPS):
            with run.truth.region("data"):
                inputs, _ = random_batch()
            with run.truth.region("forward"):
                first, second = (part.view(width, width) for part in flat.split(width * width))
                loss = (inputs @ first).relu().matmul(second).square().mean()
            loss.backward()
            with run.truth.region("optimizer"), torch.no_grad():
                for part in range(0, flat.numel(), width):
                    flat[part : part + width] -= 0.01 * flat.grad[part : part + width]
            with run.truth.region("zero_grad"):
                flat.grad = None
            run.truth.stepped()


def compiled_step(run: TorchRun) -> None:
    """The loss and the optimizer's step are compiled, as PyTorch's recipe shows."""
    model = layers()
    run.watch_model(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of = torch.compile(lambda inputs, targets: nn.functional.cross_entropy(model(inputs), targets))
    step = torch.compile(lambda: optimizer.step(), fullgraph=False)
    for _ in range(3):  # compiles
        loss_of(*random_batch()).backward()
        step()
        optimizer.zero_grad()
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("forward"):
                loss = loss_of(inputs, targets)
            loss.backward()
            with run.truth.region("optimizer"):
                step()
            optimizer.zero_grad()
            run.truth.stepped()


def cold_compile(run: TorchRun) -> None:
    """A model that is compiled in the loop's first step, without a cache."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run.truth.folder / "inductor")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    plain = layers()
    loader = DataLoader(run.samples(), batch_size=BATCH)
    run.train(torch.compile(plain), torch.optim.AdamW(plain.parameters()), loader)


def rollouts(run: TorchRun) -> None:
    """Episodes in one region without gradients, with short steps of an environment."""
    _learn(run, lambda policy: _episode(run, policy), EPISODES)


def _episode(run: TorchRun, policy: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    states = [torch.randn(1, STATES)]
    with torch.no_grad():
        for _ in range(HORIZON):
            with run.truth.region("rollout"):
                action = int(policy(states[-1]).argmax())
            with run.truth.region("host"):
                busy(ENVIRONMENT_S)
                state = [float(action == 0)] * STATES
            states.append(torch.tensor([state]))
    return torch.cat(states)


def piped_environments(run: TorchRun) -> None:
    """Environments in processes of their own, which answer through pipes."""
    context = multiprocessing.get_context("fork")
    channels = []
    for _ in range(ENVIRONMENTS):
        here, there = context.Pipe()
        context.Process(target=_environment, args=(there,), daemon=True).start()
        channels.append(here)
    _learn(run, lambda policy: _piped_episode(run, policy, channels), PIPED_EPISODES)


def _environment(orders: Connection) -> None:
    while True:
        action = orders.recv()
        time.sleep(PIPED_S)
        orders.send([float(action == 0)] * STATES)


def _piped_episode(
    run: TorchRun, policy: Callable[[torch.Tensor], torch.Tensor], channels: list[Connection]
) -> torch.Tensor:
    states = [torch.randn(ENVIRONMENTS, STATES)]
    for _ in range(HORIZON):
        with torch.no_grad(), run.truth.region("rollout"):
            actions = policy(states[-1]).argmax(-1).tolist()
        with run.truth.region("host"):
            for channel, action in zip(channels, actions, strict=True):
                channel.send(action)
            answers = [channel.recv() for channel in channels]
        states.append(torch.tensor(answers))
    return torch.cat(states)


def _learn(run: TorchRun, episode: Callable[[Any], torch.Tensor], episodes: int) -> None:
    model = nn.Sequential(nn.Linear(STATES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, ACTIONS))
    optimizer = torch.optim.Adam(model.parameters())
    run.get_ready()
    with run.truth.loop():
        for _ in range(episodes):
            states = episode(model)
            with run.truth.region("forward"):
                loss = model(states).log_softmax(-1)[:, 0].mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.truth.stepped()


def pipeline(run: TorchRun) -> None:
    """A pipeline of two stages by hand: activations and their gradients go by send and recv."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model, width = layers(1024), 1024
    run.slow_down(model)
    optimizer = torch.optim.AdamW(model.parameters())
    run.get_ready()
    with run.truth.loop():
        for _ in range(STEPS):
            with run.truth.region("data"):
                inputs, _ = random_batch()
            if rank == 1:
                with run.truth.region("collective"):
                    torch.distributed.recv(inputs, 0)
                inputs.requires_grad_()
            with run.truth.region("forward"):
                outputs = model(inputs)
            if rank == 0:
                gradient = torch.empty(BATCH, width)
                with run.truth.region("collective"):
                    torch.distributed.send(outputs.detach(), 1)
                    torch.distributed.recv(gradient, 1)
                outputs.backward(gradient)
            else:
                with run.truth.region("forward"):
                    loss = outputs.square().mean()
                loss.backward()
                with run.truth.region("collective"):
                    torch.distributed.send(inputs.grad, 0)
            optimizer.step()
            optimizer.zero_grad()
            run.truth.stepped()
    torch.distributed.destroy_process_group()
