"""The report of a probe, as a view."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

from grpodoctor.probe.recommended_settings import RecommendedSetting, recommended_settings
from grpodoctor.probe.results.results import Cell, ProbeResult
from grpodoctor.probe.results.results_json import to_json
from grpodoctor.report.probe.ablation import ablation
from grpodoctor.report.probe.charts import figure_of, grid_charts
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.overview_table import anchor, brief_overview, overview
from grpodoctor.report.probe.pair_view import most_charted, pair_blocks
from grpodoctor.report.probe.phrases import (
    diagnosis_line,
    engine_line,
    facts_line,
    pair_text,
    settings_line,
    standing,
)
from grpodoctor.report.view import (
    Block,
    Charts,
    Column,
    Detail,
    Paragraph,
    Remedy,
    Section,
    Setting,
    Span,
    Table,
    Tone,
    View,
    code,
)
from grpodoctor.support.safe_text import plain

_MAX_SECTIONS, _MAX_LINES = 60, 500
"""The worst pairs have a section of about 5 kB each, and more a line of about 400 bytes: a page has
at most 1.5 MB, whatever the number of pairs."""
_NAME_PIXELS, _CELL_PIXELS = 220, 110
"""Width of a heat map: for the samplers' names, and for each learner."""
_TONE_RANKS: tuple[Tone, ...] = ("good", "info", "warning", "critical")


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
            lambda: [overview(result, names, detailed, listed), *rest],
            (brief_overview(result, names, listed), *rest),
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
            tuple(pair_blocks(cell, remedies, len(result.cells), has_charts=index in charted)),
            anchor=anchor(index),
        )
    if result.engines:
        unshown = {label for cell in result.cells for label in _engines_of(cell)}
        unshown -= {label for index in detailed for label in _engines_of(result.cells[index])}
        yield Section("Engines", (_engines(result, names, without=unshown),))


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
    return frozenset(sorted(measured, key=gap, reverse=True)[: most_charted(len(cells))])


def _grid(result: ProbeResult, names: Mapping[str, str]) -> Iterator[Block]:
    charts = grid_charts(result.cells, names) if len(result.cells) <= _MAX_LINES else ()
    if not charts:
        return
    learners = {cell.learner for cell in result.cells}
    blocks: list[Block] = [Charts(charts, _NAME_PIXELS + _CELL_PIXELS * len(learners))]
    most = most_charted(len(result.cells))
    if sum(cell.comparison is not None for cell in result.cells) > most:
        text = f"Charts below: the {most} pairs with the largest k3."
        blocks.append(Paragraph(text, "faint"))
    yield Section("Grid", tuple(blocks))


def _framework_setting(setting: RecommendedSetting, framework: str) -> Remedy:
    lines = tuple(Setting(line) for line in setting.lines)
    return Remedy(f"In {framework}: {setting.title}", lines)


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
