"""Leaving what a probe has found beside a training run, for `check` and `watch`."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import EngineError
from grpodoctor.probe.results import Cell, ProbeResult
from grpodoctor.probe.severity import SEVERITIES, figure, severity_of
from grpodoctor.runs.attached import AttachedProbe, attach

_FAMILIES = ("mismatch/", "experts/")
_MOST_TEXT = 1900


def attach_result(result: ProbeResult, run: Path) -> tuple[Path, Cell]:
    """Attach the worst pair of a probe to a run; returns the file and the pair.

    Of a grid it is one pair that stands for the run's setup. Which one that is nobody has said, so
    it is the one that would do the most harm.

    Raises:
        EngineError: if no pair was measured.
        RunError: if there is no run, or it cannot be written to.
    """
    cells = [cell for cell in result.cells if cell.comparison is not None]
    if not cells:
        raise EngineError("no pair was measured that could be attached", where=str(run))
    cell = max(cells, key=_harm)
    return attach(run, _probe(cell, result.created)), cell


def _harm(cell: Cell) -> tuple[int, float]:
    gap = figure(cell.comparison, "mismatch/prob_diff_mean") if cell.comparison else 0.0
    return SEVERITIES.index(severity_of(cell)), gap


def _probe(cell: Cell, created: str) -> AttachedProbe:
    readings = cell.comparison.readings if cell.comparison else {}
    return AttachedProbe(
        created=created,
        sampler=cell.sampler[:_MOST_TEXT],
        learner=cell.learner[:_MOST_TEXT],
        verdict=cell.verdict[:_MOST_TEXT],
        causes=tuple(each.cause for each in cell.causes),
        readings={name: value for name, value in readings.items() if name.startswith(_FAMILIES)},
    )
