"""The verdict of attribution: the sentence that a person reads first."""

from __future__ import annotations

import math
from dataclasses import replace

from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.rounding import RoundingFlips
from grpodoctor.probe.engines.jobs import computes_in
from grpodoctor.probe.results.results import Cell, NamedCause
from grpodoctor.probe.severity import (
    EXACT,
    UNEXPLAINED,
    is_fault,
    is_within_rounding,
    large_rounding,
    without_numbers,
)

_WORTH_SAYING = 0.1
"""Smallest unexplained share of the gap that the verdict mentions."""
_SURE = {"proven": "", "likely": "likely ", "possible": "possibly "}


def verdict_of(
    case: Case, found: Attribution, *, quiet: bool, is_cut_short: bool = False
) -> Attribution:
    """Add the verdict to an attribution.

    Args:
        case: the input of attribution.
        found: its result without a verdict.
        quiet: whether the remaining gap is rounding.
        is_cut_short: whether the time budget ended before all experiments were run.
    """
    if math.isnan(found.gap):
        text = "No token has a finite log-probability on both sides, or the time budget ended."
    elif not found.causes:
        is_unknown = is_cut_short and not quiet
        why = _cut_short(found) if is_unknown else _without_causes(case, found, quiet=quiet)
        text = without_numbers(case.comparison) + why
    elif _is_rounding(case, found):
        agree = _without_causes(case, found, quiet=True)
        origin = "; ".join(map(_phrase, found.causes[:3]))
        text = f"{without_numbers(case.comparison)}{agree} The difference comes from: {origin}."
    else:
        text = _with_causes(found, quiet=quiet)
    return replace(found, verdict=text)


def _cell(case: Case, found: Attribution) -> Cell:
    return Cell(
        sampler="",
        learner="",
        max_tokens=case.sampling.max_tokens,
        status="done",
        comparison=case.comparison,
        gap=found.gap,
        noise=found.noise,
        noise_is_usual=found.noise_is_usual,
    )


def _is_rounding(case: Case, found: Attribution) -> bool:
    """Whether all causes of a gap within rounding are numerical, so that none is a fault."""
    cell = _cell(case, found)
    return is_within_rounding(cell) and not any(is_fault(cell, each) for each in found.causes)


def _without_causes(case: Case, found: Attribution, *, quiet: bool) -> str:
    sampler, learner = computes_in(case.sampler_facts), computes_in(case.learner_facts)
    if not quiet:
        return (
            f"The engines differ (k3 {found.gap:.2g} nats per token). No experiment "
            "removed the difference."
        )
    if found.gap == 0:
        return "The engines agree: all log-probabilities are bit-identical."
    if found.noise is None or found.gap <= found.noise / 100 or sampler == learner == "float32":
        return f"The engines agree: k3 is {found.gap:.2g} nats per token, which is rounding."
    where = " before the experts differ" if found.flips else ""
    rounding = f"rounding alone causes {found.noise:.2g} in this model"
    if found.noise_is_usual:
        rounding = f"usual rounding is {found.noise:.2g}; that of this model cannot be measured"
    text = (
        f"The engines agree within the precision of {sampler} and {learner}: k3 is {found.gap:.2g} "
        f"nats per token{where}, and {rounding}.{large_rounding(_cell(case, found))}"
    )
    return f"{text} {_flips(found.flips)}" if found.flips else text


def _flips(flips: RoundingFlips) -> str:
    return (
        f"{flips.share:.2%} of the tokens are routed to different experts, and rounding alone "
        f"routes {flips.own_share:.2%} of them differently."
    )


def _cut_short(found: Attribution) -> str:
    return (
        f"k3 is {found.gap:.2g} nats per token, and the time budget ended before its cause was "
        "found. Run the probe again with the same --output and a larger --budget."
    )


def _with_causes(found: Attribution, *, quiet: bool) -> str:
    named = [_phrase(each) for each in found.causes[:3]]
    where = f" in {found.subset}" if found.subset else ""
    text = f"The engines differ{where}: {'; '.join(named)}."
    if found.flips:
        text += f" {_flips(found.flips)}"
    rest = found.left * found.gap if found.left is not None else math.inf
    if found.gap <= EXACT:  # the drawn tokens show the cause
        return f"{text} The reported log-probabilities of these tokens agree."
    if quiet or rest <= EXACT:
        return f"{text} The rest is rounding."
    if found.left is None:
        return text
    if found.left >= _WORTH_SAYING:
        return f"{text} {found.left:.0%} of the gap is unexplained."
    return f"{text} The rest (k3 {rest:.2g} nats per token) exceeds rounding and is unexplained."


def _phrase(cause: NamedCause) -> str:
    title = cause.title[0].lower() + cause.title[1:]
    share = "" if cause.explained is None else f" ({cause.explained:.0%} of the gap)"
    sure = "" if cause.cause in UNEXPLAINED else _SURE[cause.confidence]
    return f"{sure}{title}{share}"
