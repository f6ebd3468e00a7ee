"""Token-level loss: every token of the batch has the same weight."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class TokenLevelLoss(Remedy):
    """Divide the loss by the batch's tokens instead of each response's length.

    What it does:
        With the mean of response means, an incorrect response of 1000 tokens is punished a tenth as
        much per token as one of 100, so a long failure costs less per token than a short one. One
        denominator for all tokens removes this difference.

    When it applies:
        The denominator is each response's own length, and incorrect responses grow.

    What it costs:
        Long responses have more weight in the gradient than short ones, correct or not. The size of
        the gradient changes, so a tuned learning rate may have to be tuned again.

    What it overlaps:
        Dr. GRPO's constant denominator: the two are alternatives and are never combined.

    How it is judged:
        The length gap between incorrect and correct responses to the same prompt closes, or fewer
        responses reach the limit. Guard: the reward does not fall.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.3 and Eq. 8 (which divides per prompt; libraries divide per batch, as here).
    """

    id = "token-level-loss"
    title = "Average the loss over all tokens of the batch"
    applicability = "unsafe"
    in_flight = True
    slots = ("denominator",)
    target = Criterion("length/group_gap", "down")
    more_targets = (Criterion("length/truncated_rate", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `aggregation` if the denominator is a response's or a prompt's own length."""
        is_biased = knobs.get("aggregation") in {"sequence-mean", "prompt-mean"}
        return {"aggregation": "token-mean"} if is_biased else {}
