"""Which key of a framework would feed a metric, and how that framework is told to log it."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.frameworks.catalogue import all_frameworks
from grpodoctor.frameworks.log_keys import Framework, Meaning

_PLAIN = "generic"
_FROM_DUMPS = "/recomputed"
_OF_ANY_DUMP = "groups/zero_variance_rate"
"""What every dump tells: all have rewards by prompt."""


def feeding(framework: str, metrics: Sequence[str]) -> str:
    """What to log, in the framework's own words.

    Args:
        framework: its name, as a manifest has it.
        metrics: canonical metrics, any of which will do, best first.

    Returns:
        A line, which says so where the framework has no such key; empty for our own recorder's runs
        and for scripts that name things as they like.
    """
    known = {each.name: each for each in all_frameworks()}
    if framework not in known or framework == _PLAIN:
        return ""
    title = known[framework].title
    rows = [row for name in metrics for row in known[framework].meanings if row.metric == name]
    if all(name.endswith(_FROM_DUMPS) for name in metrics):
        return f"it is made of a rollout dump beside the log{_dumped(known[framework])}"
    if not rows and _OF_ANY_DUMP in metrics and known[framework].dumps:
        told = _dumped(known[framework])
        return f"no key of {title} says it, but a rollout dump beside the log does{told}"
    if not rows:
        return f"no key of {title} says it"
    # What is logged as things are by default goes first, then the better metric.
    return _told(known[framework], min(rows, key=lambda row: len(_needed(known[framework], row))))


def _dumped(framework: Framework) -> str:
    return f": {framework.dumps}" if framework.dumps else ""


def _told(framework: Framework, row: Meaning) -> str:
    needed = _needed(framework, row)
    under = f" under {' and '.join(needed)}" if needed else ""
    since = f" since {row.since}" if row.since else ""
    line = f"{framework.title} logs it as {' with '.join(row.keys)}{under}{since}"
    return line + (f": {row.how}" if row.how else "")


def _needed(framework: Framework, row: Meaning) -> list[str]:
    """The settings that a row asks for and that are not so by default."""
    return [
        f"{name}={allowed[0]}"
        for name, allowed in row.when.items()
        if framework.defaults.get(name) not in allowed
    ]
