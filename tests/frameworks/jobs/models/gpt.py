"""A small GPT of PyTorch's own modules."""

import torch
from torch import nn

VOCABULARY = 256
BLOCK = 64
_WIDTH, _HEADS, _LAYERS = 192, 4, 3


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(_WIDTH) for _ in range(2))
        self.attend, self.project = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.feed = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows, length, width = inputs.shape
        parts = self.attend(self.norms[0](inputs)).split(width, 2)
        query, key, value = (part.view(rows, length, _HEADS, -1).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return inputs + self.feed(self.norms[1](inputs))


class Gpt(nn.Module):
    """Returns the loss of the tokens that follow."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, _WIDTH), nn.Embedding(BLOCK, _WIDTH)
        self.layers, self.norm = nn.Sequential(*(_Layer() for _ in range(_LAYERS))), nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, VOCABULARY, bias=False)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(inputs) + self.places(torch.arange(inputs.shape[1]))
        head = self.head(self.norm(self.layers(hidden)))
        return nn.functional.cross_entropy(head.view(-1, VOCABULARY), targets.view(-1))
