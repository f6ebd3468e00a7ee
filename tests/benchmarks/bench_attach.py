"""What `grpodoctor.attach` costs a training with TRL.

One process trains a model. Turns of a few steps with the taps in place alternate with turns without
them, and the order alternates from pair to pair, so that a drift of the machine's load affects both
alike. The first step of a turn is not timed: the writer process measures the previous step during
it, which may belong to the other kind of turn. The model is large enough for a step of 0.3 s.

A second training samples from an engine outside the learner, so that the canary of the weight
delivery runs as well. The engine is a transformers model behind TRL's own code for vLLM.

The overhead is the median of the ratios of paired turns, with a bootstrap interval of 95 %: by the
clock, and by the processor time of the training process. The writer process is a process of its
own; its processor time is listed too. Both trainings end after a fixed time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
BATCH, GROUP, LENGTH, HIDDEN, LAYERS = 64, 8, 32, 128, 2
WARM_UP = 10
"""Steps; in the first eight, the canary checks each delivery."""
TURN_STEPS = 3
FEWEST_PAIRS = 2
GOAL = 0.02
DRAWS = 10_000
"""Of the bootstrap."""
LONG_ENOUGH = 0.3
"""Seconds; the overhead of a shorter step says nothing about real trainings."""


class Taps:
    """Puts everything that `attach` adds to a trainer in place, or takes it out again."""

    def __init__(self, trainer: Any) -> None:
        import grpodoctor

        before, callbacks = dict(vars(trainer)), list(trainer.callback_handler.callbacks)
        self.attachment = grpodoctor.attach(trainer)
        self._trainer = trainer
        self._methods = {
            name: each for name, each in vars(trainer).items() if before.get(name) is not each
        }
        self._callbacks = {True: list(trainer.callback_handler.callbacks), False: callbacks}
        if not self._methods or not self.attachment.active:
            raise SystemExit(f"nothing is attached: {self.attachment.problem}")

    def switch(self, *, attached: bool, last: Any) -> None:
        """Change between two steps; `last` is the callback that runs after all others."""
        for name, method in self._methods.items():
            vars(self._trainer).pop(name, None)
            if attached:
                vars(self._trainer)[name] = method
        self._trainer.callback_handler.callbacks = [*self._callbacks[attached], last]

    def checks(self) -> tuple[int, float]:
        """The number of the canary's checks, and the seconds they took together."""
        (events,) = (each for each in self._callbacks[True] if each not in self._callbacks[False])
        delivery = events._listener._delivery
        return delivery._count, delivery._seconds


@dataclass
class Turns:
    """Seconds per step of the turns: by the clock, and processor time."""

    seconds: dict[bool, list[np.ndarray]] = field(default_factory=lambda: {False: [], True: []})
    writer: list[float] = field(default_factory=list)
    """Processor time of child processes in the attached turns, per step."""

    def overhead(self) -> np.ndarray:
        """Relative cost of each pair, shape (pairs, clocks)."""
        pairs = min(map(len, self.seconds.values()))
        bare, attached = (np.array(self.seconds[kind][:pairs]) for kind in (False, True))
        ratios: np.ndarray = attached / bare - 1
        return ratios


def clocks() -> np.ndarray:
    """By the clock, and processor time of this process with all its threads."""
    return np.array([time.perf_counter(), time.process_time()])


