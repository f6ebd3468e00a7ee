"""Dr. GRPO: a constant denominator and no division by the group's standard deviation."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting

_SETTINGS: dict[str, Setting] = {"aggregation": "constant", "advantage": "centred"}


class DrGrpo(Remedy):
    """Divide by the generation budget instead of the response's length, and do not divide by std.

    What it does:
        Removes two biases of GRPO. Dividing by a response's own length makes long wrong answers
        cheap. Dividing by the group's standard deviation gives prompts that are nearly always or
        nearly never solved more weight than their rewards carry.

    What it costs:
        The gradient becomes smaller: the budget is usually much longer than a response, and
        standard deviations of rewards in 0..1 are below one half. Adam absorbs most of a constant
        factor, a norm bound on the gradient does not.

    What it overlaps:
        The token-level loss (another denominator) and every other advantage estimator.

    How it is judged:
        Incorrect responses stop being longer than correct ones of the same prompt. Guard: the
        reward does not fall.

    References:
        Understanding R1-Zero-Like Training: A Critical Perspective, arXiv 2503.20783, section 3.
    """

    id = "dr-grpo"
    title = "Constant denominator, advantages without standard deviation"
    applicability = "unsafe"
    in_flight = True
    slots = ("denominator", "advantage")
    target = Watch("length/group_gap", "down")
    also = (Watch("length/incorrect", "down"),)
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "Dr. GRPO, arXiv 2503.20783"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `aggregation` and `advantage`, whichever differs; both must be known.

        A critic's advantages are divided by no group's deviation: there only the denominator is.
        """
        if any(name not in knobs for name in _SETTINGS):
            return {}
        kept = {"advantage"} if knobs["advantage"] == "gae" else set[str]()
        wanted = {name: setting for name, setting in _SETTINGS.items() if name not in kept}
        return {name: setting for name, setting in wanted.items() if knobs[name] != setting}
