"""Old log-probabilities from the learner instead of from the engine that sampled."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class RecomputeOldLogprobs(Remedy):
    """Let the learner say what its probabilities were when the batch began.

    What it does:
        The clip bounds the ratio of the learner now to the learner before. With the engine's
        log-probabilities as the denominator, the disagreement of two programs is taken for movement
        of the policy: tokens are clipped before any update, always the ones the engine gets wrong.

    What it costs:
        One forward pass of the learner over each batch.

    What it overlaps:
        Losses that are anchored on the sampler by design (DPPO, bypass modes). TIS includes it.

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
    target = Watch("mismatch/first_ratio_off", "down")
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "Yao et al. 2025"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `old_logprobs`, where the sampler's are in use."""
        return {"old_logprobs": "recompute"} if knobs.get("old_logprobs") == "sampler" else {}