def processor_time_of_children() -> float:
    """Seconds that the processes started by this one have used; 0 where Linux's /proc is absent."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    if not listed.exists():
        return 0.0
    total = 0
    for process in listed.read_text(encoding="ascii").split():
        entries = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        total += sum(map(int, entries.split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def take_turns(taps: Taps, last: Any, seconds: float, turns: Turns) -> Iterator[None]:
    """Each yield is a step of the training."""
    deadline = time.monotonic() + seconds
    taps.switch(attached=True, last=last)
    for _ in range(WARM_UP):
        yield
    pair = 0
    while pair < FEWEST_PAIRS or time.monotonic() < deadline:
        for attached in (True, False) if pair % 2 else (False, True):
            taps.switch(attached=attached, last=last)
            yield
            began, children = clocks(), processor_time_of_children()
            for _ in range(TURN_STEPS):
                yield
            turns.seconds[attached].append((clocks() - began) / TURN_STEPS)
            if attached:
                turns.writer.append((processor_time_of_children() - children) / TURN_STEPS)
        pair += 1


def train(folder: Path, seconds: float, *, with_engine: bool) -> tuple[Turns, Taps]:
    """Train for about so many seconds."""
    from transformers import TrainerCallback

    trainer = make_trainer(folder, "engine" if with_engine else "plain")
    if with_engine:
        from tests.hooks.trl.engine_stub import EngineStub

        EngineStub(trainer)
    taps, turns = Taps(trainer), Turns()

    class AtStepEnd(TrainerCallback):
        """Runs last at the end of each step, so the time contains all other callbacks."""

        def on_step_end(self, *arguments: Any, **_: Any) -> None:
            done = next(steps, self) is self
            arguments[-1].should_training_stop = done  # the TrainerControl

    last = AtStepEnd()
    trainer.add_callback(last)
    steps = take_turns(taps, last, seconds, turns)
    trainer.train()
    taps.attachment.close()
    return turns, taps


def make_trainer(folder: Path, name: str) -> Any:
    """A trainer whose steps take long enough and generate equally many tokens."""
    from datasets import load_dataset
    from trl import GRPOConfig, GRPOTrainer

    return GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=share_of_digits,
        args=GRPOConfig(
            str(folder / name),
            max_steps=1_000_000,
            per_device_train_batch_size=BATCH,
            num_generations=GROUP,
            max_completion_length=LENGTH,
            learning_rate=1e-6,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            generation_kwargs={"min_new_tokens": LENGTH, "use_cache": True},
            dataloader_pin_memory=False,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files=str(folder / "prompts.jsonl"), split="train"),
    )


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


def interval(values: np.ndarray) -> tuple[float, float]:
    """The interval of 95 % of the median, by the bootstrap."""
    draws = np.random.default_rng(0).choice(values, (DRAWS, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(low), float(high)


def show(title: str, turns: Turns, taps: Taps) -> None:
    """Print the figures of a training."""
    import grpodoctor
    from grpodoctor.hooks.trl.delivery_check import _ALWAYS, _MOST_TIME

    bare, attached = (statistics.median(each[0] for each in turns.seconds[kind])
                      for kind in (False, True))  # fmt: skip
    overhead = turns.overhead()
    print(f"\n{title}")
    print(f"  step without grpodoctor {bare:.3f} s, with it {attached:.3f} s; "
          f"{len(overhead)} pairs of {TURN_STEPS} steps")  # fmt: skip
    for column, clock in enumerate(("by the clock", "by processor time")):
        low, high = interval(overhead[:, column])
        middle = float(np.median(overhead[:, column]))
        verdict = "reached" if high < GOAL else "missed" if low > GOAL else "not shown"
        print(f"  overhead {clock}: {middle:+.2%} (95 % interval {low:+.2%} to {high:+.2%}); "
              f"goal below {GOAL:.0%}: {verdict}")  # fmt: skip
    run = grpodoctor.open_run(taps.attachment.run_dir)
    own = [each for each in run.steps()["time/record"].to_pylist()[1:] if each is not None]
    print(f"  calls of the hook in the training's thread: {statistics.median(own) / bare:.2%} of a "
          f"step; processor time of the writer process: "
          f"{statistics.mean(turns.writer):.3f} s a step")  # fmt: skip
    count, seconds = taps.checks()
    if count:
        print(f"  a check of the weight delivery takes {seconds / count / bare:.0%} of a step; "
              f"{count} checks in this run: the first {_ALWAYS} syncs are checked, later ones only "
              f"while all checks together take less than {_MOST_TIME:.1%} of the time")  # fmt: skip
    if bare < LONG_ENOUGH:
        print(f"  not valid: a step takes less than {LONG_ENOUGH} s")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=130, help="of the first training")
    parser.add_argument("--engine-seconds", type=float, default=50, help="of the second training")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(ROOT))
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}; threads: {arguments.threads}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HF_DATASETS_CACHE"] = str(folder / "datasets")
        import torch
        from trainer_contenders import save_prompts

        torch.set_num_threads(arguments.threads)
        save_model(folder / "model")
        save_prompts(folder / "prompts.jsonl")
        show("sampling by the learner", *train(folder, arguments.seconds, with_engine=False))
        show(
            "sampling by an engine, with the canary of the weight delivery",
            *train(folder, arguments.engine_seconds, with_engine=True),
        )


if __name__ == "__main__":
    main()
