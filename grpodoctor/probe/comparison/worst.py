"""The worst responses, the worst prompts and the tokens of the scatter plot, in bounded number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.probe.comparison.hashed_random import uniform
from grpodoctor.probe.comparison.pair import ShardPair
from grpodoctor.probe.results.results import PromptGap, WorstResponse

WORST_RESPONSES = 10
WORST_PROMPTS = 20
SCATTER_TOKENS = 4000
UNMEASURED_TOKENS = 10
_PROMPT_LETTERS = 240
"""Characters shown from the end of a prompt."""


class WorstResponses:
    """The responses with the largest |Δp| of a token."""

    def __init__(self) -> None:
        self._kept: list[WorstResponse] = []

    def add(self, pair: ShardPair) -> None:
        """Add a shard."""
        largest = pair.figures["prob_diff_max"]
        for index in np.argsort(-largest, kind="stable")[:WORST_RESPONSES].tolist():
            if not largest[index] > 0:
                return
            if len(self._kept) < WORST_RESPONSES or largest[index] > self._kept[-1].prob_diff_max:
                self._kept = sorted([*self._kept, _worst(pair, index)], key=_largest_first)
                del self._kept[WORST_RESPONSES:]

    def found(self, prompts: Sequence[str] | None) -> tuple[WorstResponse, ...]:
        """The worst responses, worst first, with the ends of their prompts if given."""
        return tuple(_with_prompt(response, prompts) for response in self._kept)


def _largest_first(response: WorstResponse) -> tuple[float, int, int]:
    return -response.prob_diff_max, response.prompt, response.sample


def _worst(pair: ShardPair, index: int) -> WorstResponse:
    row = int(pair.rows[index])
    start, end = pair.sampled.response_offsets[row : row + 2]
    starts = np.append(pair.tokens.starts, len(pair.tokens.rows_N))
    own = slice(*starts[index : index + 2])
    return WorstResponse(
        prompt=int(pair.sampled.prompt_B[row]),
        sample=int(pair.sampled.sample_B[row]),
        prob_diff_max=float(pair.figures["prob_diff_max"][index]),
        logprob_diff_mean=float(pair.figures["logprob_diff_mean"][index]),
        at=int(pair.tokens.position_N[own][pair.prob_diff_N[own].argmax()]),
        ids=tuple(pair.sampled.response_ids_N[start:end].tolist()),
        sampler_logprobs=tuple(pair.sampled.logprobs_N[start:end].tolist()),
        learner_logprobs=tuple(pair.scored.logprobs_N[start:end].tolist()),
    )


def _with_prompt(response: WorstResponse, prompts: Sequence[str] | None) -> WorstResponse:
    if prompts is None or not 0 <= response.prompt < len(prompts):
        return response
    fields = {name: getattr(response, name) for name in WorstResponse.__dataclass_fields__}
    return WorstResponse(**fields | {"prompt_text": prompts[response.prompt][-_PROMPT_LETTERS:]})


class Unmeasured:
    """The first tokens that are not finite on both sides."""

    def __init__(self) -> None:
        self.found: tuple[tuple[int, int, int], ...] = ()

    def add(self, pair: ShardPair) -> None:
        """Add a shard."""
        places = np.flatnonzero(~pair.finite_N)[: UNMEASURED_TOKENS - len(self.found)]
        if not len(places):
            return
        rows, sampled = pair.sampled.rows_N[places], pair.sampled
        columns = (sampled.prompt_B[rows], sampled.sample_B[rows], sampled.positions_N[places])
        tokens = (tuple(token) for token in np.stack(columns, axis=1).tolist())
        self.found = (*self.found, *tokens)


class PromptGaps:
    """The prompts with the largest mean |Δp|, and the number of prompts.

    The contract requires that responses to a prompt are adjacent; a prompt that recurs later counts
    again.
    """

    def __init__(self) -> None:
        self.prompts = 0
        self._open: PromptGap | None = None
        self._kept: list[PromptGap] = []

    def add(self, pair: ShardPair) -> None:
        """Add a shard; its last prompt may continue in the next shard."""
        prompt_R = pair.sampled.prompt_B[pair.rows]
        starts = np.flatnonzero(np.diff(prompt_R, prepend=prompt_R[:1] - 1))
        counts = np.diff(starts, append=len(prompt_R)).tolist()
        means = {
            name: np.add.reduceat(pair.figures[name], starts).tolist()
            for name in ("prob_diff_mean", "logprob_diff_mean")
        }
        largest = np.maximum.reduceat(pair.figures["prob_diff_max"], starts).tolist()
        for at, start in enumerate(starts.tolist()):
            count, sums = counts[at], [means[name][at] for name in means]
            gap = PromptGap(
                int(prompt_R[start]), count, sums[0] / count, sums[1] / count, largest[at]
            )
            self._take(gap)

    def _take(self, gap: PromptGap) -> None:
        if self._open is not None and self._open.prompt == gap.prompt:
            self._open = _merged(self._open, gap)
            return
        self._close()
        self.prompts += 1
        self._open = gap

    def _close(self) -> None:
        if self._open is not None:
            self._kept = sorted([*self._kept, self._open], key=_largest_gap_first)[:WORST_PROMPTS]
            self._open = None

    def found(self) -> tuple[PromptGap, ...]:
        """The worst prompts, worst first."""
        self._close()
        return tuple(self._kept)


def _largest_gap_first(gap: PromptGap) -> tuple[float, int]:
    return -gap.prob_diff_mean, gap.prompt


def _merged(one: PromptGap, other: PromptGap) -> PromptGap:
    count = one.responses + other.responses
    share = other.responses / count
    return PromptGap(
        one.prompt,
        count,
        one.prob_diff_mean + (other.prob_diff_mean - one.prob_diff_mean) * share,
        one.logprob_diff_mean + (other.logprob_diff_mean - one.logprob_diff_mean) * share,
        max(one.prob_diff_max, other.prob_diff_max),
    )


class Scatter:
    """A uniform random selection of tokens: those with the smallest random numbers.

    Args:
        seed: seed of the selection.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._seen = 0
        self._keys = np.empty(0)
        self._points = np.empty((0, 2))

    def add(self, pair: ShardPair) -> None:
        """Add a shard."""
        numbers_N = np.flatnonzero(pair.finite_N) + self._seen
        self._seen += len(pair.finite_N)
        keys = np.append(self._keys, uniform(self._seed, numbers_N))
        points = np.concatenate([self._points, _points(pair)])
        chosen = np.argsort(keys, kind="stable")[:SCATTER_TOKENS]
        self._keys, self._points = keys[chosen], points[chosen]

    def found(self) -> tuple[tuple[float, float], ...]:
        """(sampler's, learner's) log-probability of each selected token."""
        return tuple((sampler, learner) for sampler, learner in self._points.tolist())


def _points(pair: ShardPair) -> NDArray[np.float64]:
    sides = (pair.sampled.logprobs_N, pair.scored.logprobs_N)
    return np.stack([side[pair.finite_N].astype(np.float64) for side in sides], axis=1)
