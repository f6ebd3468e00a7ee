"""The page of a rule or a preflight check as text, for `grpodoctor rule` and the watch screen."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpodoctor.preflight.base import Check
    from grpodoctor.rules.base import Rule


def threshold_docs(rule: Rule | Check) -> dict[str, str]:
    """What each threshold means, by name."""
    from grpodoctor.support.field_docs import field_docs

    docs = field_docs(type(rule))
    return {name: docs[name] for name in rule.thresholds() if name in docs}


def _thresholds_text(rule: Rule | Check) -> Iterator[str]:
    docs = threshold_docs(rule)
    for name, value in rule.thresholds().items():
        yield f"    {name} = {value}"
        yield from wrap(docs.get(name, ""), 100, initial_indent=" " * 8, subsequent_indent=" " * 8)


def lead_time_text(rule: Rule | Check) -> str:
    """How early a rule fired in recorded sick runs; empty for a check."""
    from grpodoctor.rules.base import Rule
    from grpodoctor.rules.lead_times import NOTES_ONLY, lead_time_of

    if not isinstance(rule, Rule):
        return ""
    if measured := lead_time_of(rule.code):
        return measured.sentence
    if rule.reads_config:
        return "before the run: it judges the settings (`preflight --run-config FILE`)."
    if rule.code in NOTES_ONLY:
        return "none: its findings are notes, and a lead time is that of the first alarm."
    return "not measured: no recorded sick run raised it."


def trials_of(rule: Rule | Check) -> list[str]:
    """What published trials show about a rule, one sentence each; empty without a trial."""
    from grpodoctor.report.trial_table import rule_trials

    return rule_trials(rule.code)


def former_names_lines(rule: Rule | Check) -> list[str]:
    """An empty line and the former names; nothing if there are none."""
    return ["", f"Former names: {', '.join(rule.former_names)}"] if rule.former_names else []


def page_text(rule: Rule | Check) -> str:
    """The manual, the thresholds, the lead time and the trials."""
    lines = [f"{rule.code} {rule.name}", "", rule.manual(), *former_names_lines(rule)]
    if rule.thresholds():
        lines += ["", "Thresholds:", *_thresholds_text(rule)]
    if lead_time := lead_time_text(rule):
        lines += ["", "Lead time:", *_indented(lead_time)]
    if trials := trials_of(rule):
        lines += ["", "Trials:", *(line for each in trials for line in _indented(each))]
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    indent = " " * 4
    return wrap(text, 100, initial_indent=indent, subsequent_indent=indent)
