"""A somewhat lower sampling temperature."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number, round_figure
from grpodoctor.vocabulary.knobs import Setting

LOWEST = 0.6
"""The sampling temperature recommended for DeepSeek-R1; below it groups hardly differ."""


class LowerTemperature(Remedy):
    """Sample at a fifth lower temperature, 0.6 at least.

    What it does:
        Sharpens the distribution that responses are drawn from. Where entropy explodes, responses
        become coherent again and some of them are right, so that there is something to reinforce.

    What it costs:
        The policy that is optimized is the one at the sampling temperature, so this changes what is
        optimized. It treats the symptom: find out why entropy rose (steps too large, a broken
        reward, wrong log-probabilities).

    What it overlaps:
        Everything else that sets the amount of exploration.

    How it is judged:
        Entropy falls. Guards: groups do not lose their variance, the reward does not fall.

    References:
        DeepSeek-R1, arXiv 2501.12948 (sampling at 0.6).
    """

    id = "lower-temperature"
    title = "Lower the sampling temperature by a fifth"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Watch("entropy/mean", "down")
    guards = (
        Watch("groups/zero_variance_rate", "up", 0.5, slack=0.1),
        Watch("reward/mean", "down", 0.1),
    )
    paper = "DeepSeek-R1, arXiv 2501.12948"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `temperature`, where it is known and above the bound."""
        temperature = number(knobs, "temperature")
        if temperature is None or temperature <= LOWEST:
            return {}
        return {"temperature": max(LOWEST, round_figure(0.8 * temperature))}
