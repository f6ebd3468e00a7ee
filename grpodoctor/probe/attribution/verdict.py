"""The one sentence that a person reads first."""

from __future__ import annotations

import math
from dataclasses import replace

from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.experiments import computes_in
from grpodoctor.probe.comparison.severity import without_numbers
from grpodoctor.probe.results.results import NamedCause

_WORTH_SAYING = 0.1
"""Of the gap left unexplained."""
_SURE = {"proven": "", "likely": "likely ", "possible": "possibly "}


def verdict_of(case: Case, found: Attribution, *, quiet: bool) -> Attribution:
    """The same with its verdict.

    Args:
        case: what was attributed.
        found: what came of it.
        quiet: whether what is left is what rounding amounts to.
    """
    if math.isnan(found.gap):
        text = "No token has a finite log-probability on both sides, or no time was left to look."
    elif not found.causes:
        text = without_numbers(case.comparison) + _without_causes(case, found, quiet=quiet)
    else:
        text = _with_causes(found, quiet=quiet)
    return replace(found, verdict=text)


def _without_causes(case: Case, found: Attribution, *, quiet: bool) -> str:
    sampler, learner = computes_in(case.sampler_facts), computes_in(case.learner_facts)
    if not quiet:
        return (
            f"The engines differ (k3 {found.gap:.2g} nats per token), and no experiment that could "
            "be made here took the difference away."
        )
    if found.gap == 0:
        return "The engines agree: every log-probability is the same to the bit."
    if found.noise is None or found.gap <= found.noise / 100 or sampler == learner == "float32":
        return f"The engines agree: k3 is {found.gap:.2g} nats per token, which is rounding."
    return (
        f"The engines agree as far as {sampler} against {learner} can: k3 is {found.gap:.2g} nats "
        f"per token, and rounding alone moves this model by {found.noise:.2g}."
    )


def _with_causes(found: Attribution, *, quiet: bool) -> str:
    named = [_phrase(each) for each in found.causes[:3]]
    text = f"The engines differ: {'; '.join(named)}."
    if quiet:
        return f"{text} What is left is rounding."
    if found.left is not None and found.left >= _WORTH_SAYING:
        return f"{text} {found.left:.0%} of the gap is not explained."
    return text


def _phrase(cause: NamedCause) -> str:
    title = cause.title[0].lower() + cause.title[1:]
    share = "" if cause.explained is None else f" ({cause.explained:.0%} of the gap)"
    return f"{_SURE[cause.confidence]}{title}{share}"
