"""Several ranks on gloo."""

import os
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.truth import GLUE

REBUILT = 2
"""The pass in which DDP agrees with the other ranks on its buckets."""


def ddp(run: TorchRun) -> None:
    """DistributedDataParallel."""
    torch.distributed.init_process_group("gloo")
    _train(run, nn.parallel.DistributedDataParallel(layers()))


def fsdp(run: TorchRun) -> None:
    """FSDP2: a layer and the rest of the model are sharded."""
    torch.distributed.init_process_group("gloo")
    for name in ("all_gather_single", "reduce_scatter_single"):
        run.truth.wrap(torch.distributed, name, "issue")
    _watch_waits(run)
    for name in ("pre_forward", "post_forward", "pre_backward", "post_backward", "finalize_backward"):
        run.truth.wrap(FSDPParamGroup, name, GLUE)
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    model = layers()
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    _train(run, model)


def _watch_waits(run: TorchRun) -> None:
    """Marks the waits for collectives. A reduce-scatter's own wait also copies its result."""
    wait = torch.distributed.Work.wait
    marked = run.truth.wrapped("collective", wait)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        within = run.truth.own.around[-1:] == ["issue"]
        return (wait if within else marked)(*args, **kwargs)

    torch.distributed.Work.wait = chosen


def _train(run: TorchRun, model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(run.samples(2 * STEPS // torch.distributed.get_world_size()), batch_size=BATCH)
    run.slow_down(model)
    run.get_ready()
    with run.truth.loop():
        for number, (inputs, targets) in enumerate(loader):
            with run.truth.region("agreement" if number == REBUILT - 1 else "forward"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.truth.stepped()
    torch.distributed.destroy_process_group()


def deepspeed(run: TorchRun) -> None:
    """DeepSpeed with ZeRO stage 1 on one rank."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed as framework

    model = layers()
    optimizer = torch.optim.AdamW(model.parameters())
    settings = {"train_micro_batch_size_per_gpu": BATCH, "zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}
    engine, *_ = framework.initialize(model=model, optimizer=optimizer, config=settings)
    run.watch_model(engine)
    loader = DataLoader(run.samples(), batch_size=BATCH)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in loader:
            with run.truth.region("forward"):
                loss = nn.functional.cross_entropy(engine(inputs.bfloat16()), targets)
            engine.backward(loss)
            engine.step()
            run.truth.stepped()
