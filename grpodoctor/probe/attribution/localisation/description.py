"""Facts about an unexplained gap that the tokens alone show. Only significant ones are stated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, Tokens, expected

_FLOOR = 1e-4
"""Smallest |Δlogp| that counts as a difference."""
_ROUNDING = 4.0
"""The same as a multiple of the usual |Δlogp| of rounding."""
_CHANCE = 1e-4
"""Probability of a fact by chance below which it is stated."""
_STANDARD_ERRORS = 4.0
"""By prompts, for the same probability."""
_TIMES = 2.0
"""Smallest ratio of two halves that is worth stating."""
_CORRELATION = 0.4
_CONCENTRATED, _RARE = 0.5, 0.1
"""A token is stated that carries more than the first share of the gap and is less than the second
share of the tokens."""


def facts(tokens: Tokens, noise: float | None) -> tuple[str, ...]:
    """Sentences about where in the responses and tokens a gap is.

    Args:
        tokens: of both engines.
        noise: k3 of rounding in this model; None if unknown.
    """
    if not tokens.any:
        return ()
    floor = max(_FLOOR, _ROUNDING * float(np.sqrt(2 * (noise or 0.0))))
    return tuple(_facts(tokens, floor))


def _facts(tokens: Tokens, floor: float) -> Iterator[str]:
    finite_N = tokens.finite_N
    differs_N = finite_N & (np.abs(np.where(finite_N, tokens.difference_N, 0.0)) > floor)
    share = float(differs_N.sum() / finite_N.sum())
    if 0 < share < 0.5:
        yield f"{share:.0%} of the tokens differ by more than rounding; the others agree"
    yield from _beginning(tokens, differs_N, share)
    yield from _growth(tokens)
    yield from _concentration(tokens)
    yield from _direction(tokens)
    yield from _prompt_lengths(tokens)


def _beginning(tokens: Tokens, differs_N: Flags, share: float) -> Iterator[str]:
    """Whether the first tokens of all responses, or of all sequences, agree."""
    in_response_N = tokens.positions_N
    in_sequence_N = in_response_N + tokens.prompt_lengths_B[tokens.rows_N]
    places = (("its response", in_response_N), ("its sequence, prompt included,", in_sequence_N))
    for where, place_N in places:
        if not differs_N.any():
            return
        first = int(place_N[differs_N].min())
        before = int((tokens.finite_N & (place_N < first)).sum())
        if share < 1 and before * np.log1p(-share) < np.log(_CHANCE):
            yield f"no token before position {first + 1} of {where} differs"
            return


def _by_prompt(tokens: Tokens, values_N: Floats, chosen_N: Flags) -> tuple[Floats, Integers]:
    """Means over the chosen tokens of each prompt, and their numbers."""
    prompt_N = np.unique(tokens.prompt_B, return_inverse=True)[1][tokens.rows_N]
    count = np.bincount(prompt_N, chosen_N, minlength=int(prompt_N.max(initial=0)) + 1)
    sums = np.bincount(prompt_N, np.where(chosen_N, values_N, 0.0), minlength=count.size)
    return sums / np.maximum(count, 1), count.astype(np.int64)


def _errors(values: Floats) -> float:
    """A sum in standard errors, if a rise is as likely as the same fall."""
    return float(values.sum() / (np.sqrt(np.square(values).sum()) + 1e-300))


def _growth(tokens: Tokens) -> Iterator[str]:
    """Whether the second half of the responses differs more, relative to what its tokens allow."""
    late_N = tokens.positions_N >= tokens.lengths_B[tokens.rows_N] / 2
    relative_N = tokens.terms_N / expected(tokens)
    early, early_count = _by_prompt(tokens, relative_N, tokens.finite_N & ~late_N)
    late, late_count = _by_prompt(tokens, relative_N, tokens.finite_N & late_N)
    known = (early_count > 0) & (late_count > 0)
    ratio = float(late[known].mean() / (early[known].mean() + 1e-300)) if known.any() else 1.0
    z = _errors(np.log(late[known] + 1e-12) - np.log(early[known] + 1e-12))
    if z > _STANDARD_ERRORS and ratio > _TIMES:
        yield f"the difference is {ratio:.2g} times as large in the second half of the responses"
    elif z < -_STANDARD_ERRORS and ratio < 1 / _TIMES:
        yield f"the difference is {1 / ratio:.2g} times as large in the first half of the responses"


def _concentration(tokens: Tokens) -> Iterator[str]:
    """Whether one token carries most of the gap."""
    if tokens.ids_N is None or tokens.terms_N.sum() <= 0:
        return
    ids, at_N = np.unique(tokens.ids_N, return_inverse=True)
    carried = np.bincount(at_N, tokens.terms_N) / tokens.terms_N.sum()
    number = np.bincount(at_N, tokens.finite_N) / tokens.finite_N.sum()
    top = int(np.argmax(carried))
    if carried[top] > _CONCENTRATED and number[top] < _RARE and ids.size > 1:
        yield (
            f"token {ids[top]} carries {carried[top]:.0%} of the gap and is {number[top]:.1%} of "
            "the tokens"
        )


def _direction(tokens: Tokens) -> Iterator[str]:
    """Whether the sampler has lower values: of tokens that it drew they are higher on average."""
    mean, count = _by_prompt(tokens, np.nan_to_num(tokens.difference_N), tokens.finite_N)
    if _errors(mean[count > 0]) > _STANDARD_ERRORS:
        yield (
            "the sampler's log-probabilities are lower than the learner's on average, although the "
            "sampler drew the tokens: it may report another distribution than it samples from"
        )


def _prompt_lengths(tokens: Tokens) -> Iterator[str]:
    """Whether responses to long prompts differ more."""
    relative, count = _by_prompt(tokens, tokens.terms_N / expected(tokens), tokens.finite_N)
    numbers = np.unique(tokens.prompt_B, return_inverse=True)[1]
    length = np.zeros(count.size)
    length[numbers] = tokens.prompt_lengths_B
    known = count > 0
    if known.sum() < 10 or np.ptp(length[known]) == 0:
        return
    found = stats.spearmanr(length[known], relative[known])
    if abs(found.statistic) > _CORRELATION and found.pvalue < _CHANCE:
        more = "long" if found.statistic > 0 else "short"
        yield f"responses to {more} prompts differ more"
