"""A rank of distributed training on CPUs that trains until it is stopped; run by test_job_traces.py.

    torchrun --nproc-per-node 4 train_ranks.py FOLDER

Trains with gloo until FOLDER/end exists. FOLDER/started exists once rank 0 has trained 20 steps.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn

MOST = 3000
"""Steps, if nobody stops it."""
STARTED = 20


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    is_over = torch.zeros(1)
    for number, inputs in enumerate(torch.utils.data.DataLoader(torch.randn(4 * MOST, 8), batch_size=4)):
        model(inputs).sum().backward()
        optimizer.step()
        if number == STARTED and distributed.get_rank() == 0:
            (folder / "started").touch()
        is_over.fill_(float((folder / "end").exists()))
        distributed.all_reduce(is_over)  # all ranks end after the same step
        if is_over.item():
            break
        time.sleep(0.02)
    distributed.destroy_process_group()


torch.set_num_threads(1)
main(Path(sys.argv[1]))
os._exit(0)  # on a busy machine, PyTorch's own threads may abort the process at a normal exit
