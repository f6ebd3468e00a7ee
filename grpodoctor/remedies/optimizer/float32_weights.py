"""Weights in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Float32Weights(Remedy):
    """Keep the learner's weights in float32 and compute in bf16.

    What it does:
        bf16 has 8 significant bits: an update smaller than about 1/256 of a weight is rounded away.
        At a learning rate of 1e-6 that is nearly every update. With float32 weights and bf16 matrix
        products, all of them count.

    When it applies:
        Weights are stored in bf16 without a float32 copy, the gradient is healthy, and few weights
        change.

    What it costs:
        Memory: 4 bytes per weight instead of 2, and the optimizer's state likewise.

    What it overlaps:
        A higher learning rate, which makes more updates survive the rounding. LoRA adapters in
        float32 do the same for less memory.

    How it is judged:
        By a person, after the restart: most weights change at every step, and the reward rises.

    References:
        Mixed Precision Training, arXiv 1710.03740, section 3.1 (a master copy of the weights).
    """

    id = "float32-weights"
    title = "Keep the learner's weights in float32"
    applicability = "suggest"
    in_flight = False
    slots = ("precision",)
    target = Criterion("optimizer/changed_weight_rate", "up")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "Mixed Precision Training, arXiv 1710.03740"
    alternatives = ("raise-learning-rate",)
    how = (
        "Load the learner's weights in float32 and switch on bf16 mixed precision, or train LoRA "
        "adapters, whose weights are float32."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"float32_weights": True}
