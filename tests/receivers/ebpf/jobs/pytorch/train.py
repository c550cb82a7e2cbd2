"""An unmodified PyTorch training loop that counts its steps; run by test_torch.py with a Python that has PyTorch.

    python train.py WORKERS STEPS

Prints `ready`, waits for a line, trains, prints its counts as JSON, and waits for another line.
"""

import json
import sys

import torch
from torch import nn


def train(workers: int, steps: int) -> dict[str, int]:
    data = torch.utils.data.TensorDataset(torch.randn(8 * steps, 64), torch.randint(0, 10, (8 * steps,)))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    done = {"steps": 0, "caught": 0}
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=8, num_workers=workers):
        with torch.profiler.record_function("my forward"):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done["steps"] += 1
    for _ in range(3):
        try:
            loss.backward()  # a second time: an exception crosses the engine
        except RuntimeError:
            done["caught"] += 1
    return done


sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.readline()
sys.stdout.write(json.dumps(train(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
sys.stdout.flush()
sys.stdin.readline()
