"""Dr. GRPO: a constant denominator and advantages without the standard deviation."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting

_SETTINGS: dict[str, Setting] = {"aggregation": "constant", "advantage": "centred"}


class DrGrpo(Remedy):
    """Divide by the generation budget instead of the response's length, and not by the group's std.

    What it does:
        Removes two biases of GRPO. Dividing by a response's own length punishes long incorrect
        responses too little. Dividing by the group's standard deviation gives too much weight to
        prompts that are nearly always or nearly never solved.

    When it applies:
        Incorrect responses grow longer than correct ones, or most groups are nearly always or
        nearly never solved.

    What it costs:
        The gradient becomes smaller: the budget is usually much longer than a response, and
        standard deviations of rewards in [0, 1] are below one half. Adam absorbs most of a constant
        factor; gradient clipping does not.

    What it overlaps:
        The token-level loss (another denominator) and every other advantage estimator.

    How it is judged:
        The length gap between incorrect and correct responses to the same prompt closes. Guard: the
        reward does not fall.

    References:
        Understanding R1-Zero-Like Training: A Critical Perspective, arXiv 2503.20783, section 3.
    """

    id = "dr-grpo"
    title = "Use a constant denominator, and advantages without standard deviation"
    applicability = "unsafe"
    in_flight = True
    slots = ("denominator", "advantage")
    target = Criterion("length/group_gap", "down")
    more_targets = (Criterion("length/incorrect", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Dr. GRPO, arXiv 2503.20783"
    alternatives = ("token-level-loss", "lite-ppo", "gopo")

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `aggregation` and `advantage`, whichever differs; both must be known.

        A critic's advantages are not divided by a group's standard deviation, so with a critic only
        the denominator changes.
        """
        if any(name not in knobs for name in _SETTINGS):
            return {}
        changed = {name: value for name, value in _SETTINGS.items() if knobs[name] != value}
        if knobs["advantage"] == "gae":
            changed.pop("advantage")
        return changed
