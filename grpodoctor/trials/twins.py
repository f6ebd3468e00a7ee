"""Twins: the same run twice from the same seed, one of them treated, to see what a treatment does.

Both are real training processes. They share configuration, seed and warm start, and differ only in
whether somebody answers their findings.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.vocabulary.values import Rate, merge

_LAST_EVALUATIONS = 3
"""Evaluations pooled into a twin's outcome: one alone has a standard error of some .03."""

_NOISE = 2.0
"""Standard errors beyond which two outcomes count as different."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    accuracy: Rate
    """Held-out accuracy, pooled over the last evaluations."""
    entropy: float | None
    """Entropy at the last step, in nats."""
    steps: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the treatment did."""

    treated: Outcome
    untreated: Outcome

    @property
    def gain(self) -> float:
        """Held-out accuracy with treatment minus without."""
        return self.treated.accuracy.value - self.untreated.accuracy.value

    @property
    def error(self) -> float:
        """Binomial standard error of the gain."""
        return math.sqrt(_variance(self.treated.accuracy) + _variance(self.untreated.accuracy))

    def sentence(self) -> str:
        """What to tell the viewer, also when it did not help."""
        figures = (
            f"held-out accuracy {self.treated.accuracy.value:.2f} with treatment, "
            f"{self.untreated.accuracy.value:.2f} without (standard error {self.error:.2f})"
        )
        if self.gain > _NOISE * self.error:
            return f"The treatment helped: {figures}."
        if self.gain < -_NOISE * self.error:
            return f"The treatment did harm on this seed: {figures}."
        return f"The treatment made no measurable difference on this seed: {figures}."


def _variance(rate: Rate) -> float:
    return rate.value * (1 - rate.value) / rate.count


@dataclass(frozen=True, slots=True)
class Arm:
    """One training process and its directory."""

    run_dir: Path
    log: Path
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise RunError with the process's last words if it has failed."""
        if self.process.poll() not in (None, 0):
            words = self.log.read_text(errors="replace").strip().splitlines()
            raise RunError(
                f"the training process ended with {self.process.returncode}: "
                f"{words[-1] if words else 'it said nothing'}",
                where=str(self.log),
            )

    def end(self) -> None:
        """Ask the process to end if it has not, and wait for it."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=20)


def launch(run_dir: Path, *, steps: int, seed: int, assignments: Sequence[str]) -> Arm:
    """Start a training run in a process of its own.

    Args:
        run_dir: its run directory; the process's output goes beside it, to `<name>.log`.
        steps: training steps.
        seed: seed of the run.
        assignments: `section.key=value` settings.
    """
    command = [sys.executable, "-m", "grpodoctor", "train", "--run-dir", str(run_dir)]
    command += ["--steps", str(steps), "--seed", str(seed)]
    for assignment in assignments:
        command += ["--set", assignment]
    log = run_dir.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # our own program, our own arguments
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    return Arm(run_dir, log, process)


def outcome_of(run_dir: Path) -> Outcome:
    """Read how a run ended.

    Raises:
        RunError: if there is no run or it was never evaluated.
    """
    evaluations: list[Rate] = []
    entropy, last = None, 0
    for record in read_run(run_dir).steps:
        last = record.step
        reading = record.values.get("accuracy/heldout")
        if isinstance(reading, Rate):
            evaluations.append(reading)
        if "entropy/mean" in record.values:
            entropy = getattr(record.values["entropy/mean"], "value", None)
    if not evaluations:
        raise RunError("the run was never evaluated", where=str(run_dir))
    pooled = evaluations[-1]
    for rate in evaluations[-_LAST_EVALUATIONS:-1]:
        pooled = merge(pooled, rate)  # type: ignore[assignment]  # rates merge into a rate
    return Outcome(pooled, entropy, last)
