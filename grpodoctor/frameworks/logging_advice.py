"""How to make a framework log a metric that a rule needs."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.frameworks import torch_loop
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.registry import GENERIC, find_framework, logging_frameworks

_RECOMPUTED = "/recomputed"
_IN_EVERY_DUMP = "groups/zero_variance_rate"
"""A metric that every dump gives: all of them hold rewards and prompts."""

_FROM_TEXTS = "text/"
_FROM_REWARDS = (
    _IN_EVERY_DUMP,
    "groups/effective_rate",
    "groups/reward_std",
    "groups/duplicate_rate",
    "groups/equal_text_variance",
    "groups/other_text_variance",
    "reward/std",
)
"""Further metrics that follow from the texts and the rewards of a dump."""


def how_to_log(name: str, metrics: Sequence[str]) -> str:
    """What to log or dump so that a metric can be read.

    Args:
        name: the framework's name, as in a manifest.
        metrics: canonical metrics, best first; any one of them is enough.

    Returns:
        One line, which states so if the framework logs none of them; empty for the bundled
        trainer's runs and for logs with generic key names.
    """
    if name == torch_loop.NAME:
        return _call(metrics) or ""
    framework = find_framework(name, logging_frameworks())
    if framework is None or framework.name == GENERIC:
        return ""
    if all(metric.endswith(_RECOMPUTED) for metric in metrics):
        return f"requires a rollout dump alongside the log{_dump_setting(framework)}"
    rows = list(framework.rows_of(metrics))
    if rows:
        # Rows that hold with default settings come first, then the better metric.
        return _logged_as(framework, min(rows, key=lambda row: len(_conditions(framework, row))))
    if _IN_EVERY_DUMP in metrics and framework.how_to_dump:
        dump = _dump_setting(framework)
        return f"{framework.title} does not log this, but its rollout dumps contain it{dump}"
    return f"{framework.title} does not log this"


def logged_among(name: str, metrics: Sequence[str]) -> tuple[str, ...]:
    """Those of some metrics that a framework logs; all of them if its keys are not known.

    Args:
        name: the framework's name, as in a manifest.
        metrics: canonical metrics, best first.
    """
    framework = find_framework(name, logging_frameworks())
    if framework is None or framework.name == GENERIC:
        return tuple(metrics)
    return tuple(metric for metric in metrics if any(framework.rows_of((metric,))))


def setting_that_logs(name: str, metrics: Sequence[str]) -> str | None:
    """The setting that makes a metric readable, as an instruction; None if no setting does.

    Args:
        name: the framework's name, as in a manifest.
        metrics: canonical metrics, best first; any one of them is enough.
    """
    if name == torch_loop.NAME:
        return _call(metrics)
    framework = find_framework(name, logging_frameworks())
    if framework is None:
        return None
    if framework.name == GENERIC:
        first = next(framework.rows_of(metrics), None)
        return f"log {first.keys[0]}" if first else None
    rows = list(framework.rows_of(metrics))
    row = next((row for row in rows if row.how_to_log), None)
    if row is not None:
        since = f" (needs {framework.title} {row.since} or later)" if row.since else ""
        return f"{row.how_to_log}{since}"
    if framework.how_to_dump and any(_is_in_dumps(metric) for metric in metrics):
        return framework.how_to_dump
    dated = [row.since for row in rows if row.since and not row.until]
    return f"upgrade {framework.title} to {dated[0]} or later" if dated else None


def how_to_dump_logprobs(name: str) -> str:
    """How the dumps of a framework come to hold the log-probabilities of both engines.

    Args:
        name: the framework's name, as in a manifest.

    Returns:
        An instruction; empty if no setting does it, or the framework is unknown.
    """
    framework = find_framework(name, logging_frameworks())
    return framework.how_to_dump_logprobs if framework is not None else ""


def _call(metrics: Sequence[str]) -> str | None:
    """The call of a torch loop's doctor that gives the best of the metrics that any call gives."""
    return next((call for each in metrics if (call := torch_loop.call_that_gives(each))), None)


def _is_in_dumps(metric: str) -> bool:
    return metric.endswith(_RECOMPUTED) or metric.startswith(_FROM_TEXTS) or metric in _FROM_REWARDS


def _dump_setting(framework: Framework) -> str:
    return f"; to write one, {framework.how_to_dump}" if framework.how_to_dump else ""


def _logged_as(framework: Framework, row: KeyMeaning) -> str:
    conditions = _conditions(framework, row)
    condition = f" if {' and '.join(conditions)}" if conditions else ""
    since = f" since {row.since}" if row.since else ""
    line = f"{framework.title} logs it as {' with '.join(row.keys)}{condition}{since}"
    return line + (f"; to enable it, {row.how_to_log}" if row.how_to_log else "")


def _conditions(framework: Framework, row: KeyMeaning) -> list[str]:
    """The settings that a row requires and that are not the defaults."""
    return [
        f"{name}={allowed[0]}"
        for name, allowed in row.when.items()
        if framework.defaults.get(name) not in allowed
    ]
