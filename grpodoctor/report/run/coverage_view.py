"""Which rules ran, which settings would enable more, and which cannot apply."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from grpodoctor.monitor.diagnosis.coverage import Coverage, EnablingSetting
from grpodoctor.monitor.report import Report
from grpodoctor.report.view import (
    Block,
    Bullets,
    Codes,
    Column,
    Group,
    Inline,
    Paragraph,
    Section,
    Span,
    Table,
    code,
)
from grpodoctor.support.numbers import count_of

_BRIEF_SETTINGS = 3

_Reason = TypeVar("_Reason", bound=Hashable)


def coverage_sentence(coverage: Coverage, most: int | None = None) -> str:
    """How many rules could not run, and how many of them settings would enable.

    Args:
        coverage: the rules and the settings.
        most: number of settings to count; all of them by default.
    """
    blocked = coverage.rules - coverage.ran
    if not blocked:
        return f"All {coverage.rules} rules ran."
    could_not = f"{count_of(blocked, 'rule')} could not run"
    if not coverage.settings:
        return f"{could_not}: this log does not contain what they need."
    shown = coverage.settings[:most]
    enabled = sum(len(setting.codes) for setting in shown)
    changes = count_of(len(shown), "change")  # to pass the run's config is no setting
    enable = "enables" if len(shown) == 1 else "enable"
    return f"{could_not}; {changes} {enable} {enabled} of them."


def brief_coverage(report: Report) -> tuple[Block, ...]:
    """The coverage in one sentence, with the settings that enable most."""
    coverage = report.diagnosis.coverage
    if not coverage.rules:
        return ()
    settings = coverage.settings[:_BRIEF_SETTINGS]
    sentence = Paragraph(
        (Span("Coverage:", "strong"), coverage_sentence(coverage, _BRIEF_SETTINGS))
    )
    lines = tuple(map(_brief_setting_line, settings))
    return (Group((sentence, Bullets(lines))),)


def full_coverage(report: Report) -> Iterator[Block]:
    """Every rule without a finding: blocked, not applicable, omitted, or quiet."""
    coverage = report.diagnosis.coverage
    if not coverage.rules:
        return
    blocks: list[Block] = [Paragraph(coverage_sentence(coverage))]
    if coverage.settings:
        blocks.append(Bullets(tuple(map(_setting_line, coverage.settings))))
    if coverage.blocked:
        blocks.append(_blocked(coverage))
    yield Section("Coverage", tuple(blocks))
    inapplicable = [*report.not_applicable, *coverage.omitted]
    if inapplicable:
        reasons = _codes_by((rule.code, rule.why) for rule in inapplicable)
        rows = tuple((codes, why) for why, codes in reasons.items())
        yield Section("Not applicable", (Table((Column("rules"), Column("reason")), rows),))
    if report.quiet:
        yield Section("Rules that found nothing", (Codes(report.quiet),))


def _brief_setting_line(setting: EnablingSetting) -> Inline:
    return setting.setting, Span(f"({count_of(len(setting.codes), 'rule')})", "faint")


def _setting_line(setting: EnablingSetting) -> Inline:
    count = count_of(len(setting.codes), "rule")
    return setting.setting, Span(f"({count}: {', '.join(setting.codes)})", "faint")


def _blocked(coverage: Coverage) -> Table:
    needs = _codes_by((rule.code, (rule.missing, rule.how)) for rule in coverage.blocked)
    rows: list[tuple[Inline, ...]] = [
        (codes, tuple(code(metric) for metric in missing), how)
        for (missing, how), codes in needs.items()
    ]
    return Table((Column("rules"), Column("need"), Column("how to log it")), tuple(rows))


def _codes_by(pairs: Iterable[tuple[str, _Reason]]) -> dict[_Reason, tuple[Span, ...]]:
    """The codes of the rules by what they have in common, in the order of the first of each."""
    grouped: dict[_Reason, tuple[Span, ...]] = {}
    for name, reason in pairs:
        grouped[reason] = (*grouped.get(reason, ()), code(name))
    return grouped
