"""Old log-probabilities from the learner instead of the sampler."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class RecomputeOldLogprobs(Remedy):
    """Compute the old log-probabilities with the learner at the start of each batch.

    What it does:
        The clip bounds the ratio of the current learner to the learner at the start of the batch.
        With the sampler's log-probabilities as the denominator, the difference between the two
        engines counts as a policy change: tokens are clipped before any update, and always those on
        which the engines differ most.

    When it applies:
        The ratio before the first update of a batch is not 1, and old log-probabilities come from
        the sampler.

    What it costs:
        One forward pass of the learner over each batch.

    What it overlaps:
        Losses that use the sampler as their anchor by design (DPPO, bypass modes). TIS includes
        this remedy.

    How it is judged:
        Ratios are 1 again before the first update of a batch. Guard: the reward does not fall.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    id = "recompute-old-logprobs"
    title = "Recompute old log-probabilities with the learner"
    applicability = "safe"
    in_flight = True
    slots = ("old-policy",)
    target = Criterion("mismatch/first_ratio_off", "down")
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Yao et al. 2025"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `old_logprobs` if the sampler's are in use."""
        return {"old_logprobs": "recompute"} if knobs.get("old_logprobs") == "sampler" else {}
