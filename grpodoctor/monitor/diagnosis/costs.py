"""What a fault has cost since its onset: steps, rollouts without gradient, and time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpodoctor.runs.records import StepRecord
from grpodoctor.support.numbers import count_of
from grpodoctor.vocabulary.values import scalar

MOST_POINTS = 2048
"""Cumulative sums kept; beyond it every second one is dropped, so an onset is dated to 0.1 %."""

LONGEST_STEP = 1e6
"""Seconds from which a step's time is an error of the log, or a run that was paused."""

_GPUS_PER_NODE = ("n_gpus_per_node", "num_gpus_per_node", "gpus_per_node")
_NODES = ("nnodes", "n_nodes", "num_nodes")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run spent since the onset of a fault."""

    steps: int
    """Steps from the onset to the end of the fault, or to the last step; both included."""
    rollouts_without_gradient: float | None = None
    """Mean share of groups whose rewards are equal; None if it is not logged."""
    hours: float | None = None
    """Hours of training; None if the time is not logged."""
    gpus: int | None = None
    """GPUs of the run; None if its config does not tell."""

    @property
    def gpu_hours(self) -> float | None:
        """Hours times GPUs; None if either is unknown."""
        return None if self.hours is None or self.gpus is None else self.hours * self.gpus

    def to_json(self) -> dict[str, Any]:
        """The `cost` object of a cause."""
        return {
            "steps": self.steps,
            "rollouts_without_gradient": self.rollouts_without_gradient,
            "hours": self.hours,
            "gpu_hours": self.gpu_hours,
        }


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over all steps before `step`."""

    step: int
    without_gradient: float = 0.0
    groups: int = 0
    seconds: float = 0.0
    timed: int = 0


class CostTracker:
    """Cumulative costs of a run in constant memory."""

    def __init__(self) -> None:
        self._sums: list[_Sums] = []
        self._total = _Sums(step=-1)
        self._stride = 1
        self._skipped = 0
        self._time = 0.0

    def observe(self, record: StepRecord, inferred: float | None = None) -> None:
        """Add a step; a step at or before the latest one replaces what followed it.

        Args:
            record: the step.
            inferred: a lower bound of the share of groups without gradient, if it is not logged.
        """
        if record.step < self._total.step:
            self._rewind(record.step)
        self._skipped += 1
        if self._skipped >= self._stride or not self._sums:
            self._skipped = 0
            self._sums.append(_at(record.step, self._total))
        if len(self._sums) >= MOST_POINTS:
            self._sums = self._sums[::2]
            self._stride *= 2
        self._add(record, inferred)

    def _add(self, record: StepRecord, inferred: float | None) -> None:
        logged, seconds = _share_without_gradient(record), self._seconds(record)
        share = inferred if logged is None else logged
        total = self._total
        self._total = _Sums(
            step=record.step + 1,
            without_gradient=total.without_gradient + (share or 0.0),
            groups=total.groups + (share is not None),
            seconds=total.seconds + (seconds or 0.0),
            timed=total.timed + (seconds is not None),
        )

    def _seconds(self, record: StepRecord) -> float | None:
        logged = scalar(record.values["time/step"]) if "time/step" in record.values else None
        before, self._time = self._time, record.time
        if logged is not None:
            return logged if 0 <= logged < LONGEST_STEP else None
        passed = record.time - before
        return passed if before > 0 and 0 < passed < LONGEST_STEP else None

    def _rewind(self, step: int) -> None:
        kept = bisect_left(self._sums, step, key=lambda sums: sums.step)
        self._total = self._sums[kept] if kept < len(self._sums) else self._total
        self._sums, self._time = self._sums[:kept], 0.0

    def cost(self, onset: int, last: int | None = None, *, gpus: int | None = None) -> Cost:
        """The cost from an onset to a last step, or to the end of the run."""
        begin = self._before(onset)
        end = self._total if last is None else self._before(last + 1)
        groups, timed = end.groups - begin.groups, end.timed - begin.timed
        share = (end.without_gradient - begin.without_gradient) / groups if groups > 0 else None
        hours = (end.seconds - begin.seconds) / 3600 if timed > 0 else None
        return Cost(max(0, end.step - max(onset, begin.step)), share, hours, gpus)

    def _before(self, step: int) -> _Sums:
        at = bisect_left(self._sums, step, key=lambda sums: sums.step)
        return self._sums[at] if at < len(self._sums) else self._total


def _at(step: int, sums: _Sums) -> _Sums:
    return _Sums(step, sums.without_gradient, sums.groups, sums.seconds, sums.timed)


def _share_without_gradient(record: StepRecord) -> float | None:
    zero_variance = record.values.get("groups/zero_variance_rate")
    if zero_variance is not None:
        share = scalar(zero_variance)
    else:
        effective = record.values.get("groups/effective_rate")
        value = None if effective is None else scalar(effective)
        share = None if value is None else 1 - value
    return share if share is not None and 0 <= share <= 1 else None


def gpus_of(settings: Mapping[str, Any]) -> int | None:
    """The number of GPUs in a run's settings; None if they give none, or several numbers.

    verl, AReaL, NeMo RL and SkyRL give GPUs per node and nodes in one section.

    Args:
        settings: the settings, with dotted keys.
    """
    counts = {
        _gpus_in(settings, section)
        for key in settings
        for section, _, name in (key.rpartition("."),)
        if name in _GPUS_PER_NODE
    }
    return counts.pop() if len(counts) == 1 else None


def _gpus_in(settings: Mapping[str, Any], section: str) -> int | None:
    def setting(names: tuple[str, ...]) -> Any:
        keys = (f"{section}.{name}" if section else name for name in names)
        return next((settings[key] for key in keys if key in settings), None)

    per_node, nodes = setting(_GPUS_PER_NODE), setting(_NODES)
    nodes = 1 if nodes is None else nodes
    if not (isinstance(per_node, int) and isinstance(nodes, int)) or per_node < 1 or nodes < 1:
        return None
    return per_node * nodes


_SHORTEST = 0.1
"""GPU-hours from which they are named."""
_MOSTLY = 0.5
"""Share of rollouts without gradient from which it is part of the cost: healthy runs lose up to
a third of their groups."""


def cost_in_words(cost: Cost) -> str:
    """The steps and the time that a problem took since its onset, as a list."""
    steps = count_of(cost.steps, "step")
    return ", ".join(filter(None, (steps, _time(cost))))


def with_waste(fault: str, cost: Cost) -> str:
    """A fault and the share of rollouts without gradient since its onset, if they are many.

    The share follows the fault, since it may be an effect of it. A fault of the groups states it.
    """
    share = cost.rollouts_without_gradient
    if share is None or share < _MOSTLY or "group" in fault:
        return fault
    return f"{fault}, with {share:.0%} of rollouts in zero-variance groups"


def _time(cost: Cost) -> str:
    """The time that it took; empty if it is unknown or below a minute."""
    if cost.gpu_hours is not None and cost.gpu_hours >= _SHORTEST:
        return f"{_number(cost.gpu_hours)} GPU-hours"
    if cost.hours is None or cost.hours * 60 < 1:
        return ""
    if cost.hours < 1:
        minutes = round(cost.hours * 60)
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{_number(cost.hours)} hours"


def _number(hours: float) -> str:
    return f"{hours:.1f}" if hours < 10 else f"{hours:.0f}"
