"""Checks a configuration before any step, by the rules that read nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpodoctor.rules.base import SEVERITIES, Finding, Rule, Sighting
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.shared.config_rule import Undecided
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.plain_names import in_plain_words
from grpodoctor.vocabulary.values import NotApplicable


@dataclass(frozen=True, slots=True)
class LintResult:
    """What the rules saw in a configuration."""

    findings: tuple[Finding, ...]
    """Most severe first."""
    quiet: tuple[str, ...]
    """Codes of the rules that found nothing."""
    not_applicable: Mapping[str, str]
    """Code to reason, for the rules whose settings are unknown."""
    settings: Mapping[str, Setting]
    """The known settings."""
    undecided: Mapping[str, str] = field(default_factory=dict)
    """Those of `not_applicable` whose known settings are a fault unless an unknown one excuses
    them."""


def config_rules() -> tuple[Rule, ...]:
    """All rules about the configuration, sorted by code."""
    return tuple(rule for rule in all_rules() if rule.reads_config)


def lint(
    framework: str,
    config: Mapping[str, Any],
    knobs: Mapping[str, Setting],
    rules: Sequence[Rule] | None = None,
) -> LintResult:
    """Check a configuration.

    Args:
        framework: its framework.
        config: the framework's config, nested or with dotted keys.
        knobs: the knobs that the config sets.
        rules: rules about the configuration; None examines all.
    """
    chart = Chart(Manifest(framework=framework, config=dict(config), knobs=dict(knobs)))
    findings, quiet, not_applicable = list[Finding](), list[str](), dict[str, str]()
    undecided: dict[str, str] = {}
    for rule in config_rules() if rules is None else rules:
        result = rule.examine(chart)
        if isinstance(result, Sighting):
            findings.append(_finding(rule, result))
        elif isinstance(result, NotApplicable):
            not_applicable[rule.code] = result.why
            if isinstance(result, Undecided):
                undecided[rule.code] = result.why
        else:
            quiet.append(rule.code)
    ranked = sorted(findings, key=lambda each: (-SEVERITIES.index(each.severity), each.code))
    settings = chart.config.settings(chart.knobs)
    return LintResult(tuple(ranked), tuple(quiet), not_applicable, settings, undecided)


def _finding(rule: Rule, sighting: Sighting) -> Finding:
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=sighting.severity,
        onset_step=0,
        last_step=0,
        active=True,
        summary=in_plain_words(sighting.summary),
        evidence=sighting.evidence,
        remedies=rule.remedies if sighting.remedies is None else sighting.remedies,
        references=rule.references,
    )
