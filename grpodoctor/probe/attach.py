"""Leaving what a probe has found beside a training run, for `check` and `watch`."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import EngineError
from grpodoctor.monitor.attached_probes import AttachedProbe, attach
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.severity import SEVERITIES, figure, severity_of
from grpodoctor.vocabulary.values import Reading

_FAMILIES = ("mismatch/", "experts/")
_NLL_GAP = "mismatch/nll_gap"
_SURE = 1.25
"""Widths of its interval of 95 % that a figure must be off zero: the five standard errors that rule
MIS003 asks for."""
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


def _readings(comparison: Comparison) -> dict[str, Reading]:
    """What rules may take for every step of a run.

    The gap of likelihood and entropy is zero but for chance where all is well. A run shows its
    chance by its scatter from step to step, and a probe is one measurement: of that figure it
    leaves what is beyond chance.
    """
    known = {name: each for name, each in comparison.readings.items() if name.startswith(_FAMILIES)}
    interval = comparison.intervals.get(_NLL_GAP)
    is_sure = interval is not None and abs(interval.value) > _SURE * (interval.high - interval.low)
    return {name: each for name, each in known.items() if name != _NLL_GAP or is_sure}


def _probe(cell: Cell, created: str) -> AttachedProbe:
    return AttachedProbe(
        created=created,
        sampler=cell.sampler[:_MOST_TEXT],
        learner=cell.learner[:_MOST_TEXT],
        verdict=cell.verdict[:_MOST_TEXT],
        causes=tuple(each.cause for each in cell.causes),
        readings=_readings(cell.comparison) if cell.comparison else {},
    )
