"""The report of a probe, as a view."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

from grpodoctor.probe.recommended_settings import (
    RecommendedSetting,
    recommendation,
    recommended_settings,
)
from grpodoctor.probe.results.results import (
    Cell,
    Comparison,
    NamedCause,
    ProbeResult,
    WorstResponse,
)
from grpodoctor.probe.results.results_json import to_json
from grpodoctor.probe.severity import is_rounding_cause
from grpodoctor.report.probe.ablation import ablation
from grpodoctor.report.probe.charts import cell_charts, figure_of, grid_charts
from grpodoctor.report.probe.experts_view import churn, experts
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.phrases import (
    CONTROL_MARKS,
    diagnosis_line,
    effect_rows,
    engine_line,
    explained_share,
    facts_line,
    figure_rows,
    format_percent,
    format_small,
    pair_text,
    reason_line,
    settings_line,
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
    Section,
    Setting,
    SideBySide,
    Span,
    Table,
    Tone,
    View,
    code,
)
from grpodoctor.support.safe_text import plain

_MAX_CHARTED_PAIRS, _MAX_CHARTED_OF_MANY = 6, 4
"""Pairs with their own charts, those that differ most: a page must open at once."""
_MAX_FULL_PAIRS = 24
"""Above this number of pairs, fewer have charts; the others have figures and failed controls."""
_MAX_SECTIONS, _MAX_LINES = 60, 500
"""The worst pairs have a section of about 5 kB each, and more a line of about 400 bytes: a page has
at most 1.5 MB, whatever the number of pairs."""
_MAX_PAIR_TOKENS, _MAX_PAGE_TOKENS = 1000, 2400
"""Tokens of the responses of a pair and of a page, of about 40 bytes each; `probe.json` has all."""
_NAME_PIXELS, _CELL_PIXELS = 220, 110
"""Width of a heat map: for the samplers' names, and for each learner."""
_MAX_BRIEF_PAIRS = 3
"""Up to this number of pairs, text and Markdown show all figures of each."""
_MAX_BRIEF_DETAILS = 6
_MAX_BRIEF_RESPONSES = 3
_SMALLEST_BRIEF_EFFECT = 1e-4
_MAX_LETTERS = 200
_TONE_RANKS: tuple[Tone, ...] = ("good", "info", "warning", "critical")
_CONFIDENCE_TONES: dict[str, Tone] = {"proven": "critical", "likely": "warning", "possible": "info"}
_CONTROL_TONES: dict[bool | None, Tone] = {True: "good", False: "critical", None: "warning"}

_FIGURE_COLUMNS = (
    ("mismatch/prob_diff_mean", Column("mean", numeric=True, unit="|Δp|")),
    ("mismatch/prob_diff_max", Column("mean of max", numeric=True, unit="|Δp|")),
    ("mismatch/prob_diff_max/worst_sequence", Column("largest", numeric=True, unit="|Δp|")),
    ("mismatch/logprob_diff_mean", Column("mean", numeric=True, unit="|Δlogp|, nats")),
    ("mismatch/kl_k3", Column("k3,", numeric=True, unit="nats")),
)
_BRIEF_COLUMNS = tuple(_FIGURE_COLUMNS[index] for index in (0, 1, 4))


def view_of(result: ProbeResult, framework: str | None = None) -> View:
    """Translate the results of a probe.

    Args:
        result: the results.
        framework: framework whose settings are shown; None shows general advice only.

    Raises:
        ConfigError: if the framework is unknown.
    """
    settings = [
        recommended_settings(result, cell, framework) if framework else () for cell in result.cells
    ]
    return View(
        product="grpodoctor probe",
        page_title="Do these engines agree?",
        heading="Do these engines agree?",
        facts=facts_line(result),
        diagnosis=diagnosis_line(result),
        warnings=result.notes,
        blocks=tuple(_blocks(result, settings, framework)),
        json=lambda: _json(result, settings if framework else None),
    )


_Settings = Sequence[tuple[RecommendedSetting, ...]]


