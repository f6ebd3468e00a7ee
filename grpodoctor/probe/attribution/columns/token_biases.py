"""Which tokens occur more or less often than the learner predicts, as if their logits were biased.

A bias b of token v turns a probability p of v into p e^b / (1 - p + p e^b). So the likelihood of
the sampled tokens under any bias follows from the learner's probabilities of v alone, without a
pass of the learner. A ban is a bias of minus infinity. Only places where v is among the learner's
likeliest tokens are counted: this choice does not depend on what was sampled there, so a bias at
these places alone is a distribution, too.

Shape suffixes: N tokens, M likeliest tokens of each place, C candidates, G biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.tokens import Floats, Tokens

BAN = -1e4
_GRID = (BAN, -8.0, -5.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
"""Biases that are compared; finer ones are interpolated later."""
_NEAR = 2
"""Biases next to the likeliest one that are tried in the learner."""
_PREFIXES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MOST_SINGLE, _MOST_DEVIATING = 4, 3
_HARDLY_CHANCE = 2.0
"""Nats from which a token may be biased: one in seven is so by chance."""
_ALMOST_CERTAIN = -1e-6
"""Largest log-probability: a likelier token cannot be absent."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in a mean."""
_TRIED = (-5.0, -2.0, -1.0, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class TokenBias:
    """The likeliest bias of one token."""

    token: int
    bias: float
    nats: float
    """How much likelier the sampled tokens are with the bias than without."""
    count: int
    """How often the token was sampled where it is among the likeliest tokens."""
    expected: float
    """The same as the learner predicts it."""

    @property
    def shown(self) -> str:
        """The counts in a sentence."""
        return (
            f"the token {self.token} occurs {self.count:,} times where the learner predicts "
            f"{self.expected:,.0f}"
        )


def choice_nats(vocabulary: int, tokens: int) -> float:
    """The logarithm of the number of biases among which the data chose those of some tokens."""
    return tokens * math.log(max(vocabulary, 2) * len(_GRID))


def token_biases(tokens: Tokens) -> list[TokenBias]:
    """The likeliest bias of each token for which one is likelier than none, the likeliest first."""
    if tokens.ids_N is None or tokens.likeliest_NM is None or tokens.likeliest_logprob_NM is None:
        return []
    at = tokens.drawn_N
    ids_NM, logprob_NM = tokens.likeliest_NM[at], tokens.likeliest_logprob_NM[at]
    ids_C, place = np.unique(ids_NM, return_inverse=True)
    place = place.reshape(-1)
    p_K = np.exp(np.minimum(logprob_NM.astype(np.float64), _ALMOST_CERTAIN)).reshape(-1)
    is_sampled_K = (ids_NM == tokens.ids_N[at][:, None]).reshape(-1)
    count_C: Floats = np.bincount(place, weights=is_sampled_K, minlength=ids_C.size).astype(float)
    expected_C = np.bincount(place, weights=p_K, minlength=ids_C.size)
    nats_GC = np.stack([_nats(bias, p_K, place, count_C) for bias in _GRID])
    best_C = nats_GC.argmax(axis=0)
    biases = [
        TokenBias(
            int(ids_C[c]), _GRID[best_C[c]], float(nats_GC[best_C[c], c]),
            int(count_C[c]), float(expected_C[c]),
        )
        for c in np.argsort(-nats_GC.max(axis=0))
    ]  # fmt: skip
    return [each for each in biases if each.nats > _HARDLY_CHANCE]


def _nats(bias: float, p_K: Floats, place: np.ndarray, count_C: Floats) -> Floats:
    """How much likelier the sampled tokens are if one token has a bias, for each token."""
    mass_C = np.bincount(place, weights=np.log1p(p_K * np.expm1(bias)), minlength=count_C.size)
    return np.asarray(np.where(count_C > 0, bias, 0.0) * count_C - mass_C)


def biased_tokens(tokens: Tokens) -> list[EditFamily]:
    """Biases that make the sampled tokens likelier: of single tokens, and of several together."""
    found = token_biases(tokens)
    pairs = [[each.token, each.bias] for each in found[: _PREFIXES[-1]]]
    joint = tuple(pairs[:count] for count in _PREFIXES if count <= len(pairs))
    families = [EditFamily("logit_bias", joint, "choice")] if joint else []
    return families + [
        EditFamily("logit_bias", _near(each.bias), "number", 0.0, str(each.token))
        for each in found[:_MOST_SINGLE]
        if each.bias > BAN
    ]


def _near(bias: float) -> tuple[float, ...]:
    """The bias and those next to it in the grid, of the same sign."""
    place = _GRID.index(bias)
    near = _GRID[max(1, place - _NEAR) : place + _NEAR + 1]
    return tuple(value for value in near if value * bias > 0)


def missing_tokens(tokens: Tokens) -> list[EditFamily]:
    """Bans of the tokens that never occur although the learner finds them likely.

    They are banned in the order of their evidence: the first, the first two, ...
    """
    absent = [each.token for each in token_biases(tokens) if not each.count]
    pairs = [[token, BAN] for token in absent[: _PREFIXES[-1]]]
    values = tuple(pairs[:count] for count in _PREFIXES if count <= len(pairs))
    return [EditFamily("logit_bias", values, "choice")] if values else []


def deviating_tokens(tokens: Tokens) -> list[EditFamily]:
    """Biases of the tokens whose log-probabilities differ otherwise than those of all tokens."""
    if tokens.ids_N is None or not tokens.any:
        return []
    at = tokens.finite_N
    difference_N = np.clip(tokens.difference_N[at], -_CLIP, _CLIP)
    ids, inverse_N, counts = np.unique(tokens.ids_N[at], return_inverse=True, return_counts=True)
    means = np.bincount(inverse_N, weights=difference_N) / counts
    apart = np.abs(means - np.median(difference_N)) * np.sqrt(counts)
    return [
        EditFamily("logit_bias", _TRIED, "number", 0.0, str(token))
        for token in ids[np.argsort(-apart)][:_MOST_DEVIATING].tolist()
    ]
