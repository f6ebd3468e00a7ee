"""Twins: the same run twice from the same seed, one with and one without treatment.

Both are real training processes. They share configuration, seed and warm start, and differ only in
whether their findings are treated.
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
from grpodoctor.runs.records import STEPS
from grpodoctor.vocabulary.values import Rate, merge

_LAST_EVALUATIONS = 3
"""Evaluations pooled into a run's result: a single one has a standard error of about .03."""

_NOISE = 2.0
"""Standard errors beyond which two results count as different."""


@dataclass(frozen=True, slots=True)
class TwinResult:
    """The result of one of the two runs."""

    accuracy: Rate
    """Held-out accuracy, pooled over the last evaluations."""
    entropy: float | None
    """Entropy at the last step, in nats."""
    steps: int


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """The effect of the treatment."""

    treated: TwinResult
    untreated: TwinResult

    @property
    def gain(self) -> float:
        """Held-out accuracy with treatment minus without."""
        return self.treated.accuracy.value - self.untreated.accuracy.value

    @property
    def error(self) -> float:
        """Binomial standard error of the gain."""
        return math.sqrt(_variance(self.treated.accuracy) + _variance(self.untreated.accuracy))

    def sentence(self) -> str:
        """Whether the treatment helped, made no difference or did harm, with the figures."""
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
class TrainingProcess:
    """One training process and its run directory."""

    run_dir: Path
    log: Path
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise RunError with the last line of the process's output if it has failed."""
        if self.process.poll() not in (None, 0):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            raise RunError(
                f"the training process ended with exit code {self.process.returncode}: "
                f"{lines[-1] if lines else 'it printed nothing'}",
                where=str(self.log),
            )

    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self.process.poll() is None

    def steps_done(self) -> int:
        """The number of recorded steps."""
        try:
            return (self.run_dir / STEPS).read_bytes().count(b"\n")
        except OSError:
            return 0

    def end(self) -> None:
        """Terminate the process if it is running, and wait until it has ended."""
        if self.is_running():
            self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=20)


def launch(run_dir: Path, *, steps: int, seed: int, assignments: Sequence[str]) -> TrainingProcess:
    """Start a training run in its own process.

    Args:
        run_dir: the run directory. The process's output goes to `<name>.log` next to it.
        steps: training steps.
        seed: seed of the run.
        assignments: `section.key=value` settings.

    Raises:
        OSError: if the log cannot be written.
    """
    command = [sys.executable, "-m", "grpodoctor", "train", "--run-dir", str(run_dir)]
    command += ["--steps", str(steps), "--seed", str(seed)]
    for assignment in assignments:
        command += ["--set", assignment]
    log = run_dir.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # our own program and arguments
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    return TrainingProcess(run_dir, log, process)


def result_of(run_dir: Path) -> TwinResult:
    """Read the result of a run.

    Raises:
        RunError: if there is no run or it was never evaluated.
    """
    evaluations: list[Rate] = []
    entropy, last_step = None, 0
    for record in read_run(run_dir).steps:
        last_step = record.step
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
    return TwinResult(pooled, entropy, last_step)
