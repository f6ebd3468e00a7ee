"""Measurements with a known result, which show whether the probe can be trusted.

Each function returns one `Control`. A control that cannot be measured has not failed: `not_made`
gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.results.results import Comparison, Control, ControlName, Interval
from grpodoctor.support.numbers import part_of

TITLES: dict[ControlName, str] = {
    "self_scoring": "The sampler scores its own tokens",
    "repeat": "The same engine twice",
    "stale_weights": "A learner with wrong weights",
    "same_weights": "Both engines have the same weights",
}

_MEAN, _MAX = "mismatch/prob_diff_mean", "mismatch/prob_diff_max"

TOLERANCE = 2e-3
"""Tolerated mean |Δp| of an engine against itself: decoding and prefilling in 16 bits are
bit-identical in vLLM, differ by 1.3e-4 in SGLang and by 5e-4 to 1e-3 with different kernels."""
TOLERANCE_FLOAT32 = 1e-4
"""The same in float32, where a thousandth of it was observed."""
ORDINARY = 4e-3
"""Largest mean |Δp| of most healthy pairs; two checkpoints differ by more. It decides only
where the rounding of a pair is not measured: models with many layers round more."""
_STANDS_OUT = 2.0
"""Smallest ratio to the pair's gap if there are too few prompts for intervals."""
_NAMED = 5
"""Number of tensors that a sentence names."""


def not_made(name: ControlName, why: str) -> Control:
    """A control that could not be measured.

    Args:
        name: the control.
        why: the reason, a clause.
    """
    return Control(name, TITLES[name], None, f"Not measured: {why}.")


def self_scoring_control(sampled: Path, rescored: Path, *, dtype: str = "bfloat16") -> Control:
    """Compare the log-probabilities that the sampler reported while sampling with its own scores.

    Decoding and prefilling are the same function of the same weights. If they differ, the cause is
    inside the sampler: its cache, its kernels, or log-probabilities of different logits.

    Args:
        sampled: the sampler's shards.
        rescored: the same engine's scores of them, under the processing of `sampled`.
        dtype: the engine's precision, which determines the tolerance.

    Raises:
        EngineError: as `compare`.
    """
    subject = "Between sampling and scoring its own tokens, the sampler"
    return _against_itself("self_scoring", compare(sampled, rescored), subject, dtype)


def repeat_control(scored: Path, scored_backwards: Path, *, dtype: str = "bfloat16") -> Control:
    """Compare an engine's scores with its own scores of the same tokens in another batch order.

    The difference is the noise of the measurement: arithmetic that depends on the batch.

    Args:
        scored: scores in the order given.
        scored_backwards: the same engine's in the opposite order.
        dtype: the engine's precision.

    Raises:
        EngineError: as `compare`.
    """
    subject = "Between two scorings of the same tokens in different orders, the learner"
    return _against_itself("repeat", compare(scored, scored_backwards), subject, dtype)


def _against_itself(name: ControlName, comparison: Comparison, subject: str, dtype: str) -> Control:
    mean, largest = comparison.value(_MEAN), comparison.value(f"{_MAX}/worst_sequence")
    figures = {
        "prob_diff_mean": mean,
        "prob_diff_largest": largest,
        "kl_k3": comparison.value("mismatch/kl_k3"),
    }
    if mean != mean:
        return not_made(name, "no token has a finite log-probability on both sides")
    tolerated = TOLERANCE_FLOAT32 if dtype == "float32" else TOLERANCE
    if not largest:
        summary = f"{subject} gives exactly the same log-probabilities."
        return Control(name, TITLES[name], True, summary, figures)
    summary = (
        f"{subject} differs from itself by a mean |Δp| of {mean:.2g} and a maximum of "
        f"{largest:.2g}; the tolerated mean in {dtype} is {tolerated:.0e}."
    )
    return Control(name, TITLES[name], mean <= tolerated, summary, figures)


def within_rounding(control: Control, limit: float) -> Control:
    """Let an engine's difference from itself pass if it is no larger than the model's rounding.

    The tolerated mean is that of small models; a model with more layers rounds more.

    Args:
        control: any control.
        limit: the largest k3 that counts as rounding in this model, measured.
    """
    k3 = control.figures.get("kl_k3", math.inf)
    if control.passed is not False or not k3 <= limit:
        return control
    summary = (
        f"{control.summary} Its k3 of {k3:.2g} is within the rounding measured in this model, "
        f"{limit:.2g}."
    )
    return replace(control, passed=True, summary=summary)


def stale_control(pair: Comparison, stale: Comparison, *, what: str) -> Control:
    """A learner with wrong weights must differ by more than the pair.

    It passes if its interval of the mean |Δp| is above the pair's. If the pair itself differs as
    much as two checkpoints, the control cannot decide. If the wrong learner is closer, the sampler
    may use its weights.

    Args:
        pair: the comparison of the pair on these tokens.
        stale: the comparison with the wrong learner on the same tokens.
        what: description of its weights, such as `its own weights plus 5% noise`.
    """
    own, wrong = pair.value(_MEAN), stale.value(_MEAN)
    figures = {"prob_diff_mean": own, "stale_prob_diff_mean": wrong}
    if own != own or wrong != wrong:
        return not_made("stale_weights", "no finite log-probabilities to compare")
    ours, theirs = pair.intervals.get(_MEAN), stale.intervals.get(_MEAN)
    numbers = f"{_spoken(wrong, theirs)}, the pair's {_spoken(own, ours)} on the same tokens"
    if ours is not None and theirs is not None:
        out, nearer = theirs.low > ours.high, theirs.high < ours.low
    else:
        out, nearer = wrong > _STANDS_OUT * own, own > _STANDS_OUT * wrong
    title = TITLES["stale_weights"]
    if out:
        summary = f"The learner with {what} is flagged: its mean |Δp| is {numbers}."
        return Control("stale_weights", title, True, summary, figures)
    if nearer:
        summary = (
            f"The learner with {what} is closer to the sampler than the learner itself: its mean "
            f"|Δp| is {numbers}. The sampler may use such weights."
        )
        return Control("stale_weights", title, None, summary, figures)
    if own > ORDINARY:
        summary = (
            f"The pair's own gap is too large to distinguish the learner with {what}: its mean "
            f"|Δp| is {numbers}."
        )
        return Control("stale_weights", title, None, summary, figures)
    summary = f"The learner with {what} was not flagged: its mean |Δp| is {numbers}."
    return Control("stale_weights", title, False, summary, figures)


def weights_control(differing: Sequence[str] | None, tensors: int) -> Control:
    """Compare the checksums of both engines' weights.

    Args:
        differing: names of tensors that differ or that only one side has; None if unknown.
        tensors: total number of tensors.
    """
    name: ControlName = "same_weights"
    if differing is None or not tensors:
        return not_made(name, "the checksums of one side's weights are unknown")
    figures = {"tensors": float(tensors), "differing": float(len(differing))}
    if not differing:
        summary = f"All {tensors} tensors have the same checksums on both sides."
        return Control(name, TITLES[name], True, summary, figures)
    named = ", ".join(differing[:_NAMED])
    more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
    summary = f"{part_of(len(differing), tensors, 'tensors', 'differ')} by checksum: {named}{more}."
    return Control(name, TITLES[name], False, summary, figures)


def _spoken(value: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{value:.2g}"
    return f"{value:.2g} ({interval.low:.2g} to {interval.high:.2g})"
