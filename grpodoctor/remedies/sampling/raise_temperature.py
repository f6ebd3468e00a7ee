"""A higher sampling temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, number, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

HIGHEST = 1.2
"""Most recipes sample at 1; far above it, a long response accumulates unlikely tokens."""
USUAL = 1.0
LOWEST = 0.6
"""The lowest temperature of common recipes. Below it, sampling stays nearly greedy even if the
temperature rises by a quarter."""


class RaiseTemperature(Remedy):
    """Raise the sampling temperature by a quarter: to 0.6 at least, and to 1.2 at most.

    What it does:
        Flattens the distribution of the responses, so that the responses of a group differ again
        and contribute gradient.

    When it applies:
        Entropy is low or groups have no variance, and the policy still solves some prompts.

    What it costs:
        It changes what is optimized, which is the policy at the sampling temperature. Training
        accuracy falls at once. Every log-probability must be computed at the new temperature, in
        the sampler and in the learner.

    What it overlaps:
        Everything else that raises entropy: clip-higher, an entropy bonus, covariance clips.

    How it is judged:
        Entropy rises, or fewer groups have zero variance. Guards: the reward does not collapse, and
        the truncated share does not grow much.

    References:
        DeepSeek-R1, arXiv 2501.12948 (sampling at 0.6 and above).
        Polaris 2025, A Post-training Recipe for Scaling RL on Advanced Reasoning Models.
    """

    id = "raise-temperature"
    title = "Raise the sampling temperature"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Criterion("entropy/mean", "up")
    more_targets = (Criterion("groups/zero_variance_rate", "down"),)
    guards = (
        Criterion("reward/mean", "down", 0.25),
        Criterion("length/truncated_rate", "up", 0.5, slack=0.05),
    )
    paper = "Polaris 2025"
    when_unknown: ClassVar[Mapping[str, Setting]] = {"temperature": 1.2}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `temperature` if it is known and below the bound; 1 in place of greedy sampling."""
        if knobs.get("greedy_sampling") is True:
            return {"temperature": USUAL}
        temperature = number(knobs, "temperature")
        if temperature is None or temperature >= HIGHEST:
            return {}
        raised = max(LOWEST, round_to_two_digits(1.25 * temperature))
        return {"temperature": min(HIGHEST, raised)}
