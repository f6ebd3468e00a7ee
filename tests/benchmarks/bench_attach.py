"""What `grpodoctor.attach` costs a training with TRL.

Two processes train the same model with TRL, one of them attached, and take turns step by step, so
that both see the same load of the machine. The model is large enough for a step of 0.3 s. The
writer process of the record runs beside the attached training all the time, as in a real run.
The figure is the median of the ratios of neighbouring steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from trainer_contenders import save_prompts

BATCH, GROUP, LENGTH, HIDDEN, LAYERS = 64, 8, 48, 256, 2
WARM_UP = 3
LONG_ENOUGH = 0.3
"""Seconds; the overhead of a shorter step says nothing about real trainings."""


def work(folder: Path, *, attached: bool) -> None:
    """Train, one step for each line of standard input, and print the seconds."""
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import grpodoctor

    class StepOnDemand(TrainerCallback):
        """Runs last at the end of each step, so the time contains all other callbacks."""

        started = time.perf_counter()

        def on_step_end(self, *arguments: Any, **_: Any) -> None:
            print(json.dumps(time.perf_counter() - self.started), flush=True)
            arguments[-1].should_training_stop = not sys.stdin.readline()  # the TrainerControl
            self.started = time.perf_counter()

    trainer = GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=share_of_digits,
        args=GRPOConfig(
            str(folder / f"run-{attached}"),
            max_steps=1_000_000,
            per_device_train_batch_size=BATCH,
            num_generations=GROUP,
            max_completion_length=LENGTH,
            learning_rate=1e-6,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files=str(folder / "prompts.jsonl"), split="train"),
    )
    if attached:
        grpodoctor.attach(trainer)
    trainer.add_callback(StepOnDemand())
    trainer.train()


def share_of_digits(completions: list[str], **_: Any) -> list[float]:
    """The reward."""
    return [sum(map(str.isdigit, text)) / LENGTH for text in completions]


def save_model(folder: Path) -> None:
    """Save a model that is larger than that of the other benchmarks, and its tokenizer."""
    import torch
    from trainer_contenders import save_model as save_small_model
    from transformers import AutoConfig, AutoModelForCausalLM

    save_small_model(folder)  # for its tokenizer
    config = AutoConfig.from_pretrained(folder)
    config.hidden_size, config.intermediate_size = HIDDEN, 4 * HIDDEN
    config.num_hidden_layers, config.num_attention_heads = LAYERS, 4
    config.num_key_value_heads, config.head_dim = 4, HIDDEN // 4
    config.layer_types = ["full_attention"] * LAYERS
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def start(folder: Path, name: str, threads: int) -> subprocess.Popen[str]:
    """A process that trains step by step."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "OMP_NUM_THREADS": str(threads),
    }
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--worker", name, "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )


def seconds_of(process: subprocess.Popen[str]) -> float:
    """The duration of the step that a process has just ended."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            return float(line)
        except ValueError:  # a message of a library
            continue
    raise SystemExit("a training ended early; see its log")


def compare(folder: Path, steps: int, threads: int) -> None:
    """Let the trainings take turns, and print the figures."""
    processes = {name: start(folder, name, threads) for name in ("bare", "attached")}
    for process in processes.values():
        seconds_of(process)  # the first step contains the imports
    taken = np.zeros((steps, 2))
    for turn in range(-WARM_UP, steps):
        for column, process in enumerate(processes.values()):
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
            seconds = seconds_of(process)
            if turn >= 0:
                taken[turn, column] = seconds
    for process in processes.values():
        process.communicate(timeout=120)
    bare, attached = np.median(taken, axis=0)
    ratios = taken[:, 1] / taken[:, 0]
    low, middle, high = np.percentile(ratios, [25, 50, 75]) - 1
    print(f"step without grpodoctor {bare:.3f} s, attached {attached:.3f} s, {steps} steps each")
    print(f"overhead {middle:+.1%} (quartiles {low:+.1%} and {high:+.1%})")
    if bare < LONG_ENOUGH:
        print(f"not valid: a step takes less than {LONG_ENOUGH} s")


def main() -> None:
    """Run the benchmark, or one of its two trainings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", choices=["bare", "attached"])
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.folder, attached=arguments.worker == "attached")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model")
        save_prompts(folder / "prompts.jsonl")
        compare(folder, arguments.steps, arguments.threads)


if __name__ == "__main__":
    main()
