"""The tokens of attribution: both sides' log-probabilities in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.measure.divergence import k3
from grpodoctor.measure.experts import lost_experts
from grpodoctor.probe.contract import Shard
from grpodoctor.probe.engines.shards import read_pairs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Experts = NDArray[np.int16]

MOST_TOKENS = 400_000
"""Upper bound on tokens in memory; about 100 MB with the contract's temperatures."""
_CLIP = 5.0
"""Upper bound on |log p - log p'| per token: k3 grows exponentially, and one token in a thousand
would otherwise dominate the mean."""
_CHANCE = 1e-4
"""Probability that any response is drawn twice, below which it was not drawn twice."""
_SIGNIFICANT = 3.0
"""In standard errors over prompts; of random signs."""
_NEARLY_GONE = 0.1
"""Share of a gap that may remain if it disappears."""
FALSE_POSITIVES = 0.0027
"""Largest probability with which `significant` takes chance for a fall."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """N tokens of B responses. Optional columns belong to the learner and are None if missing."""

    sampler_N: Floats
    """Log-probabilities; NaN where missing."""
    learner_N: Floats
    lengths_B: Integers
    prompt_B: Integers
    sample_B: Integers
    prompt_lengths_B: Integers
    ended_B: Flags
    cached_B: Integers
    rank_N: Integers | None = None
    mass_above_N: Floats | None = None
    top_logprob_N: Floats | None = None
    likeliest_NM: Integers | None = None
    """The most likely tokens."""
    likeliest_logprob_NM: Floats | None = None
    at_temperature_NT: NDArray[np.float32] | None = None
    sampler_experts_NLK: Experts | None = None
    learner_experts_NLK: Experts | None = None
    surplus_N: Floats | None = None
    """log p + entropy of the learner's first scoring; its mean is 0 for tokens drawn from it."""
    counted_N: Flags
    """Which tokens count."""
    ids_N: Integers | None = None

    @classmethod
    def of(cls, pairs: list[tuple[Shard, Shard]]) -> Self:
        """The tokens of pairs of shards."""
        left, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        sampler_N = _joined(left, "logprobs_N").astype(np.float64)
        learner_N = _joined(right, "logprobs_N").astype(np.float64)
        entropy_N = _optional(right, "entropy_N")
        return cls(
            sampler_N=sampler_N,
            learner_N=learner_N,
            lengths_B=_joined(left, "lengths_B"),
            prompt_B=_joined(left, "prompt_B").astype(np.int64),
            sample_B=_joined(left, "sample_B").astype(np.int64),
            prompt_lengths_B=np.concatenate([np.diff(each.prompt_offsets) for each in left]),
            ended_B=_joined(left, "ended_B"),
            cached_B=_joined(left, "cached_B").astype(np.int64),
            surplus_N=None if entropy_N is None else learner_N + entropy_N,
            rank_N=_optional(right, "rank_N"),
            mass_above_N=_optional(right, "mass_above_N"),
            top_logprob_N=_optional(right, "top_logprob_N"),
            likeliest_NM=_optional(right, "likeliest_NM"),
            likeliest_logprob_NM=_optional(right, "likeliest_logprob_NM"),
            at_temperature_NT=_optional(right, "at_temperature_NT"),
            sampler_experts_NLK=_optional(left, "experts_NLK"),
            learner_experts_NLK=_optional(right, "experts_NLK"),
            counted_N=np.ones(sampler_N.size, np.bool_),
            ids_N=_joined(left, "response_ids_N").astype(np.int64),
        )

    @classmethod
    def read(cls, sampled: Path, scored: Path) -> Self:
        """The tokens of two folders, in whole responses, up to `MOST_TOKENS`.

        Raises:
            EngineError: if the folders contain different responses, or none.
        """
        pairs: list[tuple[Shard, Shard]] = []
        tokens = 0
        for left, right in islice(read_pairs(sampled, scored), 4096):
            room = MOST_TOKENS - tokens
            pairs.append((_head(left, room), _head(right, room)))
            tokens += left.response_ids_N.size
            if tokens >= MOST_TOKENS:
                break
        if not tokens:
            raise EngineError(
                "no tokens to compare",
                where=str(sampled),
                remedy="delete the folder and probe again",
            )
        return cls.of(pairs)

    @cached_property
    def rows_N(self) -> Integers:
        """Response of each token."""
        return np.repeat(np.arange(self.lengths_B.size), self.lengths_B)

    @cached_property
    def starts_B(self) -> Integers:
        """Index of each response's first token."""
        return np.cumsum(self.lengths_B) - self.lengths_B

    @cached_property
    def positions_N(self) -> Integers:
        """Position of each token in its response, from 0."""
        return np.arange(self.sampler_N.size) - self.starts_B[self.rows_N]

    @cached_property
    def difference_N(self) -> Floats:
        """Log p of the learner minus that of the sampler; NaN if both exclude the token."""
        with np.errstate(invalid="ignore"):  # -inf minus -inf
            return self.learner_N - self.sampler_N

    @cached_property
    def finite_N(self) -> Flags:
        """Tokens that count and have a finite log-probability on both sides."""
        return np.isfinite(self.difference_N) & self.counted_N

    @cached_property
    def drawn_N(self) -> Flags:
        """Tokens that count and have a log-probability of the learner.

        Statistics of the sampled tokens need no value of the sampler. Without the tokens that lack
        one, such as each response's last after a shift, end tokens would seem to be too rare.
        Copies of a response are no further draws.
        """
        return np.isfinite(self.learner_N) & self.counted_N & ~self.copied_B[self.rows_N]

    @cached_property
    def copied_B(self) -> Flags:
        """Responses equal to an earlier one of their prompt, and too unlikely for a second draw."""
        count = self.lengths_B.size
        copied_B = np.zeros(count, np.bool_)
        if self.ids_N is None or self.prompt_B.size != count:
            return copied_B
        surest_N = np.fmax(self.learner_N, self.sampler_N)  # the engine that drew it is sure of it
        sums_B = np.bincount(self.rows_N, np.nan_to_num(surest_N, neginf=0.0), minlength=count)
        seen: set[tuple[int, bytes]] = set()
        for number, start in enumerate(self.starts_B):
            ids = self.ids_N[start : start + self.lengths_B[number]].tobytes()
            key = int(self.prompt_B[number]), ids
            copied_B[number] = key in seen and sums_B[number] < np.log(_CHANCE / count**2)
            seen.add(key)
        return copied_B

    @cached_property
    def terms_N(self) -> Floats:
        """k3 of each token; 0 for tokens that do not count."""
        clipped_N = np.clip(np.where(self.finite_N, self.difference_N, 0.0), -_CLIP, _CLIP)
        return k3(clipped_N)

    @cached_property
    def gap(self) -> float:
        """k3 in nats per token; NaN if no token is finite on both sides."""
        return float(self.terms_N.sum() / max(self.finite_N.sum(), 1)) if self.any else float("nan")

    @property
    def any(self) -> bool:
        """Whether there is a token to compare."""
        return bool(self.finite_N.any())

    @cached_property
    def gap_B(self) -> Floats:
        """The sum of k3 over each response."""
        sums_B = np.bincount(self.rows_N, weights=self.terms_N, minlength=self.lengths_B.size)
        return sums_B.astype(np.float64)

    @cached_property
    def routed_N(self) -> Flags:
        """Tokens whose experts are known on both sides, in all layers."""
        one, other = self.sampler_experts_NLK, self.learner_experts_NLK
        if one is None or other is None or one.shape != other.shape:
            return np.zeros(self.sampler_N.size, np.bool_)
        return np.asarray((one >= 0).all(axis=(1, 2)) & (other >= 0).all(axis=(1, 2)))

    @cached_property
    def flips_NL(self) -> Flags:
        """Whether the set of experts differs, by layer; False where experts are unknown."""
        one, other = self.sampler_experts_NLK, self.learner_experts_NLK
        if one is None or other is None or not self.routed_N.any():
            return np.zeros((self.sampler_N.size, 0), np.bool_)
        return np.asarray((lost_experts(one, other) > 0) & self.routed_N[:, None])

    @cached_property
    def flipped_N(self) -> Flags:
        """Tokens that are routed to different experts in any layer."""
        return np.asarray(self.flips_NL.any(axis=1))

    @cached_property
    def last_N(self) -> Flags:
        """The last token of each response that ended with an end token."""
        last_N = np.zeros(self.sampler_N.size, np.bool_)
        ends_B = self.starts_B + self.lengths_B - 1
        last_N[ends_B[self.ended_B & (self.lengths_B > 0)]] = True
        return last_N

    def where(self, wanted_N: Flags) -> Tokens:
        """The same tokens, counting only those that are also wanted."""
        return replace(self, counted_N=self.counted_N & wanted_N)

    def with_columns(self, other: Tokens) -> Tokens:
        """The same tokens with the learner's columns of another scoring."""
        return replace(self, **{name: getattr(other, name) for name in _LEARNER_COLUMNS})

    def without_columns(self) -> Tokens:
        """The same tokens without the learner's columns, which belong to another setup."""
        nothing: dict[str, Any] = dict.fromkeys(_LEARNER_COLUMNS)
        return replace(self, **nothing)

    def with_mapped_temperatures(self, change: Callable[[Integers, Floats], Floats]) -> Tokens:
        """The same tokens with a change of the learner's column at every temperature."""
        if self.at_temperature_NT is None:
            return self
        columns = (change(self.lengths_B, each_N) for each_N in self.at_temperature_NT.T)
        return replace(self, at_temperature_NT=np.stack(list(columns), axis=1))

    def with_learner(self, learner_N: Floats, experts_NLK: Experts | None = None) -> Tokens:
        """The same tokens with other log-probabilities of the learner, and its experts if known."""
        return replace(self, learner_N=learner_N, learner_experts_NLK=experts_NLK)

    def with_sampler(self, sampler_N: Floats, experts_NLK: Experts | None = None) -> Tokens:
        """The same tokens with other log-probabilities of the sampler, and its experts if known."""
        experts_NLK = self.sampler_experts_NLK if experts_NLK is None else experts_NLK
        return replace(self, sampler_N=sampler_N, sampler_experts_NLK=experts_NLK)

    def share_at(self, wanted_N: Flags) -> float:
        """Share of the gap on some tokens."""
        total = float(self.terms_N.sum())
        return float(self.terms_N[wanted_N].sum()) / total if total > 0 else 0.0

    def mean_at(self, wanted_N: Flags) -> float:
        """Mean k3 of some tokens; 0 if there are none."""
        at = wanted_N & self.finite_N
        return float(self.terms_N[at].mean()) if at.any() else 0.0


