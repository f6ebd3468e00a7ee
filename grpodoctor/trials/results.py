"""The result of one run of a trial, as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from grpodoctor.errors import RunError
from grpodoctor.rules.base import SEVERITIES, Severity
from grpodoctor.support.files.atomic_files import write_bytes
from grpodoctor.support.files.regular_files import read_regular

RESULT = "result.json"
_LARGEST_RESULT = 2**20
_LAST_EVALUATIONS = 3
"""Evaluations pooled into a run's outcome."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run of a trial: arm and seed."""

    trial: str
    arm: str
    seed: int
    steps: int
    fingerprint: str
    """Hash of its settings, its seed and its fault. Arms with the same hash share one run."""

    @property
    def folder(self) -> Path:
        """The run directory below the directory of all trials."""
        arm = self.arm.replace(" (", "-").replace(")", "").replace(" ", "-")
        return Path(self.trial, arm, f"seed-{self.seed}")

    @property
    def title(self) -> str:
        """The run in words."""
        return f"{self.trial}, {self.arm}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A held-out evaluation."""

    step: int
    value: float
    passes: int
    """Token passes of the run until then; see `meter`."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """The first time that a rule fired in a run."""

    code: str
    severity: Severity
    """The highest severity in the run."""
    step: int
    """The step at which it was reported."""
    onset: int
    """The step at which, according to the rule, it began."""

    @property
    def rank(self) -> int:
        """Position of the severity, from 0 for `info`."""
        return SEVERITIES.index(self.severity)

    @property
    def is_loud(self) -> bool:
        """Whether it was at least a warning."""
        return self.severity != "info"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run of a trial gave."""

    spec: RunSpec
    status: Literal["done", "failed"]
    """A run whose weights became NaN is done: it is data."""
    reason: str = ""
    """Why it failed."""
    evaluations: tuple[Evaluation, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    levels: dict[str, float] | None = None
    """Mean of each target metric over the last quarter of the run."""
    seconds: float = 0.0
    warm_start: str = ""
    """Kind of warm start, see `warm_start_kind`; empty for runs from before it was stored."""

    def outcome(self, passes: float | None = None) -> float | None:
        """The mean of the last evaluations, those within a budget of token passes if it is given.

        None if the run failed or was not evaluated within the budget.
        """
        chosen = [each for each in self.evaluations if passes is None or each.passes <= passes]
        if self.status != "done" or not chosen:
            return None
        last = chosen[-_LAST_EVALUATIONS:]
        return sum(each.value for each in last) / len(last)

    @property
    def passes(self) -> int:
        """Token passes of the whole run."""
        return self.evaluations[-1].passes if self.evaluations else 0

    def alarm(self, codes: Iterable[str], least: Severity = "warning") -> Alarm | None:
        """The first alarm among some codes; None if there was none of at least this severity."""
        wanted, rank = set(codes), SEVERITIES.index(least)
        alarms = [each for each in self.alarms if each.code in wanted and each.rank >= rank]
        return min(alarms, key=lambda each: each.step, default=None)

    def write(self, folder: Path) -> None:
        """Write the result into its run directory.

        Raises:
            OSError: if it cannot be written.
        """
        write_bytes(folder / RESULT, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Read a stored result.

        Raises:
            RunError: if the file is damaged.
            OSError: if there is none, or it cannot be read.
        """
        try:
            return cls.of(orjson.loads(read_regular(path, _LARGEST_RESULT)))
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(
                "the result of a trial is damaged",
                where=str(path),
                remedy="delete its folder; the run is then repeated",
            ) from error

    @classmethod
    def of(cls, row: dict[str, Any]) -> RunResult:
        """The result from its JSON.

        Raises:
            ValueError, TypeError, KeyError: if the JSON is another one.
        """
        return cls(
            spec=RunSpec(**row["spec"]),
            status=row["status"],
            reason=row["reason"],
            evaluations=tuple(Evaluation(**each) for each in row["evaluations"]),
            alarms=tuple(Alarm(**each) for each in row["alarms"]),
            levels=row["levels"],
            seconds=row["seconds"],
            warm_start=row.get("warm_start", ""),
        )


def failed(spec: RunSpec, reason: str) -> RunResult:
    """The result of a run that did not end."""
    return RunResult(spec, "failed", reason)


def of_arm(results: Sequence[RunResult], trial: str, arm: str) -> dict[int, RunResult]:
    """The results of an arm by seed, those that failed included."""
    return {
        each.spec.seed: each
        for each in results
        if each.spec.trial == trial and each.spec.arm == arm
    }
