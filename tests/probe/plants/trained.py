"""Tiny checkpoints that the Trainer of transformers trains, with their optimizer's state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from tests.probe.plants.families import VOCABULARY, checkpoint

STEPS = 24
KEPT = (4, 14, 21, 23, 24)
"""Steps whose checkpoints remain."""
_ROWS, _WIDTH = 256, 24
_RATE = 2e-3


class _PolicyGradient(Trainer):
    """REINFORCE on fixed texts: the update's direction has the noise of advantages."""

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> torch.Tensor:
        """The advantage-weighted mean of the log-probabilities, negated."""
        ids_BL, advantages_B = inputs["input_ids"], inputs["advantages"]
        logits_BLV = model(input_ids=ids_BL, use_cache=False).logits[:, :-1]
        logprobs_BL = -torch.nn.functional.cross_entropy(
            logits_BLV.flatten(0, 1), ids_BL[:, 1:].flatten(), reduction="none"
        ).view(ids_BL.shape[0], -1)
        return -(advantages_B[:, None] * logprobs_BL).mean()


class _OneGroup(_PolicyGradient):
    """The optimizer of a loop that passes `model.parameters()`, as with accelerate."""

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with one group."""
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(
                (model or self.model).parameters(), lr=self.args.learning_rate, weight_decay=0.01
            )
        return self.optimizer


def trained(
    root: Path,
    family: str,
    *,
    schedule: str = "constant",
    groups: str = "two",
    rate: float = _RATE,
    seed: int = 7,
) -> Path:
    """A run's folder with the checkpoints of the steps `KEPT`.

    Args:
        root: where runs are kept; an existing one is returned unchanged.
        family: a key of `FAMILIES`.
        schedule: of the learning rate, a name of transformers.
        groups: `two`, as the Trainer makes them, or `one`.
        rate: the learning rate.
        seed: of the texts and their order.
    """
    more = "" if (rate, seed) == (_RATE, 7) else f"-{rate:g}-{seed}"
    folder = root / f"{family}-{schedule}-{groups}{more}"
    if (folder / f"checkpoint-{STEPS}" / "optimizer.pt").exists():
        return folder
    start = checkpoint(root / f"{family}-start", family)
    set_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    draw = torch.Generator().manual_seed(seed + 4)
    ids = torch.randint(3, VOCABULARY, (_ROWS, _WIDTH), generator=draw)
    rewards = (ids % 5 == 0).float().mean(1)  # a reward that texts can have more or less of
    advantages = (rewards - rewards.mean()) / rewards.std()
    rows = [
        {"input_ids": row, "advantages": advantage}
        for row, advantage in zip(ids, advantages, strict=True)
    ]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, save_steps=1, per_device_train_batch_size=8,
        learning_rate=rate, lr_scheduler_type=schedule, weight_decay=0.01, report_to=[],
        remove_unused_columns=False, use_cpu=True, logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    kind = _OneGroup if groups == "one" else _PolicyGradient
    trainer = kind(model=model, args=arguments, train_dataset=rows)  # type: ignore[arg-type]
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for path in folder.glob("checkpoint-*"):
        if int(path.name.rpartition("-")[2]) not in KEPT:
            shutil.rmtree(path)
    return folder
