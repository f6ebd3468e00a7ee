"""Measurements whose outcome is known beforehand: whether the instrument can be believed.

Each makes one `Control`. What could not be measured is no failure: `not_made` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.results.results import Comparison, Control, ControlName, Interval
from grpodoctor.vocabulary.values import scalar

TITLES: dict[ControlName, str] = {
    "self_scoring": "The sampler scores its own tokens",
    "repeat": "The same engine twice",
    "stale_weights": "A learner that is wrong on purpose",
    "same_weights": "Both engines hold the same weights",
}

_MEAN, _MAX = "mismatch/prob_diff_mean", "mismatch/prob_diff_max"

TOLERANCE = 2e-3
"""Mean |Δp| that an engine may show against itself: decoding and prefilling in 16 bits are the same
to the bit in vLLM, differ by 1.3e-4 in SGLang and by 5e-4 to 1e-3 where kernels differ."""
TOLERANCE_FLOAT32 = 1e-4
"""The same in float32, where a thousand times less was seen."""
ORDINARY = 4e-3
"""Mean |Δp| that two sound engines show at most; two checkpoints differ by more."""
_STANDS_OUT = 2.0
"""Times the pair's gap that must be exceeded where there are too few prompts for intervals."""
_NAMED = 5
"""Tensors that a sentence names."""


def not_made(name: ControlName, why: str) -> Control:
    """A control that could not be made.

    Args:
        name: which.
        why: a clause.
    """
    return Control(name, TITLES[name], None, f"Not made: {why}.")


def self_scoring_control(sampled: Path, rescored: Path, *, dtype: str = "bfloat16") -> Control:
    """The sampler's log-probabilities while it sampled against those of its own scoring.

    Decoding and prefilling are the same function of the same weights. Where they differ, the cause
    is within the sampler: its cache, its kernels, or log-probabilities that are taken of other
    logits on either way.

    Args:
        sampled: the sampler's shards.
        rescored: the same engine's scores of them, under the processing that `sampled` is told in.
        dtype: in which the engine computes, which decides what is tolerated.

    Raises:
        EngineError: as `compare`.
    """
    told = "While sampling and when scoring its own tokens the sampler"
    return _itself("self_scoring", compare(sampled, rescored), told, dtype)


def repeat_control(scored: Path, scored_backwards: Path, *, dtype: str = "bfloat16") -> Control:
    """One engine's scores against its own of the same tokens among other neighbours.

    What differs here is the noise of the instrument: arithmetic that depends on the batch.

    Args:
        scored: scores in the order given.
        scored_backwards: the same engine's in the opposite order.
        dtype: in which the engine computes.

    Raises:
        EngineError: as `compare`.
    """
    told = "Scoring the same tokens twice, in another order, the learner"
    return _itself("repeat", compare(scored, scored_backwards), told, dtype)


def _itself(name: ControlName, found: Comparison, who: str, dtype: str) -> Control:
    mean, largest = _figure(found, _MEAN), _figure(found, f"{_MAX}/worst_sequence")
    figures = {"prob_diff_mean": mean, "prob_diff_largest": largest}
    if mean != mean:
        return not_made(name, "no token has a finite log-probability on both sides")
    tolerated = TOLERANCE_FLOAT32 if dtype == "float32" else TOLERANCE
    if not largest:
        return Control(name, TITLES[name], True, f"{who} gives exactly the same numbers.", figures)
    told = (
        f"{who} differs from itself by {mean:.2g} in the probability of a token on average and by "
        f"{largest:.2g} at most; {tolerated:.0e} is tolerated in {dtype}."
    )
    return Control(name, TITLES[name], mean <= tolerated, told, figures)


def stale_control(pair: Comparison, stale: Comparison, *, what: str) -> Control:
    """A learner whose weights are wrong on purpose must differ by more than the pair does.

    It stands out if its interval of the mean |Δp| lies above the pair's. Where the pair itself is
    as far apart as two checkpoints are, there is nothing left to stand out from. Where the wrong
    learner is the nearer one, the sampler may hold its weights.

    Args:
        pair: what was measured of these tokens.
        stale: the same tokens with the wrong learner.
        what: the wrong learner, such as `a checkpoint with 2 % of noise on its weights`.
    """
    own, wrong = _figure(pair, _MEAN), _figure(stale, _MEAN)
    figures = {"prob_diff_mean": own, "stale_prob_diff_mean": wrong}
    if own != own or wrong != wrong:
        return not_made("stale_weights", "there are no finite log-probabilities to compare")
    ours, theirs = pair.intervals.get(_MEAN), stale.intervals.get(_MEAN)
    numbers = f"{_spoken(wrong, theirs)} against the pair's {_spoken(own, ours)} on the same tokens"
    if ours is not None and theirs is not None:
        out, nearer = theirs.low > ours.high, theirs.high < ours.low
    else:
        out, nearer = wrong > _STANDS_OUT * own, own > _STANDS_OUT * wrong
    title = TITLES["stale_weights"]
    if out:
        told = f"The learner made of {what} is flagged: its mean |Δp| is {numbers}."
        return Control("stale_weights", title, True, told, figures)
    if nearer:
        told = (
            f"The learner made of {what} is nearer to the sampler than the learner itself: its "
            f"mean |Δp| is {numbers}. The sampler may hold such weights."
        )
        return Control("stale_weights", title, None, told, figures)
    if own > ORDINARY:
        told = (
            f"The pair's own gap is so large that the learner made of {what} cannot stand out: its "
            f"mean |Δp| is {numbers}."
        )
        return Control("stale_weights", title, None, told, figures)
    told = f"The learner made of {what} was not flagged: its mean |Δp| is {numbers}."
    return Control("stale_weights", title, False, told, figures)


def weights_control(differing: Sequence[str] | None, tensors: int) -> Control:
    """Whether the two engines were given the same weights, by checksum.

    Args:
        differing: names of tensors that differ or that only one side has; None if not known.
        tensors: how many there are in all.
    """
    name: ControlName = "same_weights"
    if differing is None or not tensors:
        return not_made(name, "the checksums of one side's weights are not known")
    figures = {"tensors": float(tensors), "differing": float(len(differing))}
    if not differing:
        told = f"All {tensors} tensors are the same on both sides, by checksum."
        return Control(name, TITLES[name], True, told, figures)
    named = ", ".join(differing[:_NAMED])
    more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
    told = f"{len(differing)} of {tensors} tensors differ by checksum: {named}{more}."
    return Control(name, TITLES[name], False, told, figures)


def _figure(comparison: Comparison, metric: str) -> float:
    reading = comparison.readings.get(metric)
    number = None if reading is None else scalar(reading)
    return float("nan") if number is None else number


def _spoken(value: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{value:.2g}"
    return f"{value:.2g} ({interval.low:.2g} to {interval.high:.2g})"
