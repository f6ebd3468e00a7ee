"""What the differences of recorded log-probabilities look like, and which cause looks like that.

A signature is a statement about the tokens alone, so the cause is possible, never proven. Each
names the experiment that would prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.divergence import k3
from grpodoctor.probe.run_mismatch.recorded_tokens import StepTokens
from grpodoctor.support.numbers import part_of

MIN_TOKENS = 200
"""Fewer tokens have no signature."""
_MAX_SHIFT = 3
_UNITS = {"log2": 1 / np.log(2), "log10": 1 / np.log(10)}
UNKNOWN = "unknown: other weights (stale, quantized), or other kernels"


CauseKind = Literal[
    "copied", "log-unit", "shifted", "storage-precision", "end-token", "prompts",
    "truncated-support", "few-responses", "temperature", "long-context", "rounding", "unknown",
    "undelivered-weights", "jump",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """A cause whose signature the tokens have."""

    kind: CauseKind
    cause: str
    evidence: str
    """The numbers, one sentence."""
    experiment: str
    """What would prove it, in sentences; empty if nothing needs to be proven."""
    is_fault: bool = True
    """False for rounding, and for equal values."""
    command: str = ""
    """A test on the recorded responses, for a shell; empty if there is none."""
    note: str = ""
    """How to read the command's result, and what its model differs in; may be empty."""


def likely_causes(tokens: StepTokens) -> tuple[LikelyCause, ...]:
    """The causes that fit, the most specific first."""
    if tokens.sampler_N.size < MIN_TOKENS:
        return ()
    if not np.any(tokens.difference_N):
        return (_COPIED,)
    found = (cause for signature in _SIGNATURES for cause in signature(tokens))
    return tuple(found) or tuple(_by_size(tokens))


_COPIED = LikelyCause(
    "copied",
    "the same values on both sides",
    "Both sides are equal to the last bit, so the record says nothing about the engines.",
    "Check whether the trainer copies the sampler's values, or run a batch-invariant engine.",
    is_fault=False,
)


def _units(tokens: StepTokens) -> Iterator[LikelyCause]:
    """One side is a constant multiple of the other: another base of the logarithm."""
    below_N = (tokens.sampler_N < -1e-6) & (tokens.learner_N < -1e-6)
    if below_N.sum() < MIN_TOKENS / 2:
        return
    factor_N = tokens.sampler_N[below_N] / tokens.learner_N[below_N]
    factor = float(np.median(factor_N))
    spread = float(np.median(np.abs(factor_N - factor))) / factor
    for name, unit in _UNITS.items():
        for side, value in (("sampler", unit), ("learner", 1 / unit)):
            if abs(factor / value - 1) < 0.02 and spread < 0.05:
                yield LikelyCause(
                    "log-unit",
                    f"the {side} reports {name}, not natural logarithms",
                    f"The sampler's values are {factor:.3f} times the learner's; {name} gives "
                    f"{value:.3f}.",
                    f"Divide the {side}'s values by {_UNITS[name]:.4f} and compare again.",
                )


def _shifted(tokens: StepTokens) -> Iterator[LikelyCause]:
    """The values of one side belong to tokens nearby."""
    own = _correlation(tokens.sampler_N, tokens.learner_N)
    for shift in range(1, _MAX_SHIFT + 1):
        same_N = tokens.row_N[shift:] == tokens.row_N[:-shift]
        for sign in (1, -1):
            first, second = tokens.sampler_N, tokens.learner_N
            if sign < 0:
                first, second = second, first
            other = _correlation(first[:-shift][same_N], second[shift:][same_N])
            if other > 0.9 and other > own + 0.1:
                late = "learner" if sign > 0 else "sampler"
                yield LikelyCause(
                    "shifted",
                    f"the {late}'s values are shifted by {shift}",
                    f"The correlation is {own:.2f} in place, {other:.2f} when shifted by {shift}.",
                    "Compare the token ids that both sides scored, position by position.",
                )
                return


