"""How a metric that a rule needs can be logged."""

from __future__ import annotations

from grpodoctor.frameworks.logging_advice import how_to_log, logged_among
from grpodoctor.vocabulary.metric_qualifiers import INFERRED
from grpodoctor.vocabulary.metrics import metric_of

_ALTERNATIVES_NAMED = 3
"""Alternatives of a required metric that are named at most; if there are more, the last place is
the count of the others."""


def how_to_enable(names: tuple[str, ...], framework: str) -> str:
    """How to log one of these metrics, in the terms of a framework.

    Alternatives that the framework does not log are left out.
    """
    metric = metric_of(names[0])
    recording = metric.how if metric is not None else ""
    names = tuple(name for name in names if not name.endswith(f"/{INFERRED}"))
    key = how_to_log(framework, names)
    if not (recording or key):
        key = f"log it, or name its key with --map KEY={names[0]}"
    alternatives = _name_alternatives(logged_among(framework, names[1:]))
    return "; ".join(part for part in (recording, key, alternatives) if part)


def _name_alternatives(names: tuple[str, ...]) -> str:
    if len(names) > _ALTERNATIVES_NAMED:
        rest = len(names) - _ALTERNATIVES_NAMED + 1
        names = (*names[: _ALTERNATIVES_NAMED - 1], f"{rest} others")
    return f"alternative metrics: {', '.join(names)}" if names else ""
