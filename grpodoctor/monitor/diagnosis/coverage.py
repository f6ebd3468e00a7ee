"""Coverage: how many of the rules that can apply to a run ran, and which settings enable more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpodoctor.frameworks.logging_advice import setting_that_logs
from grpodoctor.rules.base import Need, Rule
from grpodoctor.rules.diagnosis import Inapplicable, Skipped
from grpodoctor.runs.chart import Chart

_MIXTURE = re.compile(
    r"moe|mixtral|a\d+b\b|gpt-?oss|deepseek-?v[23]|kimi-?k2|glm-?4\.[5-9]|dbrx|moonlight|olmoe",
    re.IGNORECASE,
)
"""Names of models that are mixtures of experts."""

_UNDETERMINED = "the run does not contain the settings or readings that it judges"
_SUBJECTS: Mapping[str, str] = {
    "experts/": "neither the log nor the config shows a mixture of experts",
    "critic/": "neither the log nor the config shows a critic",
    "tools/": "neither the log nor the config shows tools",
    "instruments/": "no live hook records the run",
}
"""Families of metrics that exist only in some runs, with the reason why a rule does not apply."""


@dataclass(frozen=True, slots=True)
class EnablingSetting:
    """A setting of the framework, and the rules that could run with it."""

    setting: str
    """An instruction, such as `set log_completions=True`."""
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rules ran, of those that can apply to the run."""

    ran: int = 0
    rules: int = 0
    """Rules that can apply to this run."""
    blocked: tuple[Skipped, ...] = ()
    """Rules that can apply but lack a metric."""
    settings: tuple[EnablingSetting, ...] = ()
    """What enables the blocked rules, the setting for most rules first."""
    unavailable: tuple[str, ...] = ()
    """Codes of the blocked rules that no setting of the framework enables."""
    omitted: tuple[Inapplicable, ...] = ()
    """Rules about something that this run does not have."""
    failed: int = 0
    """Rules that raised an exception and found nothing."""

    def to_json(self) -> dict[str, Any]:
        """The `coverage` object of the report."""
        return {
            "ran": self.ran,
            "rules": self.rules,
            "settings": [
                {"setting": setting.setting, "codes": list(setting.codes)}
                for setting in self.settings
            ],
            "unavailable": list(self.unavailable),
            "omitted": [{"code": rule.code, "why": rule.why} for rule in self.omitted],
        }


def coverage_of(
    chart: Chart,
    rules: Iterable[Rule],
    skipped: Sequence[Skipped],
    not_applicable: Sequence[Inapplicable],
    defective: Collection[str] = (),
    examined: Collection[str] | None = None,
) -> Coverage:
    """The coverage of a run.

    Args:
        chart: the run's chart after its last step.
        rules: all rules that were selected.
        skipped: the rules that lack a metric.
        not_applicable: the rules that do not apply.
        defective: codes of the rules that raised an exception and found nothing.
        examined: codes of the rules that ran; all others by default.
    """
    by_code = {rule.code: rule for rule in rules}
    absent = _absent_subjects(chart)
    omitted = [
        Inapplicable(rule.code, why)
        for rule in skipped
        if (why := _why_omitted(by_code[rule.code].inputs, absent))
    ]
    listed = {*_codes(skipped), *_codes(not_applicable), *defective}
    if examined is not None:
        silent = sorted(by_code.keys() - listed - set(examined))
        omitted += [Inapplicable(code, _UNDETERMINED) for code in silent]
    codes = {rule.code for rule in omitted}
    blocked = tuple(rule for rule in skipped if rule.code not in codes)
    settings, unavailable = _plan(chart, [(by_code[rule.code], rule.how) for rule in blocked])
    total = len(by_code) - len(omitted) - len(not_applicable)
    return Coverage(
        ran=total - len(blocked) - len(defective),
        failed=len(defective),
        rules=total,
        blocked=blocked,
        settings=settings,
        unavailable=unavailable,
        omitted=tuple(omitted),
    )


def _absent_subjects(chart: Chart) -> dict[str, str]:
    """The families of metrics that this run cannot have, with the reason."""
    names = chart.names()
    present = {family for family in _SUBJECTS if any(name.startswith(family) for name in names)}
    if _MIXTURE.search(chart.manifest.model):
        present.add("experts/")
    if chart.knobs.get("advantage") == "gae":
        present.add("critic/")
    return {family: why for family, why in _SUBJECTS.items() if family not in present}


def _why_omitted(needs: Sequence[Need], absent: Mapping[str, str]) -> str:
    """Why a rule cannot apply: each alternative of one of its inputs is of an absent family."""
    for need in needs:
        names = (need,) if isinstance(need, str) else need
        for family, why in absent.items():
            if all(name.startswith(family) for name in names):
                return why
    return ""


def _plan(
    chart: Chart, blocked: Sequence[tuple[Rule, str]]
) -> tuple[tuple[EnablingSetting, ...], tuple[str, ...]]:
    codes_by_setting: dict[str, list[str]] = {}
    unavailable = []
    for rule, how in blocked:
        # A rule without metrics reads the config, and `how` says where to get it.
        settings = (
            [how]
            if how and not rule.inputs
            else [
                setting_that_logs(chart.manifest.framework, need) for need in _missing(chart, rule)
            ]
        )
        if not settings or None in settings:
            unavailable.append(rule.code)
            continue
        setting = "; ".join(sorted({setting for setting in settings if setting}))
        codes_by_setting.setdefault(setting, []).append(rule.code)
    ordered = sorted(codes_by_setting.items(), key=lambda item: -len(item[1]))
    return tuple(EnablingSetting(setting, tuple(codes)) for setting, codes in ordered), tuple(
        unavailable
    )


def _missing(chart: Chart, rule: Rule) -> list[tuple[str, ...]]:
    needs = [(need,) if isinstance(need, str) else need for need in rule.inputs]
    return [names for names in needs if not any(len(chart.series(name)) for name in names)]


def _codes(rules: Iterable[Skipped | Inapplicable]) -> set[str]:
    return {rule.code for rule in rules}
