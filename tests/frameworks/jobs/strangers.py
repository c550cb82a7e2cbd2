"""Loops as strangers write them, each of another task."""

import copy
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy, mse_loss, smooth_l1_loss, softplus
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, WIDTH, layers, random_batch
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.slowness import busy

STATES, ACTIONS, MEMORY, PLAYED, SAMPLED = 16, 4, 2_000, 8, 128
CRITICS, INNER, TASKS = 3, 2, 2


def detection(run: TorchRun) -> None:
    """Several losses, a warm-up by steps, clipping, and a log of each loss."""
    backbone = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
    boxes, classes = nn.Conv2d(64, 4, 1), nn.Conv2d(64, 10, 1)
    weights = [weight for part in (backbone, boxes, classes) for weight in part.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    history: list[dict[str, float]] = []
    run.get_ready()
    with run.truth.loop():
        for samples in DataLoader(run.samples(), batch_size=BATCH, collate_fn=list):
            with run.truth.region("prepare"):
                inputs, targets = zip(*samples, strict=True)
                images = torch.stack(inputs).view(-1, 1, 32, 32)
                wanted = torch.as_tensor(targets)
            with run.truth.region("forward"):
                features = backbone(images)
                losses = {
                    "box": smooth_l1_loss(boxes(features).mean((2, 3)), torch.zeros(len(images), 4)),
                    "class": cross_entropy(classes(features).mean((2, 3)), wanted),
                }
                total = sum(losses.values())
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            with run.truth.region("host"):
                warm_up.step()
                history.append({name: loss.item() for name, loss in losses.items()})
            run.truth.stepped()


def diffusion(run: TorchRun) -> None:
    """Noise at a random time, clipping, and an average of the weights by hand."""
    model, average = layers(WIDTH), layers(WIDTH).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    signal = torch.linspace(1, 0, 100)
    run.get_ready()
    with run.truth.loop():
        for images, _ in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("forward"):
                noise = torch.randn_like(images)
                kept = signal[torch.randint(0, 100, (len(images), 1))]
                loss = mse_loss(model(kept * images + (1 - kept) * noise), noise)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with run.truth.region("average"), torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    mean.mul_(0.99).add_(weight, alpha=0.01)
            run.truth.stepped()


def contrastive(run: TorchRun) -> None:
    """Two encoders, and two views of each sample that the loop makes."""
    first, second, scale = layers(256), layers(256), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters(), scale])
    run.get_ready()
    with run.truth.loop():
        for samples, _ in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("prepare"):
                views = [torch.where(torch.rand_like(samples) < 0.8, samples.flip(0), 0.0).roll(9, 1) for _ in "ab"]
            with run.truth.region("forward"):
                left, right = (
                    nn.functional.normalize(net(view)) for net, view in zip((first, second), views, strict=True)
                )
                loss = cross_entropy(scale * left @ right.T, torch.arange(len(samples)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.truth.stepped()


def q_learning(run: TorchRun) -> None:
    """A replay memory, a target network, and a slowly following copy."""
    model = nn.Sequential(nn.Linear(STATES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, ACTIONS))
    target, memory = copy.deepcopy(model), deque[tuple[Any, ...]](maxlen=MEMORY)
    optimizer = torch.optim.Adam(model.parameters())
    state = np.zeros(STATES, np.float32)
    run.get_ready()
    with run.truth.loop():
        for _ in range(5 * STEPS):
            for _ in range(PLAYED):
                with run.truth.region("rollout"), torch.no_grad():
                    action = int(model(torch.from_numpy(state)[None]).argmax())
                with run.truth.region("host"):
                    busy(0.001)
                    following = np.random.default_rng(action).random(STATES, np.float32)
                    memory.append((state, action, float(action == 0), following))
                    state = following
            with run.truth.region("data"):
                states, actions, rewards, others = zip(*random.choices(memory, k=256), strict=True)
                before, after = torch.from_numpy(np.stack(states)), torch.from_numpy(np.stack(others))
                chosen, earned = torch.tensor(actions), torch.tensor(rewards)
            with run.truth.region("forward"):
                with torch.no_grad():
                    wanted = earned + 0.99 * target(after).max(1).values
                loss = smooth_l1_loss(model(before).gather(1, chosen[:, None])[:, 0], wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with run.truth.region("average"), torch.no_grad():
                for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)
            run.truth.stepped()


def replayed(run: TorchRun) -> None:
    """PyTorch's tutorial of deep Q-learning: a batch of the replay memory after each step of the environment."""
    model, target = (nn.Sequential(nn.Linear(STATES, 256), nn.ReLU(), nn.Linear(256, ACTIONS)) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)
    memory = deque[tuple[torch.Tensor, ...]](maxlen=MEMORY)
    for _ in range(SAMPLED):
        memory.append((torch.rand(1, STATES), torch.tensor([[0]]), torch.rand(1, STATES), torch.tensor([0.0])))
    state = torch.zeros(1, STATES)
    run.get_ready()
    with run.truth.loop():
        for _ in range(5 * STEPS):
            with run.truth.region("rollout"), torch.no_grad():
                action = model(state).max(1).indices.view(1, 1)
            with run.truth.region("host"):
                busy(0.002)
                following = torch.tensor(np.random.default_rng(int(action)).random((1, STATES), np.float32))
            with run.truth.region("data"):
                memory.append((state, action, following, torch.tensor([float(action == 0)])))
                before, actions, after, rewards = (
                    torch.cat(values) for values in zip(*random.sample(memory, SAMPLED), strict=True)
                )
            state = following
            with run.truth.region("forward"):
                chosen = model(before).gather(1, actions)
                with torch.no_grad():
                    wanted = rewards + 0.99 * target(after).max(1).values
                loss = smooth_l1_loss(chosen, wanted[:, None])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 100)
            optimizer.step()
            with run.truth.region("average"):
                weights, slow = model.state_dict(), target.state_dict()
                for name in weights:
                    slow[name] = weights[name] * 0.005 + slow[name] * 0.995
                target.load_state_dict(slow)
            run.truth.stepped()


def critics(run: TorchRun) -> None:
    """A GAN whose critic takes several steps, with a penalty of its gradient."""
    generator, critic = layers(WIDTH), layers(1)
    generating = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    judging = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    run.truth.wrap(torch.autograd, "grad", "backward")
    run.get_ready()
    with run.truth.loop():
        for number, (real, _) in enumerate(DataLoader(run.samples(), batch_size=BATCH)):
            with run.truth.region("forward"):
                fake = generator(torch.randn_like(real)).detach()
                mixed = real.lerp(fake, torch.rand(len(real), 1)).requires_grad_()
                judged = critic(mixed).sum()
            (slope,) = torch.autograd.grad(judged, mixed, create_graph=True)
            with run.truth.region("forward"):
                loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()
            judging.zero_grad()
            loss.backward()
            judging.step()
            if number % CRITICS == CRITICS - 1:
                with run.truth.region("forward"):
                    loss = softplus(-critic(generator(torch.randn_like(real)))).mean()
                generating.zero_grad()
                loss.backward()
                generating.step()
            run.truth.stepped()


def mixed_precision(run: TorchRun) -> None:
    """bfloat16 by autocast, gradients that accumulate, and a schedule."""
    model = layers()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=STEPS)
    run.get_ready()
    with run.truth.loop():
        for number, (inputs, targets) in enumerate(DataLoader(run.samples(), batch_size=BATCH), 1):
            with run.truth.region("forward"), torch.autocast("cpu", torch.bfloat16):
                loss = cross_entropy(model(inputs), targets) / 2
            loss.backward()
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            run.truth.stepped()


