"""The first round: a small part of the responses, so that a first answer comes within a minute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grpodoctor.probe.attribution.causes.sampling.wrong_sampler import OVER_GAP, STANDARD_ERRORS
from grpodoctor.probe.engines.shards import read_pairs
from grpodoctor.probe.forecast import Forecast, in_words
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.inputs.prompts import Prompt
from grpodoctor.probe.results.results import Cell, Comparison
from grpodoctor.probe.run_mismatch.recorded_tokens import StepTokens, joined
from grpodoctor.probe.run_mismatch.signatures import UNKNOWN, LikelyCause, likely_causes
from grpodoctor.probe.severity import figure, measured_severity, severity_of

_PROMPTS, _MAX_TOKENS = 32, 64
"""Size of the first round: about 2,000 tokens, enough for the gap and for most signatures."""
_LATE_SECONDS = 60.0
"""A first round is made if the whole measurement would take longer."""
_MOST_OF_BUDGET = 0.75
"""Largest share of the budget that the whole measurement may take without a first round."""
_SAFE = 0.2
"""Largest share of the budget of a forecast that holds on a busy machine, too."""
_FAR_LONGER = 2.0
"""Multiple of the printed forecast from which it is corrected: estimates by size are no closer."""
_SHORT_BUDGET = 120.0
"""Seconds below which the first round is smaller: it must end within a minute."""
_MOST_LOADING = 0.5
"""Largest share of the measurement that loading the engines once more may take."""
_LEAST_TIMES = 8
"""A measurement of fewer than this multiple of the first round's tokens has no first round."""


def first_plan(plan: ProbePlan, prompts: int) -> ProbePlan | None:
    """The plan of the first round; None if the whole measurement is hardly larger.

    Args:
        plan: the whole plan.
        prompts: number of prompts.
    """
    sampling = plan.sampling
    count, longest = _size(plan)
    length = min(longest, *sampling.max_tokens)
    tokens = prompts * sampling.samples * sum(sampling.max_tokens)
    if any(spec.is_record for spec in (*plan.samplers, *plan.learners)):
        return None  # a record answers at once
    if not plan.controls and not plan.attribution:
        return None  # a gate, which judges all responses
    if tokens < _LEAST_TIMES * min(prompts, count) * length:
        return None
    small = sampling.model_copy(update={"samples": 1, "max_tokens": (length,)})
    changes = {
        "sampling": small,
        "attribution": False,
        "controls": False,
        "experts": False,
        "limit": count,
    }
    return plan.model_copy(update=changes)


def _size(plan: ProbePlan) -> tuple[int, int]:
    """Prompts and tokens of the first round: a quarter of them under a short budget."""
    if plan.budget is not None and plan.budget < _SHORT_BUDGET:
        return _PROMPTS // 2, _MAX_TOKENS // 2
    return _PROMPTS, _MAX_TOKENS


def is_late(forecast: Forecast) -> bool:
    """Whether the whole measurement answers too late, and a first round much sooner.

    An unknown time is too late, and so is one that leaves little of the budget.
    """
    if forecast.seconds is None:
        return True
    if forecast.seconds > _MOST_OF_BUDGET * (forecast.budget or math.inf):
        return True  # without a first round, a budget that ends leaves no figure at all
    is_sooner = forecast.loading_seconds <= _MOST_LOADING * forecast.seconds
    return forecast.seconds > _LATE_SECONDS and is_sooner


def is_checked(forecast: Forecast) -> bool:
    """Whether the first sampler's times decide about a first round.

    Speeds of earlier probes were measured while the machine had other work.
    """
    if not forecast.is_measured or forecast.seconds is None:
        return True
    return forecast.budget is not None and forecast.seconds > _SAFE * forecast.budget


def is_too_low(forecast: Forecast, measured: Forecast) -> bool:
    """Whether a printed forecast is to be corrected by one with measured times.

    It is if the probe takes far longer, or a first round is needed after all.
    """
    if is_late(measured) and not is_late(forecast):
        return True
    if forecast.seconds is None or measured.seconds is None:
        return False
    return measured.seconds > _FAR_LONGER * forecast.seconds


