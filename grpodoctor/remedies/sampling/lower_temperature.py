"""A lower sampling temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, number, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

LOWEST = 0.6
"""Sampling temperature recommended for DeepSeek-R1; below it responses of a group hardly differ."""


class LowerTemperature(Remedy):
    """Lower the sampling temperature by a fifth, to 0.6 at least.

    What it does:
        Sharpens the distribution of the responses. If entropy explodes, responses become coherent
        again and some of them are correct, which gives training something to reinforce.

    When it applies:
        Entropy is far above its starting value.

    What it costs:
        It changes what is optimized, which is the policy at the sampling temperature. It treats the
        symptom: find out why entropy rose (steps too large, a broken reward, wrong
        log-probabilities).

    What it overlaps:
        Everything else that sets the amount of exploration.

    How it is judged:
        Entropy falls. Guards: groups do not lose their variance, and the reward does not fall.

    References:
        DeepSeek-R1, arXiv 2501.12948 (sampling at 0.6).
    """

    id = "lower-temperature"
    title = "Lower the sampling temperature by a fifth"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Criterion("entropy/mean", "down")
    guards = (
        Criterion("groups/zero_variance_rate", "up", 0.5, slack=0.1),
        Criterion("reward/mean", "down", 0.1),
    )
    paper = "DeepSeek-R1, arXiv 2501.12948"
    alternatives = ("lopti",)
    when_unknown: ClassVar[Mapping[str, Setting]] = {"temperature": 0.8}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `temperature` if it is known and above the bound."""
        temperature = number(knobs, "temperature")
        if temperature is None or temperature <= LOWEST:
            return {}
        return {"temperature": max(LOWEST, round_to_two_digits(0.8 * temperature))}
