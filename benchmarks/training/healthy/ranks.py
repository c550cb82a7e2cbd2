"""A model on several ranks, which exchange buckets of gradients while the backward pass goes on. Needs torchrun."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, FEATURES, WIDTH, LAYERS, CLASSES, BATCH = 100_000, 128, 384, 6, 20, 2_048


class Numbers(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    def __init__(self) -> None:
        self.x, self.y = torch.randn(SAMPLES, FEATURES), torch.randint(0, CLASSES, (SAMPLES,))

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[indices], self.y[indices]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers: list[nn.Module] = [nn.Linear(FEATURES, WIDTH), nn.GELU()]
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)), bucket_cap_mb=1, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Numbers()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler, collate_fn=lambda batch: batch, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if rank == 0 and number % 10 == 0:
                print(f"epoch {epoch} step {number} loss {loss.item():.3f}")
        epoch += 1


if __name__ == "__main__":
    main()
