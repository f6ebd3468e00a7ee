"""A penalty on repeated n-grams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class RepetitionPenalty(Remedy):
    """Subtract up to 1 from the reward for repeated 3-grams.

    What it does:
        A loop fills the length budget without new content. The penalty is the share of repeated
        3-grams, so a response that loops loses most of its reward.

    When it applies:
        Responses repeat themselves until the limit, and truncation alone does not stop it.

    What it costs:
        It changes the reward. Tables, code and long sums repeat legitimately; keep the weight
        small.

    What it overlaps:
        The soft overlong punishment, which punishes the same responses for their length.

    How it is judged:
        By a person, after the restart: the repeated share and the truncated share fall, and
        accuracy does not.

    References:
        Demystifying Long Chain-of-Thought Reasoning in LLMs, arXiv 2502.03373.
    """

    id = "repetition-penalty"
    title = "Penalize repetition in the reward"
    applicability = "suggest"
    in_flight = False
    slots = ("reward",)
    target = Criterion("text/repetition_rate", "down")
    more_targets = (Criterion("length/truncated_rate", "down"),)
    paper = "arXiv 2502.03373"
    how = (
        "Add a penalty of at most 1 on repeated 3-grams to the reward. Do not set the sampler's "
        "repetition_penalty: it changes the sampled distribution but not the learner's "
        "probabilities."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"repetition_penalty": 1.0}
