"""A small GPT-2 and its texts, for the loops on a GPU. Without a GPU, it trains on the CPU."""

from typing import Any

import torch
from torch import nn

from benchmarks.training.truth import now

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, TOKENS, WORDS = 16, 256, 8192
WIDTH, HEADS, LAYERS = 384, 6, 3


class Block(nn.Module):  # type: ignore[misc]  # torch is unknown to mypy
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        rows, columns, _ = values.shape
        heads = self.attention(self.first(values)).view(rows, columns, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        values = values + self.projection(mixed.transpose(1, 2).reshape(rows, columns, WIDTH))
        return values + self.network(self.second(values))


class Gpt(nn.Module):  # type: ignore[misc]
    """A small GPT-2. Returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        made = self.head(self.blocks(values))
        return nn.functional.cross_entropy(made[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Texts(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Random texts, as tokens."""

    def __init__(self, batches: int) -> None:
        self._count = batches * BATCH

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        end = now() + 200_000  # as long as to tokenize a line
        while now() < end:
            pass
        return torch.randint(0, WORDS, (TOKENS,))


class Labelled(Texts):
    """The same texts, as transformers expects them."""

    def __getitem__(self, index: int) -> Any:
        tokens = super().__getitem__(index)
        return {"input_ids": tokens, "labels": tokens}
