"""A small residual network on images that a worker augments, in the manner of PyTorch's examples of CIFAR-10."""

import random

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

IMAGES, SIZE, PAD, CLASSES, BATCH = 4_096, 32, 4, 10, 64


class Pictures(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Random pictures: each is padded, cropped, flipped and normalized when it is taken."""

    def __init__(self) -> None:
        self.data = torch.randint(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
        self.targets = torch.randint(0, CLASSES, (IMAGES,)).tolist()
        self.mean, self.deviation = torch.tensor([0.49, 0.48, 0.45]), torch.tensor([0.25, 0.24, 0.26])

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = functional.pad(self.data[index], (PAD, PAD, PAD, PAD))
        top, left = random.randint(0, 2 * PAD), random.randint(0, 2 * PAD)
        picture = picture[:, top : top + SIZE, left : left + SIZE]
        if random.random() < 0.5:
            picture = picture.flip(2)
        picture = (picture.float() / 255 - self.mean[:, None, None]) / self.deviation[:, None, None]
        return picture, self.targets[index]


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def main() -> None:
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    loader = DataLoader(Pictures(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    epoch = 0
    while True:
        net.train()
        train_loss, correct, total = 0.0, 0, 0
        for inputs, targets in loader:
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
            predicted = outputs.max(1)[1]
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
        print(f"epoch {epoch}: loss {train_loss:.3f}, accuracy {correct / total:.1%}")
        scheduler.step()
        epoch += 1


if __name__ == "__main__":
    main()
