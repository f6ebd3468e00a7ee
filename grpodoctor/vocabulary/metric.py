"""The form of a row in the vocabulary of metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

Kind = Literal["mean", "rate", "max", "min", "quantiles"]

_MAY_BE_EMPTY = frozenset((
    *HELDOUT, "pass_at_k/<k>",  # between two evaluations
    "accuracy/train", "reward/component/<name>/mean", "reward/component/<name>/std",  # other tasks
    "length/correct", "length/incorrect", "length/group_gap", "length/terminated_mean",
    "entropy/correct", "entropy/incorrect", "reward/truncated", "optimizer/positive_nll",
    "groups/uncentred_rate", "groups/text_similarity", "groups/reward_by_place",
    "groups/length_by_place", "groups/returned_rate", "groups/returned_by_chance",
    "groups/agreed_rate", "groups/agreed_incorrect_rate", "groups/same_answer_variance",
    "groups/other_answer_variance", "groups/same_answer_length_correlation", "prompts/outside_rate",
    "tools/failure_rate", "environment/invalid_action_rate", "clip/high_probability",
    "critic/explained_variance",  # undefined if all returns are equal
    "experts/replay_agreement",
))  # fmt: skip
"""Metrics of a part of the batch that can be empty, and of tasks or sets that not every batch has.
"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the vocabulary."""

    name: str
    """Canonical name; a part like `<name>` stands for any text without a slash."""
    kind: Kind
    unit: str
    over: str
    """The population of the mean, rate or extreme."""
    summary: str
    policies: str = ""
    """The policies that it compares or is measured under; empty if there are none."""
    low: float = -math.inf
    high: float = math.inf
    source: str = ""
    how: str = ""
    """How to record it, for rules that lack it; empty if it is always recorded."""

    @property
    def may_be_empty(self) -> bool:
        """Whether the population is empty in some healthy batches, so that NaN means "none"."""
        return self.name in _MAY_BE_EMPTY
