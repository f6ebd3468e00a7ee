"""Which checkpoints a run saved, as far as its log, its journal or its config shows them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.knobs import Setting

_SAVING_TIME = "time/checkpoint"
"""Logged at the steps that save a checkpoint."""

_STRATEGY, _BY_STEPS = "save_strategy", "steps"
"""The setting of transformers that may replace the interval by another occasion."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoints:
    """The steps of a run that have a checkpoint."""

    steps: tuple[int, ...] = ()
    """Steps that saved one, in their order, as the log or the journal states."""
    interval: int = 0
    """Steps between two checkpoints, from the config; 0 if unknown."""
    is_complete: bool = True
    """Whether there is no checkpoint before the first of `steps`."""

    def before(self, step: int) -> int | None:
        """The last checkpoint that precedes the weights which a step shows.

        Its readings show the weights after the step before it, so a checkpoint of that is too late.

        Returns:
            Its step; 0 if there is none, None if it is unknown.
        """
        shown = step - 1
        place = bisect_left(self.steps, shown)
        if place:
            return self.steps[place - 1]
        if self.steps:
            return 0 if self.is_complete else None
        return (shown - 1) // self.interval * self.interval if self.interval else None

    def first_before(self, step: int) -> int:
        """The first checkpoint of the run, if `before` may name it; 0 if not, or if unknown."""
        first = self.steps[0] if self.steps else self.interval
        return first if first < step - 1 else 0

    def remark(self, step: int, onset: int) -> str:
        """What follows `before step N` in an instruction: the checkpoint to take.

        Empty if it is unknown.

        Args:
            step: the step of the first alarm.
            onset: the onset of the problem.
        """
        last, first = self.before(step), self.first_before(onset)
        if last is None:
            return ""
        if last:
            return f" (step {last})"
        if first:
            return f" (none was saved: test the one of step {first}, and take it if it is good)"
        return " (none was saved: restart from the initial model)"


def saved_checkpoints(
    chart: Chart, first_step: int | None, noted: Collection[int] = ()
) -> SavedCheckpoints:
    """The checkpoints of a run.

    Args:
        chart: the run's chart.
        first_step: the first step that was read; a log may begin in the middle of a run.
        noted: steps whose checkpoint the journal notes.
    """
    saving = chart.series(_SAVING_TIME)
    return SavedCheckpoints(
        steps=tuple(sorted({*noted, *(step for step, _ in saving)})),
        interval=_interval(chart.manifest.framework, chart.manifest.config),
        is_complete=len(saving) < WINDOW and first_step in (0, 1),
    )


def _interval(name: str, config: Mapping[str, Setting]) -> int:
    """The steps between two checkpoints; 0 if the config does not state them."""
    framework = find_framework(name, configurable_frameworks())
    key = framework.knobs.checkpoint_interval if framework else ""
    interval = config.get(key, 0)
    if isinstance(interval, bool) or not isinstance(interval, int | float):
        return 0
    is_whole = interval >= 1 and interval == int(interval)  # a share of the run is possible, too
    return int(interval) if is_whole and config.get(_STRATEGY, _BY_STEPS) == _BY_STEPS else 0