def first_prompts(prompts: Sequence[Prompt], count: int = _PROMPTS) -> list[Prompt]:
    """The prompts of the first round, at equal distances: files are often sorted."""
    step = max(1, len(prompts) / count)
    return [prompts[int(place * step)] for place in range(min(len(prompts), count))]


def first_answer(cell: Cell, seconds: float, likely: LikelyCause | None, follows: str) -> str:
    """The first answer about a pair: a verdict, the gap and its likely cause by signature.

    Args:
        cell: the measured pair.
        seconds: time since the start of the probe.
        likely: the most specific cause whose signature the tokens have.
        follows: what is measured next, and its forecast.
    """
    if cell.comparison is None:
        return ""
    is_known = likely is not None and likely.cause != UNKNOWN
    odd = _odd_tokens(cell.comparison)
    is_healthy = severity_of(cell) == "none" and not is_known and not odd
    gap = "large gap" if measured_severity(cell) == "critical" else "differ"
    word = "agree" if is_healthy else gap
    if not is_healthy and not is_known and not odd and _is_open(cell):
        word = "undecided"
        likely = None
    if cell.untried and measured_severity(cell) == "none" and not is_known and not odd:
        word = "unsure"
    cause = ""
    if not is_healthy and likely is not None and (is_known or not odd):
        shown = f"Likely cause, by signature: {likely.cause}"
        cause = f" {shown if is_known else 'The tokens have no signature of a single cause'}."
    return (
        f"first answer after {seconds:.0f} s, {cell.sampler} and {cell.learner}: {word}. "
        f"{cell.verdict} {cell.comparison.responses:,} responses.{odd}{cause} {follows}"
    ).rstrip()


def _is_open(cell: Cell) -> bool:
    """Whether only a measurement of the model's own rounding can decide about a gap.

    Models with many layers round more than the tiny ones of the usual values, but by less than
    what harmed training.
    """
    return cell.noise_is_usual and severity_of(cell) in ("info", "warning")


def _odd_tokens(comparison: Comparison) -> str:
    """A sentence if the tokens were not drawn from the learner's distribution; else empty."""
    z, k3 = comparison.entropy_z, figure(comparison, "mismatch/kl_k3")
    if z is None or abs(z) <= STANDARD_ERRORS + OVER_GAP * math.sqrt(2 * k3 * comparison.tokens):
        return ""
    return f" The tokens do not follow the reported distribution: log p + entropy has z = {z:.1f}."


def refining(seconds: float | None, *, attribution: bool, controls: bool = True) -> str:
    """What follows after a first answer, for its last sentence; empty if nothing follows."""
    if not attribution and not controls:
        return ""
    names = [("controls", controls), ("causes", attribution)]
    what = " and ".join(name for name, follows in names if follows)
    return f"Refining: {what} follow{'' if seconds is None else f' within {in_words(seconds)}'}."


def signature_of(rollouts: Path, scored: Path) -> LikelyCause | None:
    """The most specific cause whose signature a pair's tokens have; None if they only round.

    Raises:
        EngineError: if a shard is damaged.
    """
    parts: list[StepTokens] = []
    responses = 0
    for sampler, learner in read_pairs(rollouts, scored):
        finite_N = np.isfinite(sampler.logprobs_N) & np.isfinite(learner.logprobs_N)
        parts.append(
            StepTokens(
                0,
                sampler.logprobs_N[finite_N].astype(float),
                learner.logprobs_N[finite_N].astype(float),
                (sampler.rows_N + responses)[finite_N],
                sampler.positions_N[finite_N],
                sampler.lengths_B[sampler.rows_N][finite_N],
                int((~finite_N).sum()),
            )
        )
        responses += len(sampler.prompt_B)
    causes = likely_causes(joined(parts)) if parts else ()
    return next((cause for cause in causes if cause.is_fault), None)
