"""An LSTM that predicts words, in the manner of PyTorch's example `word_language_model`: truncated backpropagation."""

import time

import torch
from torch import nn

WORDS, EMBEDDING, HIDDEN, LAYERS, BATCH, LENGTH = 5_000, 128, 192, 2, 20, 35
TEXT = 400_000
RATE, CLIP, LOG = 5.0, 0.25, 20
Hidden = tuple[torch.Tensor, torch.Tensor]


class Words(nn.Module):  # type: ignore[misc]  # torch is unknown to mypy
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(WORDS, EMBEDDING)
        self.rnn = nn.LSTM(EMBEDDING, HIDDEN, LAYERS, dropout=0.2)
        self.decoder = nn.Linear(HIDDEN, WORDS)

    def forward(self, words: torch.Tensor, hidden: Hidden) -> tuple[torch.Tensor, Hidden]:
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return nn.functional.log_softmax(self.decoder(self.drop(output)).view(-1, WORDS), dim=1), hidden

    def start(self) -> Hidden:
        return torch.zeros(LAYERS, BATCH, HIDDEN), torch.zeros(LAYERS, BATCH, HIDDEN)


def main() -> None:
    torch.manual_seed(1111)
    text = torch.randint(0, WORDS, (TEXT // BATCH, BATCH))
    model, criterion = Words(), nn.NLLLoss()
    epoch = 0
    while True:
        model.train()
        hidden, total, began = model.start(), 0.0, time.time()
        for batch, at in enumerate(range(0, text.size(0) - 1 - LENGTH, LENGTH)):
            data, targets = text[at : at + LENGTH], text[at + 1 : at + 1 + LENGTH].view(-1)
            model.zero_grad()
            hidden = hidden[0].detach(), hidden[1].detach()
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-RATE)
            total += loss.item()
            if batch % LOG == 0 and batch:
                took = (time.time() - began) * 1000 / LOG
                print(f"epoch {epoch} batch {batch} ms/batch {took:.2f} loss {total / LOG:.2f}")
                total, began = 0.0, time.time()
        epoch += 1


if __name__ == "__main__":
    main()
