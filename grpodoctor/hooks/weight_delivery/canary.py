"""The canary of the weight sync: it compares a few responses with the learner's weights.

After a sync, a few responses of the sampler are scored by the learner with its current weights,
with those of the previous check and with those of the start. `measure.weights.delivery` explains
how the sampler's own log-probabilities then show which of these weights it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.weight_delivery.snapshots import TrainedWeights, Weights
from grpodoctor.measure.weights.delivery import (
    Share,
    Tokens,
    explains_more,
    mean_size,
    missing_parts,
    shares_of,
    unexplained,
)
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Reading

if TYPE_CHECKING:
    from torch import nn

Scores = NDArray[Any]
Score = Callable[[Any], object]
"""Log-probabilities of the response tokens, shape (R, T), by the learner as it is when called."""

MOST_TOKENS = 512
"""Tokens of a response that are compared; the first ones."""
_FEWEST = 8
"""Responses of a check; twice as many if they are short."""
_ENOUGH_TOKENS = 2048
_SUSPICIOUS = 2.0
"""Multiple of the noise from which a gap without a direction is searched for its part."""
_NEGLIGIBLE = 0.1
"""Share that does not keep a sample from being an anchor."""

START, LAST = "change", "update"
"""The change since the start, and since the previous check."""
_UNCHANGED = NotApplicable("the learner's weights have not changed yet")


@dataclass
class _Sample:
    """Responses of one sync."""

    inputs: Any
    mask_RT: NDArray[Any]
    gap_RT: Scores
    """Sampler minus learner, at the sync."""
    now_RT: Scores
    """The learner's scores at the latest check."""
    earlier_RT: dict[str, Scores] = field(default_factory=dict)
    """The learner's scores with the weights of the start and of the previous check."""

    def changes(self) -> dict[str, Scores]:
        """The earlier scores minus the latest ones."""
        return {name: each - self.now_RT for name, each in self.earlier_RT.items()}

    def tokens(self) -> Tokens:
        """The tokens that are finite on all sides."""
        return Tokens.of(self.mask_RT, self.gap_RT, self.now_RT, *self.earlier_RT.values())


class _Part(NamedTuple):
    """A part of the model that seems to keep its earlier weights."""

    names: tuple[str, ...]
    since: str
    """The earlier weights that it keeps."""
    parameters: Sequence[str]


