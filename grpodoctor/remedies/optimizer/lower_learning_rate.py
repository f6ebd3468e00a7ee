"""A lower learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import (
    Criterion,
    Readings,
    Remedy,
    assumed,
    number,
    round_to_two_digits,
)
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.learning_rates import ADAPTERS, FULL, usual_rates

FLOOR = 1e-7
"""A tenth of the smallest rate in common recipes; below it, bf16 weights hardly change."""

_RANK = "lora_rank"


class LowerLearningRate(Remedy):
    """Divide the learning rate by three.

    What it does:
        Each optimizer step moves the policy less, so a batch is still close to on-policy at its
        last update. Steps that are too large show at once: ratios and the divergence from the old
        policy are high from the first step on. A rate far above those of RL is set to a usual
        starting value instead: 1e-6 for all weights of a pretrained model, 1e-5 for adapters. The
        bound is 1e-5 where the run is known to train all weights, ten times the rate of DAPO and
        DeepSeekMath; 1e-4 where that is only assumed; and 1e-2 for adapters.

    When it applies:
        Ratios, the KL to the old policy or the gradient norm are high from the first update of a
        batch on.

    What it costs:
        Slower learning. It does not restore what the policy has lost; resume from a checkpoint for
        that.

    What it overlaps:
        Fewer updates per batch, which also reduces how far the policy moves.

    How it is judged:
        The divergence from the old policy falls, or the reward rises. Guard: the reward does not
        fall.

    References:
        PPO, arXiv 1707.06347, appendix A, Table 4 (a step size that follows the divergence from the
        old policy); DAPO, arXiv 2503.14476, and DeepSeekMath, arXiv 2402.03300 (1e-6).
    """

    id = "lower-learning-rate"
    title = "Divide the learning rate by three"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Criterion("kl/old_policy/k3", "down")
    more_targets = (Criterion("ratio/max", "down"), Criterion("reward/mean", "up"))
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "PPO, arXiv 1707.06347"
    alternatives = ("larger-batch",)
    when_unknown: ClassVar[Mapping[str, Setting]] = {"learning_rate": "<current value / 3>"}
    assumes: ClassVar[Mapping[str, Setting]] = {_RANK: 0, "pretrained_model": True}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `learning_rate` if it is known and stays above the floor."""
        rate = number(knobs, "learning_rate")
        return _lowered(rate, knobs) if rate is not None else {}

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Lower the logged rate where the setting is unknown."""
        rate = readings.get("optimizer/learning_rate")
        if not isinstance(change.get("learning_rate"), str) or not rate:
            return change
        return {**change, **_lowered(rate, readings)}

    def title_for(self, change: Mapping[str, Setting], known: Readings) -> str:
        """The title; with both rates if the new one is a starting value and not a third."""
        rate = known.get("learning_rate", known.get("optimizer/learning_rate"))
        if rate is None or not _is_start(change, rate):
            return self.title
        return f"Lower the learning rate from {rate:g} to {change['learning_rate']:g}"

    def remark(self, change: Mapping[str, Setting], known: Readings) -> str:
        """What a starting value assumes about the weights that are trained."""
        rate = known.get("learning_rate", known.get("optimizer/learning_rate"))
        if rate is None or not _is_start(change, rate):
            return ""
        if _RANK not in known:
            return f"for {FULL.what}; {ADAPTERS.start:g} with LoRA"
        rates = usual_rates(known[_RANK])
        return f"usual for {rates.what}: {rates.usual}"


def _lowered(rate: float, facts: Mapping[str, Setting]) -> dict[str, Setting]:
    """The change of a rate: a starting value if it is far above the usual ones, else a third."""
    rates = usual_rates(number(facts, _RANK) or 0.0)
    bound = rates.far_above if facts.get(assumed(_RANK)) else rates.above
    if rate >= bound and _RANK in facts and facts.get("pretrained_model", True):
        return {"learning_rate": rates.start}
    return {"learning_rate": round_to_two_digits(rate / 3)} if rate / 3 >= FLOOR else {}


def _is_start(change: Mapping[str, Setting], rate: float) -> bool:
    """Whether a change sets a starting value, which is far below a third of the rate."""
    new = number(change, "learning_rate")
    return new is not None and new < rate / 9