_LEARNER_COLUMNS = (
    *("rank_N", "mass_above_N", "top_logprob_N", "at_temperature_NT"),
    *("likeliest_NM", "likeliest_logprob_NM", "learner_experts_NLK"),
)


def _head(shard: Shard, tokens: int) -> Shard:
    """The first responses of a shard with at most this many tokens, but at least one response."""
    count = max(1, int(np.searchsorted(shard.response_offsets[1:], tokens, side="right")))
    if count >= shard.prompt_B.size:
        return shard
    sizes = {
        "_B": count,
        "offsets": count + 1,
        "_P": int(shard.prompt_offsets[count]),
        **dict.fromkeys(("_N", "_NM", "_NT", "_NL", "_NLK"), int(shard.response_offsets[count])),
    }
    cut: dict[str, Any] = {}
    for field in fields(shard):
        values = getattr(shard, field.name)
        size = next(sizes[end] for end in sizes if field.name.endswith(end))
        cut[field.name] = None if values is None else values[:size]
    return Shard(**cut)


def significant(before: Tokens, after: Tokens) -> bool:
    """Whether the gap of the same tokens fell by more than chance among prompts.

    Either its mean fell, or it fell at more prompts than it grew: a few responses, such as those
    with a flipped expert, can carry most of the gap, and then the mean has a large error.
    True if tokens were excluded: their share of the gap is known exactly.

    The responses of a prompt resemble each other, and may be copies, so prompts are counted. By
    chance each prompt's fall is as likely as the same rise, whatever its distribution. So a sum
    divided by the root of its sum of squares exceeds 3 as rarely as a normal number, for any
    number of prompts; a mean divided by its estimated error does not.
    """
    if not np.array_equal(before.counted_N, after.counted_N):
        return True
    fall_P: Floats = np.bincount(before.prompt_B, before.gap_B - after.gap_B).astype(np.float64)
    if fall_P.sum() <= 0:
        return False
    return any(_exceeds_chance(terms_P) for terms_P in (fall_P, np.sign(fall_P)))