def _json(result: ProbeResult, settings: _Settings | None) -> dict[str, Any]:
    """The result as `probe.json` holds it, plus the `settings` of each cell for a framework."""
    data = to_json(result)
    if settings is not None:
        for cell, changes in zip(data["cells"], settings, strict=True):
            cell["settings"] = [asdict(change) for change in changes]
    return data


def _blocks(result: ProbeResult, settings: _Settings, framework: str | None) -> Iterator[Block]:
    names = short_names(result)
    detailed, listed = (_worst(result.cells, most) for most in (_MAX_SECTIONS, _MAX_LINES))
    if len(result.cells) > 1:
        rest = tuple(_omitted(result.cells, len(detailed), len(listed)))
        yield Detail(
            lambda: [_overview(result, names, detailed, listed), *rest],
            (_brief_overview(result, names, listed), *rest),
        )
        yield Detail(lambda: _grid(result, names))
    if table := ablation(result):
        yield Section("Cost of each difference", (table,))
    charted = _charted(result.cells, detailed)
    for index, (cell, changes) in enumerate(zip(result.cells, settings, strict=True)):
        if index not in detailed:
            continue
        remedies = tuple(_framework_setting(change, framework or "") for change in changes)
        yield Section(
            pair_text(cell, names),
            tuple(_cell(cell, remedies, len(result.cells), has_charts=index in charted)),
            anchor=_anchor(index),
        )
    if result.engines:
        unshown = {label for cell in result.cells for label in _engines_of(cell)}
        unshown -= {label for index in detailed for label in _engines_of(result.cells[index])}
        yield Section("Engines", (_engines(result, names, without=unshown),))


def _anchor(index: int) -> str:
    return f"cell-{index}"


def _engines_of(cell: Cell) -> tuple[str, str]:
    return cell.sampler, cell.learner


def _worst(cells: Sequence[Cell], most: int) -> frozenset[int]:
    """The indices of the worst cells: by severity, failed ones first, then by k3."""

    def badness(index: int) -> tuple[int, float]:
        _, tone = standing(cells[index])
        k3 = figure_of(cells[index], "mismatch/kl_k3")
        return _TONE_RANKS.index(tone), math.inf if k3 is None or math.isnan(k3) else k3

    return frozenset(sorted(range(len(cells)), key=badness, reverse=True)[:most])


def _omitted(cells: Sequence[Cell], sections: int, lines: int) -> Iterator[Block]:
    """A sentence about the pairs without a section, and about those without a line."""
    if lines < len(cells):
        words = Counter(standing(cell)[0] for cell in cells)
        counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
        text = f"The {lines} worst of {len(cells):,} pairs ({counts}). All are in probe.json."
        yield Paragraph(text, "faint")
    if sections < len(cells):
        text = (
            f"Sections below: the {sections} worst pairs. probe.json has the figures of all pairs."
        )
        yield Paragraph(text, "faint")


def _charted(cells: Sequence[Cell], detailed: frozenset[int]) -> frozenset[int]:
    def gap(index: int) -> float:
        value = figure_of(cells[index], "mismatch/kl_k3")
        return value if value is not None and math.isfinite(value) else -1.0

    measured = [index for index, cell in enumerate(cells) if cell.comparison and index in detailed]
    return frozenset(sorted(measured, key=gap, reverse=True)[: _most_charted(len(cells))])


def _most_charted(pairs: int) -> int:
    return _MAX_CHARTED_PAIRS if pairs <= _MAX_FULL_PAIRS else _MAX_CHARTED_OF_MANY


def _badge(cell: Cell) -> Span:
    word, tone = standing(cell)
    return Span(word, "badge", tone)


def _lengths(result: ProbeResult) -> tuple[Column, ...]:
    """The column of response lengths, if there are several."""
    several = len({cell.max_tokens for cell in result.cells}) > 1
    return (Column("tokens", numeric=True),) if several else ()


