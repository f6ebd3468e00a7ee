"""Token-level loss: every token of the batch counts the same."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class TokenLevelLoss(Remedy):
    """Divide the loss by the number of tokens of the batch instead of by each response's own.

    What it does:
        Under the mean of response means a wrong answer of 1000 tokens is punished a tenth as much
        per token as one of 100, so failing at length is cheaper than failing briefly. With one
        denominator for all tokens it is not.

    What it costs:
        Long responses weigh more in the gradient than short ones, right or wrong. The size of the
        gradient changes, so a learning rate tuned before may need another look.

    What it overlaps:
        Dr. GRPO's constant denominator: the two are alternatives and are never combined.

    How it is judged:
        Incorrect responses stop being longer than correct ones of the same prompt, or fewer
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
    target = Watch("length/group_gap", "down")
    also = (Watch("length/truncated_rate", "down"),)
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `aggregation`, where the denominator is a response's or a prompt's own length."""
        biased = knobs.get("aggregation") in {"sequence-mean", "prompt-mean"}
        return {"aggregation": "token-mean"} if biased else {}