def falls(before: Tokens, after: Tokens) -> bool:
    """Whether the gap nearly disappeared, however few prompts have it, or `significant`."""
    return after.gap <= _NEARLY_GONE * before.gap or significant(before, after)


def typical_share(before: Tokens, after: Tokens, limit: float) -> float:
    """Share of the typical token's gap that disappeared, by medians of |Δlogp|.

    A second fault of few tokens or responses can carry most of the mean, whatever becomes of the
    other tokens.

    Args:
        before: the tokens with the gap.
        after: the same tokens under another setup.
        limit: k3 up to which the typical token's gap counts as none; the share is then 0.
    """
    at = before.finite_N & after.finite_N
    if not at.any():
        return 0.0
    old, new = (float(np.median(np.abs(each.difference_N[at]))) for each in (before, after))
    # k3 is half the square of a small difference.
    return 1 - (new / old) ** 2 if old**2 / 2 > limit else 0.0


TYPICAL = 0.98
"""Share of the typical token's gap whose removal shows a cause, whatever the mean does."""


def _exceeds_chance(terms_P: Floats) -> bool:
    """Whether terms of random signs seldom have as large a sum."""
    return bool(terms_P.sum() > _SIGNIFICANT * np.sqrt(np.square(terms_P).sum()))


def steady(tokens: Tokens) -> Flags:
    """Tokens up to the first flip of their response, without it, as far as experts are known."""
    before_N: Integers = np.cumsum(tokens.flipped_N) - tokens.flipped_N
    first_N = before_N == before_N[tokens.starts_B[tokens.rows_N]]
    return np.asarray(first_N & ~tokens.flipped_N)


