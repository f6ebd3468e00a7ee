"""A somewhat higher sampling temperature."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number, round_figure
from grpodoctor.vocabulary.knobs import Setting

HIGHEST = 1.2
"""Most recipes sample at 1; far above it, unlikely tokens pile up over a long response."""


class RaiseTemperature(Remedy):
    """Sample at a quarter higher temperature, 1.2 at most.

    What it does:
        Flattens the distribution that responses are drawn from, so that groups differ again and
        the gradient has something to tell apart.

    What it costs:
        The policy that is optimized is the one at the sampling temperature, so this changes what is
        optimized. Accuracy of the rollouts falls at once. Every log-probability must be taken at
        the new temperature, in the engine and in the learner.

    What it overlaps:
        Everything else that counters low entropy: clip-higher, an entropy bonus, covariance clips.

    How it is judged:
        Entropy rises, or fewer groups are without variance. Guards: the reward does not collapse,
        not many more responses are cut.

    References:
        Polaris 2025, A Post-training Recipe for Scaling RL on Advanced Reasoning Models.
    """

    id = "raise-temperature"
    title = "Raise the sampling temperature by a quarter"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Watch("entropy/mean", "up")
    also = (Watch("groups/zero_variance_rate", "down"),)
    guards = (
        Watch("reward/mean", "down", 0.25),
        Watch("length/truncated_rate", "up", 0.5, slack=0.05),
    )
    paper = "Polaris 2025"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `temperature`, where it is known and below the bound."""
        temperature = number(knobs, "temperature")
        if temperature is None or temperature >= HIGHEST:
            return {}
        return {"temperature": min(HIGHEST, round_figure(1.25 * temperature))}
