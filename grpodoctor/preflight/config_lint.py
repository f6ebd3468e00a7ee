"""The rules about the configuration, for a run that has not started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.complete_config import framework_of_config
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.run_config import flattened, read_file
from grpodoctor.frameworks.training_method import other_method
from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.monitor.advice import advice_for
from grpodoctor.preflight.inputs.reward_weights import reward_weights
from grpodoctor.preflight.inputs.stop_strings import stop_strings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.results.preflight_results import PreflightFinding, UnfinishedCheck
from grpodoctor.rules.base import Finding, Rule
from grpodoctor.rules.lint import LintResult, lint
from grpodoctor.vocabulary.knobs import Setting

_ADD_SETTING = "add the missing setting to the config"
_MOST_REMEDIES = 2
"""Remedies that are shown for a finding."""


@dataclass(frozen=True, slots=True)
class ConfigResults:
    """What the rules saw in the configuration."""

    findings: tuple[PreflightFinding, ...] = ()
    passed: tuple[str, ...] = ()
    skipped: tuple[UnfinishedCheck, ...] = ()
    framework: str = ""
    """Framework of the config; empty if the user gave none."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """The knobs and facts that the config contains."""
    stop_strings: tuple[str, ...] = ()
    """Texts at which a response ends, and which the engine cuts off."""
    reward_weights: tuple[tuple[str, float], ...] = ()
    """Name and weight of each reward function."""
    contents: Mapping[str, Any] = field(default_factory=dict)
    """The config as it is written, nested."""


def check_config(
    path: Path | None, framework_name: str | None, rules: Sequence[Rule]
) -> ConfigResults:
    """Check a config file. Without rules, its settings are read for the other checks.

    Args:
        path: the config; None if the user gave none.
        framework_name: its framework; None to recognize it by its keys.
        rules: the rules about the configuration to examine.

    Raises:
        ConfigError: if the file cannot be read, or its framework is not recognized.
    """
    if path is None:
        if not rules:
            return ConfigResults()
        missing = UnfinishedCheck(
            "CFG", "configuration", "no config was given", "pass --run-config FILE"
        )
        return ConfigResults(skipped=(missing,))
    settings = read_file(path)
    config = dict(flattened(settings))
    framework = (
        configurable_framework_named(framework_name)
        if framework_name
        else framework_of_config(config)
    )
    result = lint(framework.name, config, framework.knobs.read(config), rules)
    findings = tuple(
        PreflightFinding(
            finding.code, finding.name, _check_finding(finding, result, framework.name)
        )
        for finding in result.findings
    )
    undecided = (
        UnfinishedCheck(rule.code, rule.name, result.undecided[rule.code], _ADD_SETTING)
        for rule in rules
        if rule.code in result.undecided
    )
    return ConfigResults(
        findings,
        result.quiet,
        (*(_of_another_method(framework.name, config) if rules else ()), *undecided),
        framework=framework.name,
        settings=result.settings,
        stop_strings=stop_strings(settings),
        reward_weights=reward_weights(settings),
        contents=settings,
    )


def _of_another_method(framework: str, config: Mapping[str, Setting]) -> Iterator[UnfinishedCheck]:
    """That the config is not judged, if it is one of DPO, supervised fine-tuning or the like."""
    if method := other_method(framework, config):
        why = f"the config is of {method}, and these rules judge reinforcement learning"
        yield UnfinishedCheck("CFG", "configuration", why, "pass the config of an RL run")


def _check_finding(finding: Finding, result: LintResult, framework: str) -> CheckFinding:
    figures = {each.metric: each.value for each in finding.evidence}
    advice = tuple(_advice(finding, result, framework))
    return CheckFinding(finding.severity, finding.summary, advice, figures=figures)


def _advice(finding: Finding, result: LintResult, framework: str) -> Iterator[str]:
    for remedy in finding.remedies[:_MOST_REMEDIES]:
        advice = advice_for(remedy, result.settings, framework)
        if advice.obstacle:
            continue
        lines = [_setting(line) for line in advice.settings]
        yield f"{advice.title}: {', '.join(lines)}" if lines else advice.title


def _setting(line: SettingLine) -> str:
    return f"{line.line} ({line.note})" if line.note else line.line