class DeliveryCanary:
    """Checks after a sync whether the sampler follows the learner.

    Nothing of the training changes: the learner's weights are exchanged for references to copies
    while a few responses are scored, without gradients and without random numbers.

    Args:
        model: the learner.
        score: scores responses with the learner, at the sampler's temperature.
        staleness: syncs by which the sampler is behind the learner by design.
    """

    def __init__(self, model: nn.Module, score: Score, staleness: int = 0) -> None:
        self._weights = TrainedWeights(model)
        self._score = score
        self._staleness = staleness
        self._start: Weights = {}
        self._history: deque[Weights] = deque(maxlen=staleness + 2)
        """Weights of the latest checks, the current ones last."""
        self._anchor: _Sample | None = None
        """The latest responses whose sampler had the right weights."""
        self._checks = self._suspicions = 0
        self._part: _Part | None = None

    @property
    def obstacle(self) -> str:
        """Why nothing can be checked; empty if it can."""
        if not self._weights.names:
            return "the model has no weights that are trained, or all are too large to copy"
        if self._staleness and not self._weights.is_complete:
            return "the trained weights are too large to copy, and the sampler is stale by design"
        return ""

    def check(self, inputs: Any, sampler_RT: Scores, mask_RT: NDArray[Any]) -> dict[str, Reading]:
        """Compare responses that the sampler generated after a sync; call it before the update.

        Args:
            inputs: the responses, for `score`.
            sampler_RT: the sampler's log-probabilities of the response tokens.
            mask_RT: true for generated tokens.
        """
        self._history.append(self._weights.snapshot())
        self._start = self._start or self._history[-1]
        if len(self._history) <= self._staleness:
            return {}  # the sampler has not received these weights yet
        now_RT = self._scored(inputs, self._expected)
        sample = _Sample(inputs, mask_RT, sampler_RT - now_RT, now_RT)
        if self._anchor is None:
            return self._first(sample)
        sample.earlier_RT = self._earlier_scores(inputs)
        self._rescore(self._anchor)
        found = _Comparison(sample, self._anchor)
        readings = found.readings()
        if found.is_suspicious:
            readings |= self._missing_part(sample, found)
        self._checks += 1
        if found.is_right and _is_power_of_two(self._checks):
            self._anchor = sample
        return readings

    def _first(self, sample: _Sample) -> dict[str, Reading]:
        """Before the first update, both sides have the weights of the start."""
        sample.earlier_RT = {START: sample.now_RT, LAST: sample.now_RT}
        self._anchor = sample
        size = mean_size(sample.tokens().select(sample.gap_RT))
        return {"delivery/gap": Mean.of_number(size), **_not_applicable(START, LAST)}

    def _rescore(self, anchor: _Sample) -> None:
        anchor.earlier_RT[LAST] = anchor.now_RT
        anchor.now_RT = self._scored(anchor.inputs, self._expected)

    def _earlier_scores(self, inputs: Any) -> dict[str, Scores]:
        """The scores under the weights before; equal weights are scored once."""
        weights = self._earlier_weights()
        scores = {START: self._scored(inputs, weights[START])}
        is_same = weights[LAST] is weights[START]
        return scores | {LAST: scores[START] if is_same else self._scored(inputs, weights[LAST])}

    def _missing_part(self, sample: _Sample, comparison: _Comparison) -> dict[str, Reading]:
        """The part of the model that keeps its earlier weights, if it is not all of it."""
        self._suspicions += 1
        if _is_power_of_two(self._suspicions):
            self._part = self._search_part(sample, comparison) or self._part
        if self._part is None:
            return {}
        change_RT = self._change_of(sample, self._part.since, self._part.parameters)
        tokens, gap_RT = comparison.tokens, sample.gap_RT
        shares = shares_of(tokens, gap_RT, [change_RT])
        left = mean_size(tokens.select(gap_RT - change_RT))
        if shares is None or left > comparison.usual:
            return {}
        if not explains_more(tokens, gap_RT, change_RT, comparison.distinct_changes()):
            return {}
        return {
            "delivery/missing_part": Max(shares[0].value, ", ".join(self._part.names)),
            "delivery/unexplained": Mean.of_number(left),
        }

    def _search_part(self, sample: _Sample, comparison: _Comparison) -> _Part | None:
        divided = self._weights.parts()
        changes = [
            {
                part: self._change_of(sample, comparison.since, names)
                for part, names in parts.items()
            }
            for parts in divided
        ]
        scores = [each for parts in changes for each in parts.values()]
        tokens = Tokens.of(sample.mask_RT, sample.gap_RT, *scores)
        whole_RT = sample.changes()[comparison.since]
        parts = missing_parts(tokens, sample.gap_RT, whole_RT, changes)
        if parts is None:
            return None
        chosen = divided[parts.partition]
        parameters = [name for part in parts.names for name in chosen[part]]
        return _Part(parts.names, comparison.since, parameters)

    def _change_of(self, sample: _Sample, since: str, names: Sequence[str]) -> Scores:
        """The change of the scores if these parameters had their earlier weights."""
        earlier = self._earlier_weights()[since]
        weights = {**self._expected, **{name: earlier[name] for name in names}}
        return self._scored(sample.inputs, weights) - sample.now_RT

    @property
    def _expected(self) -> Weights:
        """The weights that the sampler should have; nothing is replaced for the current ones."""
        return self._history[-1 - self._staleness] if self._staleness else {}

    def _earlier_weights(self) -> dict[str, Weights]:
        """The weights of the start and of the previous check; one object if they are the same."""
        known = len(self._history) >= self._staleness + 2
        return {
            START: self._start,
            LAST: self._history[-2 - self._staleness] if known else self._start,
        }

    def _scored(self, inputs: Any, weights: Weights) -> Scores:
        import torch

        with torch.no_grad(), self._weights.replaced(weights):
            return to_host(self._score(inputs)).astype("float64")


