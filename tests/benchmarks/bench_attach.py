"""What `grpodoctor.attach` costs a training with TRL.

One process trains a model. Turns of a few steps with the taps in place alternate with turns without
them, and the order alternates from pair to pair, so that a drift of the machine's load affects both
alike. The first step of a turn is not timed: the writer process measures the previous step during
it, which may belong to the other kind of turn. The model is large enough for a step of 0.3 s.

A second training samples from an engine outside the learner, so that the canary of the weight
delivery runs as well. The engine is a transformers model behind TRL's own code for vLLM.

The overhead is the median of the ratios of paired turns, with a bootstrap interval of 95 %: by the
clock, and by the processor time of the training process. The turns without grpodoctor are compared
with each other in the same way: that line is the noise, and its interval must contain 0. Processor
time is also listed by place: the hook in the training's thread, the recorder's thread, and the
writer process, which is a process of its own. Both trainings end after a fixed time.

The C library's allocator gives freed memory back to the system and takes it again with thousands of
page faults, by chance many more in one step than in the next. The benchmark therefore lets the
allocator keep freed memory. `--default-allocator` measures without this, and the page faults of
both kinds of turns are printed in either case.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import sys
import tempfile
import threading
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
FEWEST_FOR_VERDICT = 20
"""Pairs; a bootstrap of fewer values gives too short intervals."""
GOAL = 0.02
DRAWS = 10_000
"""Of the bootstrap."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt."""
LONG_ENOUGH = 0.3
"""Seconds; the overhead of a shorter step says nothing about real trainings."""


class Taps:
    """Puts the taps and callbacks of `attach` in place, or takes them out again."""

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
class Turn:
    """What a few steps cost, per step."""

    attached: bool
    clocks: np.ndarray
    """Seconds by the clock, and of processor time of this process with all its threads."""
    page_faults: float
    recorder: float
    """Seconds of processor time of the recorder's thread."""
    writer: float
    """Seconds of processor time of child processes."""


@dataclass
class Turns:
    """The turns of a training, in pairs: bare, attached, attached, bare, bare, attached, ..."""

    turns: list[Turn] = field(default_factory=list)

    def of(self, *, attached: bool) -> list[Turn]:
        """The turns of a kind."""
        return [turn for turn in self.turns if turn.attached == attached]

    def overhead(self) -> np.ndarray:
        """Relative cost of each pair, shape (pairs, clocks)."""
        pairs = zip(self.of(attached=False), self.of(attached=True), strict=True)
        return np.array([attached.clocks / bare.clocks - 1 for bare, attached in pairs])

    def noise(self) -> np.ndarray:
        """Relative difference of two bare turns in a row, shape (pairs, clocks)."""
        bare = self.of(attached=False)[1:]
        pairs = zip(bare[::2], bare[1::2], strict=False)
        return np.array([second.clocks / first.clocks - 1 for first, second in pairs])


def counters() -> np.ndarray:
    """What has been used so far: the entries of `Turn`, in their order."""
    return np.array(
        [
            time.perf_counter(),
            time.process_time(),
            resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            processor_time_of_recorder(),
            processor_time_of_children(),
        ]
    )


def processor_time_of_recorder() -> float:
    """Seconds that the recorder's thread has used; 0 where Linux's /proc is absent."""
    names = {thread.name: thread.native_id for thread in threading.enumerate()}
    times = Path(f"/proc/self/task/{names.get('grpodoctor-recorder')}/schedstat")
    return int(times.read_text(encoding="ascii").split()[0]) / 1e9 if times.exists() else 0.0


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
            before = counters()
            for _ in range(TURN_STEPS):
                yield
            by_step = (counters() - before) / TURN_STEPS
            turns.turns.append(Turn(attached, by_step[:2], *by_step[2:].tolist()))
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


def verdict_on(overhead: np.ndarray, noise: np.ndarray) -> str:
    """Whether the goal is reached; unknown if bare turns differ from bare turns."""
    if len(overhead) < FEWEST_FOR_VERDICT:
        return "not shown, too few pairs"
    low, high = interval(noise)
    if not low <= 0 <= high:
        return "not shown, bare turns differ from each other"
    low, high = interval(overhead)
    return "reached" if high < GOAL else "missed" if low > GOAL else "not shown"


def described(values: np.ndarray) -> str:
    """The median with its interval."""
    low, high = interval(values)
    return f"{float(np.median(values)):+.2%} (95 % interval {low:+.2%} to {high:+.2%})"


def keep_freed_memory() -> None:
    """Have glibc's allocator keep freed memory instead of returning it to the system."""
    allocator = getattr(ctypes.CDLL(None), "mallopt", None)
    if allocator is not None:
        for option, value in ((_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, (1 << 31) - 1)):
            allocator(option, value)


def show(title: str, turns: Turns, taps: Taps) -> None:
    """Print the figures of a training."""
    import grpodoctor
    from grpodoctor.hooks.trl.delivery_check import _ALWAYS, _MOST_TIME

    bare, attached = (statistics.median(turn.clocks[0] for turn in turns.of(attached=kind))
                      for kind in (False, True))  # fmt: skip
    overhead, noise = turns.overhead(), turns.noise()
    print(f"\n{title}")
    print(f"  step without grpodoctor {bare:.3f} s, with it {attached:.3f} s; "
          f"{len(overhead)} pairs of {TURN_STEPS} steps")  # fmt: skip
    for column, clock in enumerate(("by the clock", "by processor time")):
        verdict = verdict_on(overhead[:, column], noise[:, column] if len(noise) else noise)
        print(f"  overhead {clock}: {described(overhead[:, column])}; "
              f"goal below {GOAL:.0%}: {verdict}")  # fmt: skip
        if len(noise):
            print(f"  noise, bare turns against bare turns {clock}: "
                  f"{described(noise[:, column])}")  # fmt: skip
    run = grpodoctor.open_run(taps.attachment.run_dir)
    own = [each for each in run.steps()["time/record"].to_pylist()[1:] if each is not None]
    recorder, writer = (statistics.mean(getattr(turn, name) for turn in turns.of(attached=True))
                        for name in ("recorder", "writer"))  # fmt: skip
    faults = [statistics.mean(turn.page_faults for turn in turns.of(attached=kind))
              for kind in (False, True)]  # fmt: skip
    print(f"  calls of the hook in the training's thread: {statistics.median(own) / bare:.2%} of a "
          f"step; processor time of the recorder's thread {recorder * 1e3:.1f} ms, of the writer "
          f"process {writer * 1e3:.1f} ms a step")  # fmt: skip
    print(f"  page faults of a step: {faults[0]:,.0f} without, {faults[1]:,.0f} with grpodoctor")
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
    parser.add_argument("--default-allocator", action="store_true", help="keep its settings")
    arguments = parser.parse_args()
    if not arguments.default_allocator:
        keep_freed_memory()
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
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
