"""The section of one pair of engines in the report of a probe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from grpodoctor.probe.recommended_settings import recommendation
from grpodoctor.probe.results.results import Cell, Comparison, NamedCause, WorstResponse
from grpodoctor.probe.severity import is_rounding_cause
from grpodoctor.report.probe.charts import cell_charts
from grpodoctor.report.probe.experts_view import churn, experts
from grpodoctor.report.probe.phrases import (
    CONTROL_MARKS,
    effect_rows,
    explained_share,
    figure_rows,
    format_percent,
    format_small,
    standing,
)
from grpodoctor.report.probe.responses_view import response
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Charts,
    Column,
    Detail,
    Heading,
    Inline,
    Paragraph,
    Remedy,
    SideBySide,
    Span,
    Table,
    Tone,
    code,
)
from grpodoctor.support.safe_text import plain

_MAX_CHARTED_PAIRS, _MAX_CHARTED_OF_MANY = 6, 4
"""Pairs with their own charts, those that differ most: a page must open at once."""
_MAX_FULL_PAIRS = 24
"""Above this number of pairs, fewer have charts; the others have figures and failed controls."""
_MAX_PAIR_TOKENS, _MAX_PAGE_TOKENS = 1000, 2400
"""Tokens of the responses of a pair and of a page, of about 40 bytes each; `probe.json` has all."""
_MAX_BRIEF_PAIRS = 3
"""Up to this number of pairs, text and Markdown show all figures of each."""
_MAX_BRIEF_DETAILS = 6
_MAX_BRIEF_RESPONSES = 3
_SMALLEST_BRIEF_EFFECT = 1e-4
_MAX_LETTERS = 200
_CONFIDENCE_TONES: dict[str, Tone] = {"proven": "critical", "likely": "warning", "possible": "info"}
_CONTROL_TONES: dict[bool | None, Tone] = {True: "good", False: "critical", None: "warning"}


def badge(cell: Cell) -> Span:
    """The result of a pair in one or two words, in the color of its severity."""
    word, tone = standing(cell)
    return Span(word, "badge", tone)


def most_charted(pairs: int) -> int:
    """How many pairs have charts, by the number of pairs on the page."""
    return _MAX_CHARTED_PAIRS if pairs <= _MAX_FULL_PAIRS else _MAX_CHARTED_OF_MANY


def pair_blocks(
    cell: Cell, remedies: tuple[Remedy, ...], pairs: int, *, has_charts: bool
) -> Iterator[Block]:
    """The blocks of the section of a pair.

    Args:
        cell: the pair.
        remedies: settings of a framework that bring the engines together.
        pairs: the number of pairs on the page; the more pairs, the less about each.
        has_charts: whether the page charts this pair.
    """
    comparison = cell.comparison
    if comparison is None:
        text = plain(cell.reason, limit=2000)
        yield Paragraph((badge(cell), text), "warning")
        return
    yield Paragraph((badge(cell), cell.verdict), "lead")
    yield from (_cause(cell, cause) for cause in cell.causes)
    repeated = {remedy for cause in cell.causes for remedy in cause.remedies}
    if advice := tuple(remedy for remedy in cell.remedies if remedy not in repeated):
        yield Bullets(advice, "advice")
    yield from remedies
    brief = pairs <= _MAX_BRIEF_PAIRS
    full = _short_measurements if pairs > _MAX_FULL_PAIRS and not has_charts else _measurements
    tokens = min(_MAX_PAIR_TOKENS, _MAX_PAGE_TOKENS // min(pairs, most_charted(pairs)))
    yield Detail(
        lambda: full(cell, comparison, tokens if has_charts else 0),
        tuple(_brief_measurements(cell, comparison)) if brief else tuple(_failed_controls(cell)),
    )


def _cause(cell: Cell, cause: NamedCause) -> Card:
    is_rounding = is_rounding_cause(cell, cause)
    details = tuple(plain(detail, limit=_MAX_LETTERS) for detail in cause.details)
    body: list[Block] = [Paragraph(cause.summary)]
    if details:
        more = len(details) - _MAX_BRIEF_DETAILS
        brief = (*details[:_MAX_BRIEF_DETAILS], *([f"and {more} more"] if more > 0 else []))
        full = Bullets(tuple(code(detail) for detail in details))
        body.append(Detail(lambda: [full], (Bullets(brief),)))
    if cause.figures:
        text = " · ".join(
            f"{name.replace('_', ' ')} {format_small(value)}"
            for name, value in cause.figures.items()
        )
        body.append(Detail(lambda: [Paragraph(text, "faint")]))
    return Card(
        tone="info" if is_rounding else _CONFIDENCE_TONES[cause.confidence],
        badge="rounding" if is_rounding else cause.confidence,
        code=f"{cause.cause}:",
        title=cause.title,
        note=explained_share(cause),
        body=tuple(body),
        advice=(Bullets(cause.remedies, "advice"),) if cause.remedies and not is_rounding else (),
    )


def _short_measurements(cell: Cell, comparison: Comparison, _: int) -> Iterator[Block]:
    """Of a pair in a large grid; `probe.json` has the rest."""
    yield from _failed_controls(cell)
    yield from _figures(comparison)
    if comparison.effects:
        yield Paragraph(recommendation(cell))
    yield from experts(comparison.experts, cell.replayed, is_brief=True)
    yield from _churn(cell, has_charts=False)


def _measurements(cell: Cell, comparison: Comparison, tokens: int) -> Iterator[Block]:
    """All measurements, with charts and responses if these may have any tokens."""
    has_charts = tokens > 0
    if cell.controls:
        yield Heading("Controls")
        rows = tuple(
            (
                Span(CONTROL_MARKS[control.passed], "badge", _CONTROL_TONES[control.passed]),
                control.title,
                control.summary,
            )
            for control in cell.controls
        )
        yield Table((Column(""), Column("control"), Column("result")), rows)
    if has_charts:
        yield Charts(cell_charts(comparison))
    yield SideBySide(
        left=(
            Heading("Mismatch"),
            *_figures(comparison),
            *(_worst_prompts(comparison) if has_charts else ()),
        ),
        right=(
            *_effects(cell, comparison, 0.0),
            *experts(comparison.experts, cell.replayed, is_brief=not has_charts),
            *_churn(cell, has_charts=has_charts),
        ),
    )
    if comparison.worst and has_charts:
        yield Heading("Responses with the largest mismatch")
        yield from (response(worst) for worst in _within_page(comparison.worst, tokens))


def _churn(cell: Cell, *, has_charts: bool) -> Iterator[Block]:
    if cell.churn is not None and not has_charts:
        yield churn(cell.churn)
    else:
        yield from experts(cell.churn, title="Experts: older checkpoint compared with this one")


def _within_page(worst: Sequence[WorstResponse], most: int) -> Iterator[WorstResponse]:
    """The first responses that a page has room for, at least one."""
    tokens = 0
    for number, each in enumerate(worst):
        tokens += len(each.ids)
        if number and tokens > most:
            return
        yield each


def _brief_measurements(cell: Cell, comparison: Comparison) -> Iterator[Block]:
    yield from _figures(comparison)
    yield from _effects(cell, comparison, _SMALLEST_BRIEF_EFFECT)
    yield from (block for block in experts(comparison.experts, cell.replayed))
    if cell.churn is not None:
        yield churn(cell.churn)
    if comparison.worst:
        yield Heading("Responses with the largest mismatch")
        yield from (response(worst) for worst in comparison.worst[:_MAX_BRIEF_RESPONSES])
    yield from _controls(cell)


def _controls(cell: Cell) -> Iterator[Block]:
    for control in cell.controls:
        mark = Span(CONTROL_MARKS[control.passed], "badge", _CONTROL_TONES[control.passed])
        yield Paragraph((mark, f"control: {control.title}. {control.summary}"))


def _failed_controls(cell: Cell) -> Iterator[Block]:
    shown = zip(cell.controls, _controls(cell), strict=True)
    yield from (block for control, block in shown if control.passed is not True)


def _figures(comparison: Comparison) -> Iterator[Block]:
    counts = (
        f"{comparison.prompts:,} prompts, {comparison.responses:,} responses, "
        f"{comparison.tokens:,} tokens"
    )
    yield Paragraph(counts, "faint")
    rows: list[tuple[Inline, ...]] = [
        ((name, Span(f"({plain(where, limit=80)})", "faint")) if where else name, value, interval)
        for name, value, interval, where in figure_rows(comparison)
    ]
    if comparison.entropy_z is not None:
        name = "z-score of mean(log p + entropy); near 0 if sampled from the reported distribution"
        rows.append((name, format_small(comparison.entropy_z), ""))
    columns = (
        Column("metric"),
        Column("value", numeric=True),
        Column("95 % interval by prompt", numeric=True),
    )
    yield Table(columns, tuple(rows))


def _effects(cell: Cell, comparison: Comparison, smallest: float) -> Iterator[Block]:
    if not comparison.effects:
        return
    yield Heading("Effect on training at the usual caps")
    yield Paragraph(recommendation(cell))
    rows = tuple(
        (title, f"{format_percent(share)} of {over}", format_percent(lost))
        for title, over, share, lost in effect_rows(comparison)
        if not smallest or (math.isfinite(share) and share >= smallest)
    )
    if not rows:
        yield Paragraph("No correction would act on more than one token in 10,000.")
        return
    columns = (
        Column("correction or clip"),
        Column("acts on", numeric=True),
        Column("weight lost", numeric=True),
    )
    yield Table(columns, rows)


def _worst_prompts(comparison: Comparison) -> Iterator[Block]:
    if not comparison.worst_prompts:
        return
    yield Heading("Prompts with the largest mismatch")
    columns = ("prompt", "responses", "mean |Δp|", "mean |Δlogp|", "largest |Δp|")
    rows = tuple(
        (
            str(prompt.prompt),
            str(prompt.responses),
            format_small(prompt.prob_diff_mean),
            format_small(prompt.logprob_diff_mean),
            format_small(prompt.prob_diff_max),
        )
        for prompt in comparison.worst_prompts
    )
    yield Table(tuple(Column(title, numeric=True) for title in columns), rows)
