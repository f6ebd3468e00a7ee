"""The responses that differ, if the others agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.exact_responses import ExactResponses
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, Tokens, expected
from grpodoctor.probe.attribution.variant import Variant

_FEWEST = 6
_MOST_OFF = 0.45
"""Largest share of the responses that counts as a subset."""
_MOST_KNOWN = 0.9
"""The same if a property tells the subset from the other responses."""
_CARRY = 0.8
"""Smallest share of the gap on the subset."""
_TIMES = 8.0
"""Smallest ratio between the medians of the two groups."""
_APART = 3.0
"""Ashman's D: distance of the two means of log gap over their pooled spread; 2 is two peaks."""
_SHARED = 0.9
"""Share of a subset's responses that have its property; the others lack it as often."""
LONG_PROMPTS = "responses to prompts of more than"
"""How the words of a subset of long prompts begin."""
_MOST_EVERY = 8
"""Largest distance of responses that differ at equal distances, as ranks or batches do."""


@dataclass(frozen=True, slots=True)
class Subset:
    """A subset of the responses that carries the gap."""

    responses_B: Flags
    tokens_N: Flags
    words: str
    """Which responses these are, such as `sample 3 of every prompt`."""
    share: float
    """Share of the gap."""
    times: float
    """How many times as much they differ as the others."""


def differing_part(experiments: Experiments, variant: Variant) -> Subset | None:
    """The responses, or the first tokens of all, that carry the gap while the others agree."""
    return (
        subset_of(experiments, variant)
        or early_tokens(experiments, variant)
        or periodic_tokens(experiments, variant)
    )


def subset_of(experiments: Experiments, variant: Variant) -> Subset | None:
    """The subset of the responses that carries the gap; None if the gap has no two peaks."""
    tokens = variant.tokens
    if tokens.sampler_experts_NLK is not None:  # a flip affects the rest of its response
        return None
    level_B = _levels(tokens)
    known = int(np.isfinite(level_B).sum())
    if known < _FEWEST:
        return None
    off_B, apart, times = _split(level_B)
    off_N = off_B[tokens.rows_N]
    share = tokens.share_at(off_N)
    few = 0 < off_B.sum() <= _MOST_OFF * known or (
        off_B.sum() <= _MOST_KNOWN * known and _property(tokens, off_B)
    )
    if not few or share < _CARRY or apart < _APART or times < _TIMES:
        return None
    # If the other responses differ as well, the cause affects all responses, some of them more:
    # those with a flipped expert, for example, or those with less certain tokens.
    if experiments.is_loud(tokens.mean_at(~off_N)):
        return None
    return Subset(off_B, off_N, _words(tokens, off_B), share, times)


def rest_of(tokens: Tokens, exact: ExactResponses | None) -> Subset | None:
    """The responses that still differ after some became equal; None if no others do.

    Unlike `subset_of`, it needs no second peak: causes made the other responses equal, which is no
    chance.

    Args:
        tokens: after the causes.
        exact: the responses that the causes made equal.
    """
    if exact is None:
        return None
    known_B = np.bincount(tokens.rows_N, tokens.finite_N, minlength=tokens.lengths_B.size) > 0
    off_B = known_B & ~exact.exact_B
    if not off_B.any():
        return None
    off_N = off_B[tokens.rows_N]
    return Subset(off_B, off_N, _words(tokens, off_B), tokens.share_at(off_N), np.inf)


