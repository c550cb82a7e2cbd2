"""A rank of a small training job with gloo that hangs in a known way after some steps.

    python ranks.py KIND STORE RANK RANKS

It says `training` after its first steps and waits for a line of its input. Then the last rank does what KIND says in
place of its next step, and the others wait for it in backward. They say `stuck` before that. The file STORE.number then
has the number of the latest collective.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KIND, STORE, RANK, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def read_pipe() -> None:
    os.mkfifo(f"{STORE}.fifo")
    Path(f"{STORE}.fifo").open().close()


def lock_twice() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def sleep_often() -> None:
    while True:
        time.sleep(0.001)


def hold_gil() -> None:
    threading.Thread(target=sleep_often, daemon=True).start()
    ctypes.PyDLL(None).sleep(60)


def wait_for_program() -> None:
    subprocess.run(["sleep", "60"], check=True)


def reduce_alone() -> None:
    dist.all_reduce(torch.ones(4))


def stop() -> None:
    os.kill(os.getpid(), 19)


class Deadlocked(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        lock_twice()
        return torch.ones(4)


def load() -> None:
    next(iter(torch.utils.data.DataLoader(Deadlocked(), num_workers=1)))


def compute() -> None:
    sum(0 for _ in iter(int, 1))  # without an end


def step() -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=RANKS)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    step()
say("training")
sys.stdin.readline()
step()
Path(f"{STORE}.number").write_text(str(dist.group.WORLD._get_sequence_number_for_group()))
say("stuck")
if RANK == RANKS - 1:
    {
        "pipe": read_pipe,
        "work": read_pipe,
        "lock": lock_twice,
        "gil": hold_gil,
        "program": wait_for_program,
        "worker": load,
        "stopped": stop,
        "order": reduce_alone,
        "busy": compute,
    }[KIND]()
if KIND == "work":
    dist.all_reduce(torch.ones(4), async_op=True).wait()
else:
    step()