def difference_gap(one_N: Floats, other_N: Floats) -> float:
    """k3 between two scorings of the same tokens, the first as learner, the second as sampler."""
    return of_columns(one_N, other_N).gap


def of_columns(one_N: Floats, other_N: Floats, lengths_B: Integers | None = None) -> Tokens:
    """Tokens of unknown prompts from two columns, the learner's and the sampler's.

    Args:
        one_N: the learner's log-probabilities.
        other_N: the sampler's.
        lengths_B: the responses' lengths; one response if they are unknown.
    """
    nothing_B = np.zeros(0, np.int64)
    return Tokens(
        sampler_N=other_N,
        learner_N=one_N,
        lengths_B=np.array([one_N.size]) if lengths_B is None else lengths_B,
        prompt_B=nothing_B,
        sample_B=nothing_B,
        prompt_lengths_B=nothing_B,
        ended_B=np.zeros(0, np.bool_),
        cached_B=nothing_B,
        counted_N=np.ones(one_N.size, np.bool_),
    )


def expected(tokens: Tokens) -> Floats:
    """Each token's expected k3, up to a factor.

    An error of the logits moves log p by about (1 - p) times itself, so k3 goes with its square.
    """
    spread_N = 1 - np.exp(np.minimum(np.where(tokens.finite_N, tokens.learner_N, 0.0), 0.0))
    return np.asarray(np.square(spread_N) + 1e-3)


def _joined(shards: list[Shard], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(each, name) for each in shards])


def _optional(shards: list[Shard], name: str) -> NDArray[Any] | None:
    parts = [getattr(each, name) for each in shards]
    return None if any(part is None for part in parts) else np.concatenate(parts)
