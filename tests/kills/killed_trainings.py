"""Trainings that are killed and resumed until they end, and what must be true of them.

A training saves a checkpoint after each step and then notes the step as done. SIGKILL hits the
trainer, the writer process or both, in the first second of a process or while it trains. After each
kill the record holds every step that was done, but for the last one at most. The finished run has
the weights, the moments and the readings of a run without kills, and `check` finds no gap.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import MANIFEST, STEPS, WRITER_PROCESS_LOCK
from grpodoctor.support.files.locks import Lock
from grpodoctor.trainer.model.checkpoint import checkpoints
from tests.forked import Forked, forked

Victim = Literal["trainer", "writer", "both"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)

SETTINGS = (
    *("threads=1", "model.warm_start_steps=30", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "checkpoint.every=1"),
    *("checkpoint.keep=20", "overlong.kind=soft-punishment", "overlong.buffer=28"),
)

_PROGRAM = """
import os, sys
from pathlib import Path
from grpodoctor.runs.recording import recorder
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import checkpoints, saved_config
run, done, settings = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
resume = bool(checkpoints(run))
config = saved_config(run) if resume else load_config(assignments=settings)
file = os.open(done, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
Trainer(config, run, resume=resume).run(lambda each: os.write(file, f"{each.step}\\n".encode()))
"""

_WAIT = 120.0
"""Seconds for anything that happens within a few on an idle machine."""


@dataclass
class Outcome:
    """What many kills did."""

    kills: Counter[str] = field(default_factory=Counter)
    """By victim and by when it was hit."""
    lost: Counter[int] = field(default_factory=Counter)
    """Steps that were done and not recorded, per kill."""
    restarts: int = 0
    """Kills before the first step, after which the run began again."""
    runs: int = 0


class KilledTraining:
    """One training under fire.

    Args:
        home: a folder of its own.
        moments: the source of all random choices.
        steps: steps of the whole training.
    """

    def __init__(self, home: Path, moments: random.Random, steps: int) -> None:
        self.run, self._home, self._moments = home / "run", home, moments
        self._settings = (*SETTINGS, f"steps={steps}")
        self._attempts = 0

    def kill_once(self, victim: Victim, outcome: Outcome) -> bool:
        """Start or resume the training and kill it; whether it was still running then."""
        self._attempts += 1
        done = self._home / f"done-{self._attempts}"
        is_early = self._moments.random() < 0.5
        with forked(_PROGRAM, str(self.run), str(done), *self._settings, cwd=self._home) as process:
            if not is_early:
                wait_until(lambda: bool(steps_in(done)) or process.poll() is not None)
            time.sleep(self._moments.uniform(0, 1))
            if process.poll() is not None:
                assert process.returncode == 0, process.stderr
                return False
            finished = steps_in(done)
            if not self._kill(process, victim):
                return False
            if victim != "writer":
                finished = steps_in(done)
        self._wait_for_writer()
        when = "in the first second" if is_early else "while it trained"
        outcome.kills[f"{victim}, {when}"] += 1
        self._check_record(finished, outcome)
        return True

    def finish(self) -> None:
        """Resume the training a last time and let it end."""
        with forked(
            _PROGRAM, str(self.run), str(self._home / "end"), *self._settings, cwd=self._home
        ) as (process):
            process.communicate(600)
            assert process.returncode == 0, process.stderr

    def _kill(self, process: Forked, victim: Victim) -> bool:
        """Send SIGKILL; whether there still was a process to send it to."""
        if victim == "writer":
            wait_until(lambda: bool(self._writers()) or process.poll() is not None)
        pids = self._writers() if victim != "trainer" else []
        pids += [process.pid] if victim != "writer" else []
        killed = [pid for pid in pids if _kill(pid)]
        if victim == "writer":
            time.sleep(self._moments.uniform(0, 0.5))  # the training goes on without a record
            _kill(process.pid)
        wait_until(lambda: process.poll() is not None)
        return bool(killed)

    def _writers(self) -> list[int]:
        return [pid for pid in _processes() if _writes(pid, self.run)]

    def _wait_for_writer(self) -> None:
        wait_until(lambda: not self._writers())
        if (self.run / WRITER_PROCESS_LOCK).exists():
            Lock.take(self.run / WRITER_PROCESS_LOCK, _WAIT).release()

    def _check_record(self, finished: Sequence[int], outcome: Outcome) -> None:
        """The record has all steps that were done, but for one at most, and no damage but the end.

        A run that was killed before its first checkpoint cannot be resumed and begins again. So
        does one whose writer was killed before the first step was recorded: a resume would report
        the steps that are missing, and the comparison needs them.
        """
        recorded = recorded_steps(self.run)
        if not recorded:
            assert len(finished) <= (1 if checkpoints(self.run) else 0)
            outcome.restarts += 1
            shutil.rmtree(self.run, ignore_errors=True)
            return
        lost = set(finished) - recorded
        assert len(lost) <= 1, f"lost {sorted(lost)}"
        assert not lost or max(lost) == max(finished)
        outcome.lost[len(lost)] += 1


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for a condition, for a bounded time."""
    deadline = time.monotonic() + _WAIT
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def steps_in(path: Path) -> list[int]:
    """The steps that a file names as done, without a half-written last line."""
    text = path.read_text() if path.exists() else ""
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def recorded_steps(run: Path) -> set[int]:
    """The steps that a reader finds."""
    if not (run / MANIFEST).exists() or not (run / STEPS).exists():
        return set()
    return {record.step for record in read_run(run).steps}


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _writes(pid: int, run: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"grpodoctor.runs.recording.writer_process" in words and str(run).encode() in words


def weights_of(run: Path) -> dict[str, bytes]:
    """The files of the newest checkpoint that hold weights and moments."""
    return {path.name: path.read_bytes() for path in checkpoints(run)[-1].glob("*.safetensors")}


def readings_of(run: Path) -> dict[int, dict[str, object]]:
    """The latest readings of each step, without those of time."""
    return {
        record.step: {
            name: value for name, value in record.values.items() if not name.startswith("time/")
        }
        for record in read_run(run).steps
    }


def assert_equal_runs(whole: Path, run: Path, steps: int) -> None:
    """A killed and resumed run equals a run without kills, and `check` finds no gap in it."""
    weights = weights_of(run)
    assert weights
    assert weights == weights_of(whole), "the weights differ"
    assert readings_of(run) == readings_of(whole), "the readings differ"
    info = replay(run).report.run
    assert (info.first_step, info.last_step, info.missing_steps) == (1, steps, 0)


def kill_runs(
    folder: Path,
    kills: int,
    seed: int,
    report: Callable[[str], None],
    *,
    steps: int = 60,
    per_run: int = 10,
) -> Outcome:
    """Kill trainings until there were so many kills, and compare each with a whole one.

    Args:
        folder: for the runs.
        kills: how many.
        seed: of the moments.
        report: gets a line for each finished run.
        steps: steps of each training.
        per_run: kills of one training at most.
    """
    moments, outcome = random.Random(seed), Outcome()
    whole = KilledTraining(folder / "whole", moments, steps)
    (folder / "whole").mkdir()
    whole.finish()
    while sum(outcome.kills.values()) < kills:
        home = folder / f"killed-{outcome.runs}"
        home.mkdir()
        training = KilledTraining(home, moments, steps)
        is_running, before = True, sum(outcome.kills.values())
        while is_running and sum(outcome.kills.values()) < min(kills, before + per_run):
            victim = VICTIMS[sum(outcome.kills.values()) % len(VICTIMS)]
            is_running = training.kill_once(victim, outcome)
        training.finish()
        assert_equal_runs(whole.run, training.run, steps)
        outcome.runs += 1
        report(f"run {outcome.runs}: {sum(outcome.kills.values())} kills")
        shutil.rmtree(home)
    return outcome
