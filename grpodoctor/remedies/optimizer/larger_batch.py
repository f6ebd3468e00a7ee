"""A larger batch."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, number
from grpodoctor.vocabulary.knobs import Setting

PROMPTS, RESPONSES = 64, 8
"""The size that practitioners recommend as a minimum; published runs use up to 512 x 16."""


class LargerBatch(Remedy):
    """Restart with 64 prompts of 8 responses per batch.

    What it does:
        The noise of the gradient falls with the square root of the number of responses. Below some
        size, each update follows chance: the reward scatters around its level, and a lower learning
        rate only slows the walk.

    When it applies:
        The reward's scatter between steps is what the batch size predicts, and larger than its
        progress.

    What it costs:
        Sampling time in proportion. Accumulate gradients if memory does not allow larger batches.

    What it overlaps:
        A lower learning rate, which averages over steps instead.

    How it is judged:
        By a person, after the restart: the reward rises above its scatter.

    References:
        An Empirical Model of Large-Batch Training, arXiv 1812.06162 (the noise scale); DAPO, arXiv
        2503.14476 (512 x 16).
    """

    id = "larger-batch"
    title = "Restart with a larger batch: 64 prompts x 8 responses"
    applicability = "suggest"
    in_flight = False
    needs_memory = True
    slots = ("step-size",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("optimizer/noise_scale", "down"),)
    paper = "arXiv 1812.06162"
    how = "Restart with at least 64 prompts of 8 responses per batch."

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `prompts_per_batch` and `group_size` where they are known and smaller."""
        prompts, responses = number(knobs, "prompts_per_batch"), number(knobs, "group_size")
        if prompts is None or responses is None:
            return {}
        wanted = {"prompts_per_batch": (prompts, PROMPTS), "group_size": (responses, RESPONSES)}
        return {name: size for name, (current, size) in wanted.items() if current < size}
