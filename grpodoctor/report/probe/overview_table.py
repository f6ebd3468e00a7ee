"""The table of all pairs of engines in the report of a probe."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.probe.results.results import Cell, ProbeResult
from grpodoctor.report.probe.charts import figure_of
from grpodoctor.report.probe.pair_view import badge
from grpodoctor.report.probe.phrases import format_small, pair_text, reason_line
from grpodoctor.report.view import Column, Inline, Span, Table
from grpodoctor.support.safe_text import plain

_MAX_LETTERS = 200

_FIGURE_COLUMNS = (
    ("mismatch/prob_diff_mean", Column("mean", numeric=True, unit="|Δp|")),
    ("mismatch/prob_diff_max", Column("mean of max", numeric=True, unit="|Δp|")),
    ("mismatch/prob_diff_max/worst_sequence", Column("largest", numeric=True, unit="|Δp|")),
    ("mismatch/logprob_diff_mean", Column("mean", numeric=True, unit="|Δlogp|, nats")),
    ("mismatch/kl_k3", Column("k3,", numeric=True, unit="nats")),
)
_BRIEF_COLUMNS = tuple(_FIGURE_COLUMNS[index] for index in (0, 1, 4))


def anchor(index: int) -> str:
    """The anchor of the section of a pair, by the index of the pair."""
    return f"cell-{index}"


def _lengths(result: ProbeResult) -> tuple[Column, ...]:
    """The column of response lengths, if there are several."""
    several = len({cell.max_tokens for cell in result.cells}) > 1
    return (Column("tokens", numeric=True),) if several else ()


def overview(
    result: ProbeResult,
    names: Mapping[str, str],
    detailed: frozenset[int],
    listed: frozenset[int],
) -> Table:
    """A table with a line for each pair.

    Args:
        result: the result of the probe.
        names: short names of the engines, by label.
        detailed: indices of the pairs with a section, to which their line links.
        listed: indices of the pairs with a line.
    """
    lengths = _lengths(result)
    rows: list[tuple[Inline, ...]] = []
    for index, cell in enumerate(result.cells):
        if index not in listed:
            continue
        title = f"{names[cell.sampler]} → {names[cell.learner]}"
        link = anchor(index) if index in detailed else ""
        reason = plain(reason_line(cell), limit=_MAX_LETTERS)
        rows.append(
            (
                badge(cell),
                (Span(title, link=link), Span(reason, "faint")),
                *([str(cell.max_tokens)] if lengths else []),
                *(format_small(figure_of(cell, metric)) for metric, _ in _FIGURE_COLUMNS),
            )
        )
    head = (Column(""), Column("sampler → learner"), *lengths)
    return Table((*head, *(column for _, column in _FIGURE_COLUMNS)), tuple(rows))


def brief_overview(result: ProbeResult, names: Mapping[str, str], listed: frozenset[int]) -> Table:
    """A table with a heading row for each sampler, so that it fits a terminal."""
    lengths = _lengths(result)
    figures = tuple(column for _, column in _BRIEF_COLUMNS)
    columns = (Column("sampler → learner"), *lengths, *figures, Column(""), Column("cause"))
    rows: list[tuple[Inline, ...]] = []
    sampler = ""
    cells = [result.cells[index] for index in sorted(listed)]
    for cell in cells:
        if cell.sampler != sampler:
            rows.append((Span(names[cell.sampler], "strong"), *[""] * (len(columns) - 1)))
        sampler = cell.sampler
        rows.append(
            (
                f"→ {names[cell.learner]}",
                *([str(cell.max_tokens)] if lengths else []),
                *(format_small(figure_of(cell, metric)) for metric, _ in _BRIEF_COLUMNS),
                badge(cell),
                ", ".join(cause.cause for cause in cell.causes),
            )
        )
    narrow = tuple(_narrow_line(cell, names) for cell in cells)
    return Table(columns, tuple(rows), narrow)


def _narrow_line(cell: Cell, names: Mapping[str, str]) -> Inline:
    facts = [reason_line(cell)] if cell.causes else []
    if cell.comparison:
        facts.append(f"mean |Δp| {format_small(figure_of(cell, 'mismatch/prob_diff_mean'))}")
    return badge(cell), f"{pair_text(cell, names)}: {', '.join(facts)}".removesuffix(": ")