def _truncated_support(tokens: StepTokens) -> Iterator[LikelyCause]:
    """The sampler's values are never below the learner's: its support is smaller."""
    difference_N = tokens.difference_N
    one_sided = (difference_N <= _noise(tokens)).mean() > 0.995 and difference_N.mean() < -0.003
    # Every token is renormalized, unless its distribution has a single likely token.
    if one_sided and (difference_N < -1e-5).mean() > 0.25:
        yield LikelyCause(
            "truncated-support",
            "truncated support in the sampler (top-p, top-k, min-p, grammar)",
            f"The learner's value is below the sampler's on {(difference_N < 0).mean():.1%} of "
            f"tokens; the mean difference is {difference_N.mean():.4f}.",
            "Sample a few steps with top_p=1, top_k off, min_p=0 and no structured output; the gap "
            "must vanish.",
        )


def _temperature(tokens: StepTokens) -> Iterator[LikelyCause]:
    """Likely tokens differ in one direction, and unlikely tokens in the other."""
    likely_N = (tokens.sampler_N > np.log(0.5)) & (tokens.sampler_N < np.log(0.97))
    rare_N = tokens.sampler_N < np.log(0.1)
    if min(likely_N.sum(), rare_N.sum()) < 30:
        return
    likely, rare = (_mean_and_error(tokens.difference_N[chosen]) for chosen in (likely_N, rare_N))
    opposite = likely[0] * rare[0] < 0
    if opposite and all(abs(mean) > 5 * error for mean, error in (likely, rare)):
        hot = "sampler" if likely[0] > 0 else "learner"
        yield LikelyCause(
            "temperature",
            f"another temperature: the {hot} is hotter",
            f"The learner's log-probabilities differ by {likely[0]:+.3f} nats on likely tokens and "
            f"{rare[0]:+.3f} on unlikely ones.",
            "Set the same temperature on both sides, and divide the learner's logits by it.",
        )


def _first_tokens(tokens: StepTokens) -> Iterator[LikelyCause]:
    yield from _localized(
        tokens,
        tokens.position_N < 4,
        "prompts",
        cause="the two sides read different prompts (BOS, template, generation prompt)",
        where="first four tokens of a response",
        experiment="Compare the prompt ids that both sides received.",
    )


def _last_token(tokens: StepTokens) -> Iterator[LikelyCause]:
    yield from _localized(
        tokens,
        tokens.position_N == tokens.length_N - 1,
        "end-token",
        cause="the end token is handled differently",
        where="last token of a response",
        experiment="Compare the two sides without the last token of each response.",
    )


def _late_tokens(tokens: StepTokens) -> Iterator[LikelyCause]:
    limit = np.percentile(tokens.position_N, 75)
    yield from _localized(
        tokens,
        tokens.position_N > limit,
        "long-context",
        cause="long contexts are computed differently (window, rope, KV cache)",
        where=f"tokens after position {limit:.0f}",
        experiment="Probe both engines on prompts of half and of double this length.",
    )


def _few_responses(tokens: StepTokens) -> Iterator[LikelyCause]:
    """A few responses hold nearly all of the KL."""
    terms_N = k3(tokens.difference_N)
    by_row = np.bincount(tokens.row_N, weights=terms_N)
    by_row = np.sort(by_row[np.bincount(tokens.row_N) > 0])[::-1]
    most = max(int(0.1 * by_row.size), 1)
    share = float(by_row[:most].sum() / by_row.sum()) if by_row.sum() else 0.0
    if by_row.size >= 30 and share > 0.9:
        yield LikelyCause(
            "few-responses",
            "single responses are scored as other tokens (retokenization, other prompt, adapter)",
            f"{part_of(most, by_row.size, 'responses', 'hold')} {share:.0%} of the KL.",
            "Compare the token ids of these responses between sampler and learner.",
        )


