"""Training loops on a real GPU that record their own phases, like those of `truth.py`.

`python -m benchmarks.training.on_gpu LOOP FOLDER` runs one of LOOPS, and writes FOLDER/truth.0.json in the format of
`truth.py`. The loop starts once the file FOLDER/go exists. It needs PyTorch with CUDA, and for some loops transformers
or Lightning. Without a GPU, it trains on the CPU.

A loop is written as its framework suggests. The record comes from wrappers around PyTorch's own functions, which know
nothing of the receiver.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from benchmarks.training.gpt import BATCH, DEVICE, HEADS, LAYERS, TOKENS, WIDTH, WORDS, Gpt, Labelled, Texts
from benchmarks.training.recorded_calls import RecordedCalls
from benchmarks.training.truth import now

STEPS, WARM_UP = 150, 8
LOGGED_EVERY = 10
"""Steps between two reads of the loss."""


def trained(
    record: RecordedCalls, go: Callable[[], None], *, item_every: int = 1, compiled: bool = False, **loader: Any
) -> None:
    """A plain loop over a DataLoader."""
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    record.watch_optimizer(optimizer)
    step = torch.compile(model) if compiled else model
    for steps in (WARM_UP, STEPS):
        for number, tokens in enumerate(torch.utils.data.DataLoader(Texts(steps), batch_size=BATCH, **loader)):
            with record.outermost("forward"):
                loss = step(tokens.to(DEVICE, non_blocking=True))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if number % item_every == 0:
                loss.item()
        if steps == WARM_UP:
            go()


def replayed(record: RecordedCalls, go: Callable[[], None]) -> None:
    """A loop that replays one CUDA graph of the whole step."""
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.int64, device=DEVICE)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for steps in (WARM_UP, STEPS):
        for batch in torch.utils.data.DataLoader(Texts(steps), batch_size=BATCH):
            with record.outermost("forward"):
                tokens.copy_(batch)
                graph.replay()
            loss.item()
        if steps == WARM_UP:
            go()


def reduced(record: RecordedCalls, go: Callable[[], None]) -> None:
    """A loop that reduces its gradients with NCCL by hand."""
    _init()
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    record.watch(model, optimizer)
    for steps in (WARM_UP, STEPS):
        for tokens in torch.utils.data.DataLoader(Texts(steps), batch_size=BATCH):
            loss = model(tokens.to(DEVICE))
            loss.item()
            loss.backward()
            with record.outermost("wait"):
                torch.cuda.synchronize()
            with record.outermost("collective"):
                for parameter in model.parameters():
                    distributed.all_reduce(parameter.grad)
                torch.cuda.synchronize()
            optimizer.step()
            optimizer.zero_grad()
        if steps == WARM_UP:
            go()
    distributed.destroy_process_group()


def in_parallel(record: RecordedCalls, go: Callable[[], None]) -> None:
    """A loop with DistributedDataParallel."""
    _init()
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    record.watch(model, optimizer)
    parallel = nn.parallel.DistributedDataParallel(model)
    for steps in (WARM_UP, STEPS):
        for tokens in torch.utils.data.DataLoader(Texts(steps), batch_size=BATCH):
            tokens = tokens.to(DEVICE)
            with record.outermost("forward"):
                loss = parallel(tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        if steps == WARM_UP:
            go()
    distributed.destroy_process_group()


def _init() -> None:
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)


def transformers_trainer(record: RecordedCalls, go: Callable[[], None]) -> None:
    """The Trainer of transformers, with gradient accumulation."""
    import transformers  # optional

    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=TOKENS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False
    )
    model = transformers.GPT2LMHeadModel(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    record.watch(model, optimizer)
    for steps in (WARM_UP, STEPS):
        arguments = transformers.TrainingArguments(
            output_dir=f"/tmp/trainer-{os.getpid()}",
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=2,
            max_steps=steps // 2,
            logging_steps=LOGGED_EVERY,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=DEVICE == "cpu",
        )
        transformers.Trainer(model, arguments, train_dataset=Labelled(steps), optimizers=(optimizer, None)).train()
        if steps == WARM_UP:
            go()


def lightning_fit(record: RecordedCalls, go: Callable[[], None]) -> None:
    """The Trainer of Lightning, with automatic optimization."""
    import lightning  # optional

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Gpt()

        def training_step(self, tokens: torch.Tensor, _: int) -> torch.Tensor:
            return self.model(tokens)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = torch.optim.AdamW(self.model.parameters())
            record.watch(self.model, optimizer)
            return optimizer

    for steps in (WARM_UP, STEPS):
        trainer = lightning.Trainer(
            accelerator="gpu" if DEVICE == "cuda" else "cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(Texts(steps), batch_size=BATCH))
        if steps == WARM_UP:
            go()


def without_loader(record: RecordedCalls, go: Callable[[], None]) -> None:
    """A loop like nanoGPT's: batches come from a function, and two micro-batches make a step."""
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    record.watch(model, optimizer)
    data = torch.randint(0, WORDS, (1 << 20,))

    def get_batch() -> torch.Tensor:
        with record.outermost("data"):
            places = torch.randint(len(data) - TOKENS, (BATCH,))
            batch = torch.stack([data[place : place + TOKENS] for place in places.tolist()])
            return batch.pin_memory().to(DEVICE, non_blocking=True) if DEVICE == "cuda" else batch

    tokens = get_batch()
    for steps in (WARM_UP, 4 * STEPS):
        for number in range(steps):
            for _ in range(2):
                loss = model(tokens)
                tokens = get_batch()
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if number % LOGGED_EVERY == 0:
                loss.item()
        if steps == WARM_UP:
            go()


Loop = Callable[[RecordedCalls, Callable[[], None]], None]
LOOPS: dict[str, Loop] = {
    "GPU, loss read every step": lambda record, go: trained(record, go),
    "GPU, loss read every 10 steps": lambda record, go: trained(record, go, item_every=LOGGED_EVERY),
    "GPU, 2 workers, pinned": lambda record, go: trained(record, go, num_workers=2, pin_memory=True),
    "GPU, torch.compile": lambda record, go: trained(record, go, compiled=True),
    "GPU, CUDA graph": replayed,
    "GPU, NCCL by hand": reduced,
    "GPU, NCCL, DDP": in_parallel,
    "GPU, transformers": transformers_trainer,
    "GPU, Lightning": lightning_fit,
    "GPU, no DataLoader": without_loader,
}


def main(name: str, folder: Path) -> None:
    """Warms a loop up, waits for the file `go`, runs the loop, and writes its true phases."""
    torch.set_num_threads(1)
    record, begin = RecordedCalls(), [0]
    record.watch_torch()

    def go() -> None:
        (folder / "ready").touch()
        while not (folder / "go").exists():
            with torch.profiler.record_function("warm-up"):
                time.sleep(0.02)
        record.on, begin[0] = True, now()

    LOOPS[name](record, go)
    record.on = False
    loop = (begin[0], now())
    truth = {"pid": os.getpid(), "loop": loop, "marks": record.marks, "hidden": 0}
    (folder / "truth.0.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