class _Comparison:
    """A sample against the anchor."""

    def __init__(self, sample: _Sample, anchor: _Sample) -> None:
        self._sample, self._anchor = sample, anchor
        self.tokens, self._anchor_tokens = sample.tokens(), anchor.tokens()
        self._changes = sample.changes()
        self._shares = {START: self._share([START]), LAST: self._share([START, LAST])}
        self._gap = mean_size(self.tokens.select(sample.gap_RT))
        self._noise = mean_size(self._anchor_tokens.select(anchor.gap_RT))
        self.left = unexplained(self.tokens, sample.gap_RT, self.distinct_changes())

    @property
    def since(self) -> str:
        """The earlier weights that the sampler seems to have."""
        change, update = self._shares[START], self._shares[LAST]
        is_later = update is not None and update.low > 0 and not (change and change.low > 0)
        return LAST if is_later else START

    @property
    def usual(self) -> float:
        """The largest gap that is taken for noise."""
        return _SUSPICIOUS * self._noise

    @property
    def is_suspicious(self) -> bool:
        """Whether weights seem to be missing."""
        lows = [each.low for each in self._shares.values() if each is not None]
        return any(low > 0 for low in lows) or self._gap > self.usual

    @property
    def is_right(self) -> bool:
        """Whether the sampler has the right weights beyond doubt, so that its gap is mere noise."""
        shares = list(self._shares.values())
        if self._gap > self.usual:
            return False
        return all(
            each is not None and each.low <= 0 and abs(each.value) <= _NEGLIGIBLE for each in shares
        )

    def readings(self) -> dict[str, Reading]:
        """What is recorded."""
        readings: dict[str, Reading] = {
            "delivery/gap": Mean.of_number(self._gap),
            "delivery/noise": Mean.of_number(self._noise),
            "delivery/unexplained": Mean.of_number(self.left),
        }
        for name, share in self._shares.items():
            size = mean_size(self.tokens.select(self._changes[name]))
            readings[f"delivery/{name}"] = Mean.of_number(size)
            if share is None:
                readings |= _not_applicable(name)
            else:
                readings[f"delivery/{name}_missing"] = Mean.of_number(share.value)
                readings[f"delivery/{name}_missing_low"] = Mean.of_number(share.low)
        return readings

    def _share(self, names: Sequence[str]) -> Share | None:
        """The share of the last of these changes, the others being equal, beyond the anchor's.

        An engine that leans along the whole change must not seem to lack the latest update.
        """
        if len(self.distinct_changes()) < len(names):
            names = names[:1]
        own = shares_of(self.tokens, self._sample.gap_RT, [self._changes[name] for name in names])
        changes = self._anchor.changes()
        anchored = shares_of(
            self._anchor_tokens, self._anchor.gap_RT, [changes[name] for name in names]
        )
        return None if own is None or anchored is None else own[-1].minus(anchored[-1])

    def distinct_changes(self) -> Sequence[Scores]:
        """The change and the update, or one of them if they are the same."""
        change, update = self._changes[START], self._changes[LAST]
        return [change] if (change == update).all() else [change, update]


def _not_applicable(*names: str) -> dict[str, Reading]:
    ends = ("missing", "missing_low")
    return {f"delivery/{name}_{end}": _UNCHANGED for name in names for end in ends}


def responses_to_check(count: int, tokens: int) -> list[int]:
    """Which responses of a batch to check, evenly spread, so that they have different prompts.

    Args:
        count: responses in the batch.
        tokens: tokens of the longest one.
    """
    most = max(_FEWEST, min(2 * _FEWEST, _ENOUGH_TOKENS // max(tokens, 1)))
    return list(range(0, count, max(1, count // most)))[:most]


def _is_power_of_two(count: int) -> bool:
    """Searches and new anchors become rarer, so that their cost and their errors stay bounded."""
    return count & (count - 1) == 0
