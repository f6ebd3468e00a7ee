"""What `bench_trainer` runs in processes of their own: a trainer that takes steps when it is told.

A line of standard input is a number of steps; the answer on standard output is one JSON object with
the seconds that one took, on the wall and of the processor, and the most memory so far, of the
process and of those it started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from grpodoctor.trainer.loop import Trainer

GROUP, COMPLETIONS, LENGTH = 8, 64, 48
LEARNING_RATE = 1e-5
SIZES = [
    *((count, LENGTH) for count in (64, 128, 256, 512, 1024)),
    *((COMPLETIONS, length) for length in (96, 192, 384, 512)),
]
"""Completions and tokens of the batches whose time is to grow no faster than they do."""


def share_of_digits(text: str) -> float:
    """What is rewarded: cheap, and different within a group."""
    return sum(map(str.isdigit, text)) / LENGTH


def our_reward(_prompts: object, completions: Sequence[str], _answers: object) -> list[float]:
    """As the bundled trainer calls it."""
    return list(map(share_of_digits, completions))


def trl_reward(completions: Sequence[str], completion_ids: Sequence[Any], **_: Any) -> list[float]:
    """As TRL calls it; with a look at the lengths."""
    lengths = set(map(len, completion_ids))
    if lengths != {LENGTH} or len(completions) != COMPLETIONS:
        raise SystemExit(f"TRL generated {len(completions)} completions of {lengths} tokens")
    return list(map(share_of_digits, completions))


def peak_memory() -> int:
    """Largest resident sets of this process and its children, in bytes."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return sum(_high_water_mark(process) for process in ["self", *children])


def _high_water_mark(process: str) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def clocks() -> np.ndarray:
    """Seconds on the wall and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def answer(**figures: Any) -> None:
    """Say something to the parent, whose pipe standard output is."""
    print(json.dumps(figures), flush=True)


def orders() -> int:
    """The next number of steps; 0 at the end."""
    return int(sys.stdin.readline() or 0)


def run_ours(model: Path, prompts: Path, folder: Path, *, record: bool) -> None:
    """Take steps with the bundled trainer."""
    trainer = our_trainer(model, prompts, folder, COMPLETIONS, LENGTH, record=record)
    answer(peak=peak_memory())
    while steps := orders():
        began = clocks()
        for _ in range(steps):
            trainer.train_step()
        answer(seconds=((clocks() - began) / steps).tolist(), peak=peak_memory())
    trainer.recording.close(finished=True)


def our_trainer(
    model: Path, prompts: Path, folder: Path, completions: int, length: int, *, record: bool
) -> Trainer:
    """A run whose settings are those that `run_trl` gives TRL."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.loop import Trainer

    settings = {
        "steps": 1_000_000,
        "model": {"name": str(model)},
        "task": {"data": str(prompts), "reward": "trainer_contenders:our_reward"},
        "rollout": {
            "prompts_per_batch": completions // GROUP,
            "group_size": GROUP,
            "max_length": length,
        },
        "advantage": {"std": "unbiased", "epsilon": 1e-4},
        "loss": {"kind": "ppo_clip", "aggregation": "token-mean"},
        "optimizer": {"learning_rate": LEARNING_RATE, "updates_per_batch": 1, "beta2": 0.999},
        "evaluation": {"every": 0},
        "record": {"enabled": record},
    }
    trainer = Trainer(load_config(settings), folder)
    trainer.train_step()
    return trainer


def run_trl(model: Path, prompts: Path, folder: Path) -> None:
    """Take steps with TRL's trainer, free of logging, saving and checkpointing of gradients."""
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Obedient(TrainerCallback):
        """Waits for orders between steps."""

        left, taken, began = 1, 0, clocks()

        def on_step_end(self, *given: Any, **_: Any) -> None:
            self.left -= 1
            if self.left:
                return
            if self.taken:
                seconds = (clocks() - self.began) / self.taken
                answer(seconds=seconds.tolist(), peak=peak_memory())
            else:
                answer(peak=peak_memory())
            self.left = self.taken = orders()
            given[-1].should_training_stop = not self.taken  # of the control
            self.began = clocks()

    settings = GRPOConfig(
        str(folder),
        max_steps=1_000_000,
        per_device_train_batch_size=COMPLETIONS,
        steps_per_generation=1,
        num_generations=GROUP,
        max_completion_length=LENGTH,
        loss_type="dapo",
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs={"use_cache": True},
        dataloader_pin_memory=False,
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
    )
    GRPOTrainer(
        str(model),
        reward_funcs=trl_reward,
        args=settings,
        train_dataset=load_dataset("json", data_files=str(prompts), split="train"),
        callbacks=[Obedient()],
    ).train()


def run_growth(model: Path, prompts: Path, folder: Path) -> None:
    """Time one step of every size in turn, as often as is asked for."""
    trainers = {
        size: our_trainer(model, prompts, folder / f"{size[0]}x{size[1]}", *size, record=True)
        for size in SIZES
    }
    answer(peak=peak_memory())
    while orders():
        seconds = []
        for trainer in trainers.values():
            began = clocks()
            trainer.train_step()
            seconds.append((clocks() - began).tolist())
        answer(seconds=seconds, peak=peak_memory())
    for trainer in trainers.values():
        trainer.recording.close(finished=True)


def save_model(folder: Path) -> None:
    """The built-in architecture with random weights and no way to write its end token.

    The first entry of the hidden state is the same for all tokens, since no layer adds to it, and
    the head reads the end token off it, with a weight that makes its probability zero.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy
    from grpodoctor.trainer.model.tokenizer import ALPHABET

    config = load_config({"model": {"warm_start_steps": 0}})
    architecture = load_policy(config, build_task(config.task)).model.config
    architecture.tie_word_embeddings = False
    architecture.eos_token_id = 1
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(architecture)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[1, 0] = -1000.0
    model.save_pretrained(folder)
    words = {word: index for index, word in enumerate(["<pad>", "<end>", *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<pad>",  # noqa: S106 - as above; without it the loader adds one of its own
        pad_token="<pad>",  # noqa: S106 - as above
        eos_token="<end>",  # noqa: S106 - as above
    ).save_pretrained(folder)


def save_prompts(file: Path) -> None:
    """Sums to do, which nobody will."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(1, 100, (256, 2)).tolist()
    lines = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a, b in pairs]
    file.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Be one of the contenders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["TRL", "recorded", "unrecorded", "growth"])
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        if given.name == "TRL":
            run_trl(given.model, given.prompts, folder)
        elif given.name == "growth":
            run_growth(given.model, given.prompts, folder)
        else:
            run_ours(given.model, given.prompts, folder, record=given.name == "recorded")


if __name__ == "__main__":
    main()
