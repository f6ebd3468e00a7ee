"""What each difference costs, from a pair of engines that is bitwise equal."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.probe.results.results import Cell, ProbeResult
from grpodoctor.probe.severity import is_exact
from grpodoctor.report.probe.charts import figure_of
from grpodoctor.report.probe.names import parse_label
from grpodoctor.report.probe.phrases import format_small
from grpodoctor.report.view import Column, Table

_FIGURES = (
    "mismatch/prob_diff_mean",
    "mismatch/prob_diff_max/worst_sequence",
    "mismatch/kl_k3",
)


def ablation(result: ProbeResult) -> Table | None:
    """The cost of the differences of each pair from the exact pair; None without an exact pair."""
    measured = [cell for cell in result.cells if cell.comparison is not None]
    exact = [cell for cell in measured if cell.comparison and is_exact(cell.comparison)]
    others = [cell for cell in measured if cell not in exact]
    if not exact or not others:
        return None
    ranked = sorted(others, key=lambda cell: figure_of(cell, _FIGURES[-1]) or 0.0)
    rows = tuple(
        (
            _difference(_nearest(cell, exact), cell),
            *(format_small(figure_of(cell, m)) for m in _FIGURES),
        )
        for cell in ranked
    )
    columns = (
        Column("difference from the exact pair"),
        Column("mean", numeric=True, unit="|Δp|"),
        Column("largest", numeric=True, unit="|Δp|"),
        Column("k3,", numeric=True, unit="nats"),
    )
    return Table(columns, rows)


def _nearest(cell: Cell, exact: list[Cell]) -> Cell:
    """The exact pair with the fewest differences."""
    return min(exact, key=lambda base: len(list(_changes(base, cell))))


def _difference(base: Cell, cell: Cell) -> str:
    return ", ".join(_changes(base, cell)) or "none in the options"


def _changes(base: Cell, cell: Cell) -> Iterator[str]:
    """The settings of each side that differ, such as `sampler dtype=bfloat16`."""
    sides = (("sampler", base.sampler, cell.sampler), ("learner", base.learner, cell.learner))
    for side, before, after in sides:
        (engine, model, options), (other_engine, other_model, other_options) = (
            parse_label(before),
            parse_label(after),
        )
        if engine != other_engine:
            yield f"{side} {other_engine}"
        if model != other_model:
            yield f"{side} model {other_model}"
        yield from (f"{side} {option}" for option in other_options if option not in options)
        names = {option.partition("=")[0] for option in other_options}
        gone = [option.partition("=")[0] for option in options]
        yield from (f"{side} without {name}" for name in gone if name not in names)
    if base.max_tokens != cell.max_tokens:
        yield f"{cell.max_tokens} tokens"
