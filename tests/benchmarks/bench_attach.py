"""What `grpodoctor.attach` costs a training with TRL.

Two processes train the same model with TRL, one of them attached, and take turns of a few steps, so
that both see the same load of the machine. The order within a pair of turns alternates, so that a
drift of the load affects both alike. A turn has several steps, because the writer process measures
a step while the next one runs. The model is large enough for a step of 0.3 s.

The overhead is the median of the ratios of paired turns, with a bootstrap interval of 95 %: by the
clock, and by the processor time of the training process, which hardly depends on the load but lacks
the writer. The last figure is the time that the hook itself measured and recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from trainer_contenders import clocks, save_prompts

import grpodoctor

BATCH, GROUP, LENGTH, HIDDEN, LAYERS = 64, 8, 48, 256, 2
WARM_UP, TURN_STEPS = 2, 4
DRAWS = 10_000
"""Of the bootstrap."""
LONG_ENOUGH = 0.3
"""Seconds; the overhead of a shorter step says nothing about real trainings."""


def work(folder: Path, *, attached: bool) -> None:
    """Train as many steps as each line of standard input says, and print their seconds."""
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class TurnOnDemand(TrainerCallback):
        """Runs last at the end of each step, so the time contains all other callbacks."""

        left, started = 1, clocks()

        def on_step_end(self, *arguments: Any, **_: Any) -> None:
            self.left -= 1
            if not self.left:
                print(json.dumps((clocks() - self.started).tolist()), flush=True)
                self.left = int(sys.stdin.readline() or 0)
                arguments[-1].should_training_stop = not self.left  # the TrainerControl
                self.started = clocks()

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
    trainer.add_callback(TurnOnDemand())
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


def seconds_of(process: subprocess.Popen[str]) -> list[float]:
    """The duration of the turn that a process has just ended: by the clock, and processor time."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("["):  # others are messages of a library
            seconds: list[float] = json.loads(line)
            return seconds
    raise SystemExit("a training ended early; see its log")


def take_turn(process: subprocess.Popen[str]) -> list[float]:
    """Let a process train for a turn; returns its seconds per step."""
    assert process.stdin is not None
    print(TURN_STEPS, file=process.stdin, flush=True)
    return [seconds / TURN_STEPS for seconds in seconds_of(process)]


def take_turns(processes: dict[str, subprocess.Popen[str]], turns: int) -> np.ndarray:
    """Seconds per step, shape (turns, processes, clocks)."""
    for process in processes.values():
        seconds_of(process)  # the first step contains the imports
    taken = np.zeros((turns, len(processes), 2))
    for turn in range(-WARM_UP, turns):
        order = list(enumerate(processes.values()))
        for column, process in order if turn % 2 else reversed(order):
            seconds = take_turn(process)
            if turn >= 0:
                taken[turn, column] = seconds
    for process in processes.values():
        process.communicate(timeout=120)
    return taken


def median_with_interval(values: np.ndarray) -> str:
    """The median, and the interval of 95 % by the bootstrap, as percentages."""
    draws = np.random.default_rng(0).choice(values, (DRAWS, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return f"{np.median(values):+.2%} (95 % interval {low:+.2%} to {high:+.2%})"


def recorded_seconds(folder: Path) -> float:
    """What the hook recorded as its own time in the training's process, per step."""
    steps = grpodoctor.open_run(folder / "run-True" / "grpodoctor").steps()
    return statistics.median(steps["time/record"].to_pylist()[1:])


def compare(folder: Path, turns: int, threads: int) -> None:
    """Let the trainings take turns, and print the figures."""
    load = os.getloadavg()[0]
    processes = {name: start(folder, name, threads) for name in ("bare", "attached")}
    taken = take_turns(processes, turns)
    (bare, _), (attached, _) = np.median(taken, axis=0)
    print(f"step without grpodoctor {bare:.3f} s, attached {attached:.3f} s")
    print(f"{turns} pairs of turns of {TURN_STEPS} steps; load of the machine before: {load:.1f}")
    for column, clock in enumerate(("by the clock", "by processor time")):
        ratios = taken[:, 1, column] / taken[:, 0, column]
        print(f"overhead {clock}: {median_with_interval(ratios - 1)}")
    print(f"recorded by the hook itself: {recorded_seconds(folder) / bare:.2%} of a step")
    if bare < LONG_ENOUGH:
        print(f"not valid: a step takes less than {LONG_ENOUGH} s")


def main() -> None:
    """Run the benchmark, or one of its two trainings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40, help=f"pairs, {TURN_STEPS} steps each")
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
        compare(folder, arguments.turns, arguments.threads)


if __name__ == "__main__":
    main()