def checkpointed(run: TorchRun) -> None:
    """Activation checkpoints: the backward pass computes parts of the forward pass again. Batches are made by hand."""
    blocks = [layers(WIDTH) for _ in range(2)]
    optimizer = torch.optim.SGD([weight for block in blocks for weight in block.parameters()], lr=0.01)
    run.get_ready()
    with run.truth.loop():
        for _ in range(STEPS):
            with run.truth.region("data"):
                inputs, _ = random_batch()
            with run.truth.region("forward"):
                outputs = inputs
                for block in blocks:
                    outputs = checkpoint(block, outputs, use_reentrant=False)
                loss = outputs.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.truth.stepped()


def accumulated_ranks(run: TorchRun) -> None:
    """DistributedDataParallel that reduces gradients in each second backward pass only."""
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(layers())
    optimizer = torch.optim.AdamW(model.parameters())
    run.get_ready()
    with run.truth.loop():
        for number, (inputs, targets) in enumerate(DataLoader(run.samples(), batch_size=BATCH)):
            reduces = number % 2 == 1
            model.require_backward_grad_sync = reduces  # as `no_sync` does
            with run.truth.region("agreement" if number == 3 else "forward"):
                loss = cross_entropy(model(inputs), targets)
            loss.backward()
            if reduces:
                optimizer.step()
                optimizer.zero_grad()
            run.truth.stepped()
    torch.distributed.destroy_process_group()


def tasks_of_two(run: TorchRun) -> None:
    """A shared body and two heads, each with an optimizer and a backward pass."""
    body, heads = layers(256), [nn.Linear(256, 10), nn.Linear(256, 1)]
    optimizers = [torch.optim.Adam([*body.parameters(), *head.parameters()]) for head in heads]
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(), batch_size=BATCH):
            for task, (head, optimizer) in enumerate(zip(heads, optimizers, strict=True)):
                with run.truth.region("forward"):
                    found = head(body(inputs))
                    loss = mse_loss(found[:, 0], targets.float()) if task else cross_entropy(found, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            run.truth.stepped()


def meta_learning(run: TorchRun) -> None:
    """MAML: inner steps by functional gradients, and an outer optimizer."""
    model = layers(WIDTH)
    optimizer = torch.optim.Adam(model.parameters())
    run.truth.wrap(torch.autograd, "grad", "backward")

    def loss_of(weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        with run.truth.region("forward"):
            return cosine_similarity(torch.func.functional_call(model, weights, (inputs,)), inputs).mean()

    def adapted(batches: Iterator[torch.Tensor]) -> torch.Tensor:
        weights = dict(model.named_parameters())
        for _ in range(INNER):
            gradients = torch.autograd.grad(loss_of(weights, next(batches)), list(weights.values()), create_graph=True)
            pairs = zip(weights.items(), gradients, strict=True)
            weights = {name: weight - 0.01 * gradient for (name, weight), gradient in pairs}
        return loss_of(weights, next(batches))

    run.get_ready()
    with run.truth.loop():
        for _ in range(STEPS // 2):
            optimizer.zero_grad()
            for _ in range(TASKS):
                with run.truth.region("data"):
                    batches = [random_batch()[0][:64] for _ in range(INNER + 1)]
                adapted(iter(batches)).backward()
            optimizer.step()
            run.truth.stepped()
