"""Attach a probe's result to a training run, for `check` and `watch`."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import EngineError
from grpodoctor.monitor.attached_probes import attach
from grpodoctor.monitor.probe_file import AttachedProbe
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.severity import SEVERITIES, figure, severity_of
from grpodoctor.vocabulary.values import Reading

_FAMILIES = ("mismatch/", "experts/")
_NLL_GAP = "mismatch/nll_gap"
_SURE = 1.25
"""Smallest distance of a figure from zero in widths of its 95 % interval: the five standard errors
that rule MIS003 requires."""
_MOST_TEXT = 1900


def attach_result(result: ProbeResult, run: Path) -> tuple[Path, Cell]:
    """Attach the worst pair of a probe to a run; returns the file and the pair.

    One pair of a grid represents the run's setup. It is unknown which one, so the most harmful pair
    is used.

    Raises:
        EngineError: if no pair was measured.
        RunError: if the run does not exist or is not writable.
    """
    cells = [cell for cell in result.cells if cell.comparison is not None]
    if not cells:
        raise EngineError("no measured pair to attach", where=str(run))
    cell = max(cells, key=_harm)
    return attach(run, _probe(cell, result.created)), cell


def _harm(cell: Cell) -> tuple[int, float]:
    gap = figure(cell.comparison, "mismatch/prob_diff_mean") if cell.comparison else 0.0
    return SEVERITIES.index(severity_of(cell)), gap


def _readings(comparison: Comparison) -> dict[str, Reading]:
    """The readings that rules may use for every step of a run.

    In a healthy run, the gap between likelihood and entropy is zero up to chance. A run shows the
    size of chance by its scatter between steps, but a probe is a single measurement. This figure is
    therefore included only if it exceeds chance.
    """
    known = {
        name: reading for name, reading in comparison.readings.items() if name.startswith(_FAMILIES)
    }
    interval = comparison.intervals.get(_NLL_GAP)
    is_sure = interval is not None and abs(interval.value) > _SURE * (interval.high - interval.low)
    return {name: reading for name, reading in known.items() if name != _NLL_GAP or is_sure}


def _probe(cell: Cell, created: str) -> AttachedProbe:
    return AttachedProbe(
        created=created,
        sampler=cell.sampler[:_MOST_TEXT],
        learner=cell.learner[:_MOST_TEXT],
        verdict=cell.verdict[:_MOST_TEXT],
        causes=tuple(named.cause for named in cell.causes),
        readings=_readings(cell.comparison) if cell.comparison else {},
    )