def _overview(
    result: ProbeResult,
    names: Mapping[str, str],
    detailed: frozenset[int],
    listed: frozenset[int],
) -> Table:
    lengths = _lengths(result)
    rows: list[tuple[Inline, ...]] = []
    for index, cell in enumerate(result.cells):
        if index not in listed:
            continue
        title = f"{names[cell.sampler]} → {names[cell.learner]}"
        link = _anchor(index) if index in detailed else ""
        reason = plain(reason_line(cell), limit=_MAX_LETTERS)
        rows.append(
            (
                _badge(cell),
                (Span(title, link=link), Span(reason, "faint")),
                *([str(cell.max_tokens)] if lengths else []),
                *(format_small(figure_of(cell, metric)) for metric, _ in _FIGURE_COLUMNS),
            )
        )
    head = (Column(""), Column("sampler → learner"), *lengths)
    return Table((*head, *(column for _, column in _FIGURE_COLUMNS)), tuple(rows))


def _brief_overview(result: ProbeResult, names: Mapping[str, str], listed: frozenset[int]) -> Table:
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
                _badge(cell),
                ", ".join(cause.cause for cause in cell.causes),
            )
        )
    narrow = tuple(_narrow_line(cell, names) for cell in cells)
    return Table(columns, tuple(rows), narrow)


def _narrow_line(cell: Cell, names: Mapping[str, str]) -> Inline:
    facts = [reason_line(cell)] if cell.causes else []
    if cell.comparison:
        facts.append(f"mean |Δp| {format_small(figure_of(cell, 'mismatch/prob_diff_mean'))}")
    return _badge(cell), f"{pair_text(cell, names)}: {', '.join(facts)}".removesuffix(": ")


def _grid(result: ProbeResult, names: Mapping[str, str]) -> Iterator[Block]:
    charts = grid_charts(result.cells, names) if len(result.cells) <= _MAX_LINES else ()
    if not charts:
        return
    learners = {cell.learner for cell in result.cells}
    blocks: list[Block] = [Charts(charts, _NAME_PIXELS + _CELL_PIXELS * len(learners))]
    most = _most_charted(len(result.cells))
    if sum(cell.comparison is not None for cell in result.cells) > most:
        text = f"Charts below: the {most} pairs with the largest k3."
        blocks.append(Paragraph(text, "faint"))
    yield Section("Grid", tuple(blocks))


def _cell(
    cell: Cell, remedies: tuple[Remedy, ...], pairs: int, *, has_charts: bool
) -> Iterator[Block]:
    comparison = cell.comparison
    if comparison is None:
        text = plain(cell.reason, limit=2000)
        yield Paragraph((_badge(cell), text), "warning")
        return
    yield Paragraph((_badge(cell), cell.verdict), "lead")
    yield from (_cause(cell, cause) for cause in cell.causes)
    repeated = {remedy for cause in cell.causes for remedy in cause.remedies}
    if advice := tuple(remedy for remedy in cell.remedies if remedy not in repeated):
        yield Bullets(advice, "advice")
    yield from remedies
    brief = pairs <= _MAX_BRIEF_PAIRS
    full = _short_measurements if pairs > _MAX_FULL_PAIRS and not has_charts else _measurements
    tokens = min(_MAX_PAIR_TOKENS, _MAX_PAGE_TOKENS // min(pairs, _most_charted(pairs)))
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


def _framework_setting(setting: RecommendedSetting, framework: str) -> Remedy:
    lines = tuple(Setting(line) for line in setting.lines)
    return Remedy(f"In {framework}: {setting.title}", lines)


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


def _engines(result: ProbeResult, names: Mapping[str, str], without: Set[str]) -> Detail:
    engines = {label: facts for label, facts in result.engines.items() if label not in without}
    rows = tuple(
        (
            (names.get(label, ""), code(label)),
            engine_line(facts),
            Span(plain(settings_line(facts), limit=400), "faint"),
        )
        for label, facts in engines.items()
    )
    brief = tuple(
        Paragraph(f"{label}: {engine_line(facts)}", "faint") for label, facts in engines.items()
    )
    full = Table((Column("engine"), Column("reported"), Column("settings")), rows)
    return Detail(lambda: [full], brief)