def _levels(tokens: Tokens) -> Floats:
    """log10 of each response's gap, relative to the expectation from its tokens' uncertainty."""
    finite_N = tokens.finite_N
    expected_B = np.bincount(
        tokens.rows_N,
        weights=finite_N * expected(tokens),
        minlength=tokens.lengths_B.size,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        # A bit-identical response counts as equal up to float32 rounding.
        return np.asarray(np.log10(tokens.gap_B / expected_B + 1e-12))


def _split(level_B: Floats) -> tuple[Flags, float, float]:
    """Split by least spread (Otsu): members of the upper group, Ashman's D, ratio of medians.

    Responses without a finite level are in neither group.
    """
    known_B = np.isfinite(level_B)
    order = np.sort(level_B[known_B])
    counts = np.arange(1, order.size)
    low, high = np.cumsum(order)[:-1] / counts, (order.sum() - np.cumsum(order)[:-1]) / counts[::-1]
    between = counts * counts[::-1] * (high - low) ** 2
    cut = order[int(np.argmax(between))]
    off_B = known_B & (level_B > cut)
    near, far = level_B[known_B & ~off_B], level_B[off_B]
    if not near.size or not far.size:
        return off_B, 0.0, 1.0
    spread = np.sqrt((near.var() + far.var()) / 2) + 1e-6
    apart = float((far.mean() - near.mean()) / spread)
    return off_B, apart, float(10 ** (np.median(far) - np.median(near)))


def _words(tokens: Tokens, off_B: Flags) -> str:
    """The property that the subset has and the other responses lack, or its size."""
    if off_B.sum() == 1:
        (only,) = np.flatnonzero(off_B)
        return f"prompt {tokens.prompt_B[only]} sample {tokens.sample_B[only]}"
    name = _property(tokens, off_B)
    if name:
        return name
    prompts = set(tokens.prompt_B[off_B].tolist())
    whole = off_B[np.isin(tokens.prompt_B, list(prompts))].mean() >= _SHARED
    if whole:
        return f"all responses of {len(prompts)} prompts"
    return f"{int(off_B.sum())} of {off_B.size} responses"


def _property(tokens: Tokens, off_B: Flags) -> str:
    """The property that a subset has and the other responses lack; empty if there is none."""
    if not 0 < off_B.sum() < off_B.size:
        return ""
    for name, has_B in _properties(tokens, off_B):
        if has_B[off_B].mean() >= _SHARED and has_B[~off_B].mean() <= 1 - _SHARED:
            return name
    return ""


def _properties(tokens: Tokens, off_B: Flags) -> Iterator[tuple[str, Flags]]:
    yield "responses with a cached prompt", tokens.cached_B > 0
    for sample in np.unique(tokens.sample_B).tolist():
        yield f"sample {sample} of every prompt", tokens.sample_B == sample
    yield "responses without an end token", ~tokens.ended_B
    for values_B, words in (
        (tokens.prompt_lengths_B, f"{LONG_PROMPTS} {{}} {{}}"),
        (tokens.lengths_B, "responses of more than {} {}"),
    ):
        most = _cut(values_B, off_B)
        yield words.format(most, "token" if most == 1 else "tokens"), values_B > most
    for every in range(2, _MOST_EVERY + 1):
        for first in range(every):
            words = f"the responses to every {_nth(every)} prompt, from number {first}"
            yield words, tokens.prompt_B % every == first
    numbers_B = np.arange(tokens.lengths_B.size)
    for every in range(2, _MOST_EVERY + 1):
        for first in range(every):
            words = f"every {_nth(every)} response"
            yield f"{words}, from number {first}", numbers_B % every == first


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _cut(values_B: Integers, off_B: Flags) -> int:
    """The value above which the subset is best told from the others."""
    cuts = np.unique(values_B)
    above_CB = values_B[None] > cuts[:, None]
    right_C = above_CB[:, off_B].mean(axis=1) - above_CB[:, ~off_B].mean(axis=1)
    return int(cuts[int(np.argmax(right_C))])


def early_tokens(experiments: Experiments, variant: Variant) -> Subset | None:
    """The first tokens of every response, if they carry the gap and the others agree."""
    tokens = variant.tokens
    typical = float(np.median(tokens.lengths_B))
    for count in (1, 2, 4):
        early_N = tokens.positions_N < count
        if count > _EARLY * typical or experiments.is_loud(tokens.mean_at(~early_N)):
            continue
        if tokens.share_at(early_N) < _CARRY:
            return None
        what = "the first token" if count == 1 else f"the first {count} tokens"
        everyone_B = np.ones(tokens.lengths_B.size, np.bool_)
        return Subset(everyone_B, early_N, f"{what} of every response", 1.0, np.inf)
    return None


_EARLY = 0.25
"""Largest share of a response of median length that counts as its first tokens."""


def periodic_tokens(experiments: Experiments, variant: Variant) -> Subset | None:
    """Tokens at equal distances, such as those that a draft proposed, if the others agree."""
    tokens = variant.tokens
    if np.median(tokens.lengths_B) < _PERIODS * _MOST_EVERY:
        return None
    for every in range(_MOST_EVERY, 1, -1):  # half the distance contains the same tokens
        for first in range(every):
            among_N = tokens.positions_N % every == first
            if experiments.is_loud(tokens.mean_at(~among_N)):
                continue
            if tokens.share_at(among_N) < _CARRY:
                return None
            everyone_B = np.ones(tokens.lengths_B.size, np.bool_)
            words = f"every {_nth(every)} token of each response, from number {first}"
            return Subset(everyone_B, among_N, words, 1.0, np.inf)
    return None


_PERIODS = 3
"""Length of a typical response, in the longest distance that is tried."""
