"""Sampling from the whole vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class WholeDistribution(Remedy):
    """Sample without top-p, top-k and min-p, or renormalize the learner on the same tokens.

    What it does:
        With top-p 0.9, the sampler's probabilities are up to 1 / 0.9 times larger than the
        learner's, which normalizes over the whole vocabulary. Each ratio is then biased by up to 10
        %, always in the same direction. Either sample from all tokens, or keep the sampling mask of
        each token and normalize the learner's probabilities over it.

    When it applies:
        The sampler cuts off its distribution, or the mean correction weight differs from 1 from the
        first step on.

    What it costs:
        Sampling from all tokens produces a few more unlikely tokens. Keeping the mask costs memory
        for each token and needs support in both engines.

    What it overlaps:
        Corrections, which would otherwise compensate for the bias.

    How it is judged:
        By a person, after the restart: the bias of the log-probabilities is near 0 at the first
        step.

    References:
        DeepSeek-V3.2, arXiv 2512.02556 (keep the sampling mask); TRL issues 6789 and 7269 (the
        bias).
    """

    id = "whole-distribution"
    title = "Sample from the whole vocabulary, or renormalize on the sampled support"
    applicability = "suggest"
    in_flight = False
    slots = ("old-policy",)
    target = Criterion("mismatch/bias", "down")
    more_targets = (Criterion("mismatch/first_ratio_off", "down"),)
    paper = "DeepSeek-V3.2, arXiv 2512.02556"
    how = (
        "Set top_p to 1 and switch off top_k and min_p for training; evaluation may keep them. To"
        " keep top-p, return the sampling mask with each token and normalize the learner's "
        "probabilities over it."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"whole_distribution": True}