def _rounded(tokens: StepTokens) -> Iterator[LikelyCause]:
    """One side's values are all numbers of bfloat16, and the gap is not above its rounding."""
    for side, values_N in (("sampler", tokens.sampler_N), ("learner", tokens.learner_N)):
        error_N = np.abs(tokens.difference_N) / np.maximum(np.abs(values_N), 1e-12)
        if _are_bfloat16(values_N) and np.percentile(error_N[values_N != 0.0], 95) <= 2**-8:
            is_fault = float(k3(tokens.difference_N).mean()) > SOUND_KL
            yield LikelyCause(
                "storage-precision",
                f"the {side}'s log-probabilities were stored in bfloat16",
                "All its values are numbers of bfloat16, and the differences are within its "
                "rounding.",
                f"Store the {side}'s log-probabilities in float32." if is_fault else "",
                is_fault=is_fault,
            )
            return


_SIGNATURES: tuple[Callable[[StepTokens], Iterator[LikelyCause]], ...] = (
    _units, _shifted, _rounded, _last_token, _first_tokens, _truncated_support, _few_responses,
    _temperature, _late_tokens,
)  # fmt: skip


def _by_size(tokens: StepTokens) -> Iterator[LikelyCause]:
    """The cause of differences that are spread over all tokens: rounding, or other weights."""
    mean, largest = float(k3(tokens.difference_N).mean()), float(np.abs(tokens.difference_N).max())
    if mean <= SOUND_KL:
        yield LikelyCause(
            "rounding",
            "rounding in different kernels or precisions",
            f"The KL is {mean:.2g} nats per token and the largest difference {largest:.2g}; sound "
            f"pairs of engines reach {SOUND_KL:g}.",
            "",
            is_fault=False,
        )
    else:
        yield LikelyCause(
            "unknown",
            UNKNOWN,
            f"The differences are spread over all tokens; the KL is {mean:.2g} nats per token.",
            "Score the recorded responses with a fresh engine and this step's checkpoint; the side "
            "that disagrees with it is wrong.",
        )


SOUND_KL = 0.0011
"""Largest mismatch KL per token of sound runs in prime-rl's own acceptance test."""


def _localized(
    tokens: StepTokens,
    chosen_N: NDArray[np.bool_],
    kind: CauseKind,
    *,
    cause: str,
    where: str,
    experiment: str,
) -> Iterator[LikelyCause]:
    """The cause, if the chosen tokens have five times the gap of the others."""
    if min(chosen_N.sum(), (~chosen_N).sum()) < 30:
        return
    gaps_N = np.abs(tokens.difference_N)
    inside, error = _mean_and_error(gaps_N[chosen_N])
    outside, _ = _mean_and_error(gaps_N[~chosen_N])
    if inside > 5 * outside and inside - outside > 5 * error and inside > 1e-3:
        yield LikelyCause(
            kind,
            cause,
            f"The mean gap is {inside:.3g} nats on the {where}, and {outside:.3g} elsewhere.",
            experiment,
        )


def _mean_and_error(values_N: NDArray[np.float64]) -> tuple[float, float]:
    return float(values_N.mean()), float(values_N.std() / np.sqrt(values_N.size))


def _correlation(first_N: NDArray[np.float64], second_N: NDArray[np.float64]) -> float:
    if first_N.size < MIN_TOKENS / 2 or np.ptp(first_N) == 0 or np.ptp(second_N) == 0:
        return 0.0
    return float(np.corrcoef(first_N, second_N)[0, 1])


def _noise(tokens: StepTokens) -> float:
    """Rounding of a stored value in bfloat16."""
    return float(2**-8 * np.median(np.abs(tokens.sampler_N)))


def _are_bfloat16(values_N: NDArray[np.float64]) -> bool:
    bits_N = values_N.astype(np.float32).view(np.uint32)
    return bool((bits_N & 0xFFFF == 0).all() and np.unique(bits_N).size > 10)
