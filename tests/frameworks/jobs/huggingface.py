"""The libraries of Hugging Face, on models that are made from configurations."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tests.frameworks.jobs.models.small import STEPS
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.slowness import busy

VOCABULARY, LENGTH, ROWS = 256, 48, 8
SENTENCES = 16


class _Texts(Dataset[Any]):
    """Random tokens."""

    def __init__(self, run: TorchRun, count: int) -> None:
        self._run, self._count = run, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        busy(0.01 / ROWS)
        self._run.delay("loader")
        tokens = torch.randint(0, VOCABULARY, (LENGTH,))
        return {"input_ids": tokens, "labels": tokens}


def _gpt() -> GPT2LMHeadModel:
    shape = {"n_positions": 128, "n_embd": 192, "n_layer": 3, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **shape))


class _Steps(TrainerCallback):
    def __init__(self, run: TorchRun) -> None:
        self.run = run

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.run.truth.stepped()


def trainer(run: TorchRun) -> None:
    """transformers' Trainer with accumulation."""
    model = _gpt()
    run.watch_model(model)
    arguments = TrainingArguments(
        output_dir=str(run.truth.folder / "out"),
        use_cpu=True,
        num_train_epochs=1,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        logging_steps=20,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    made = Trainer(model=model, args=arguments, train_dataset=_Texts(run, STEPS * ROWS), callbacks=[_Steps(run)])
    run.get_ready()
    with run.truth.loop():
        made.train()


def sentences(run: TorchRun) -> None:
    """sentence-transformers' trainer."""
    from datasets import Dataset as Rows
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.models import Pooling, Transformer

    folder = _bert(run.truth.folder / "bert")
    words = Transformer(str(folder), max_seq_length=32)
    model = SentenceTransformer(modules=[words, Pooling(words.get_word_embedding_dimension())], device="cpu")
    run.watch_model(words)
    loss = losses.MultipleNegativesRankingLoss(model)
    run.truth.wrap(loss, "forward", "forward")
    pairs = [" ".join(f"w{(n * 7 + k) % 90}" for k in range(20)) for n in range(STEPS * SENTENCES // 2)]
    rows = Rows.from_dict({"anchor": pairs, "positive": pairs[::-1]})
    arguments = Arguments(
        output_dir=str(run.truth.folder / "out"),
        use_cpu=True,
        num_train_epochs=1,
        per_device_train_batch_size=SENTENCES,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    made = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=rows, loss=loss, callbacks=[_Steps(run)]
    )
    _delay_batches(run, made.data_collator)
    run.get_ready()
    with run.truth.loop():
        made.train()


def _delay_batches(run: TorchRun, collator: Any) -> None:
    kind = type(collator)

    class Delayed(kind):  # type: ignore[valid-type, misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            run.delay("loader")
            return super().__call__(*args, **kwargs)

    collator.__class__ = Delayed


def _bert(folder: Path) -> Path:
    folder.mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *(f"w{n}" for n in range(90))]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 768}
    BertModel(BertConfig(vocab_size=95, **shape)).save_pretrained(folder)
    return folder


def generating(run: TorchRun) -> None:
    """A loop by hand that generates text now and then."""
    model = _gpt()
    run.watch_model(model)
    run.truth.wrap(model, "generate", "generate")
    optimizer = torch.optim.AdamW(model.parameters())
    run.get_ready()
    with run.truth.loop():
        for number, batch in enumerate(DataLoader(_Texts(run, STEPS * ROWS), batch_size=ROWS)):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.truth.stepped()
            if number % 20 == 19:
                _generate(model)


def generating_only(run: TorchRun) -> None:
    """Text generation, without training."""
    model = _gpt()
    run.truth.wrap(model, "generate", "generate")
    run.get_ready()
    with run.truth.loop():
        for _ in range(20):
            with run.truth.region("host"):
                busy(0.02)
            _generate(model)


def _generate(model: GPT2LMHeadModel) -> None:
    prompt = torch.randint(1, VOCABULARY, (2, 8))
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=60, do_sample=True, pad_token_id=0)
