"""The charts of a run: title, unit and curves of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Color = Literal["blue", "green", "red", "violet", "amber", "gray"]


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric in a chart."""

    label: str
    metric: str
    color: Color
    dash: str = "solid"
    compared: bool = True
    """Whether the curve of a second run is drawn too."""


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """One chart over training steps."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    stacked: bool = False
    """Whether the curves are parts of a whole, drawn as stacked areas."""
    fallback: tuple[Curve, ...] = ()
    """Drawn if none of `curves` was logged."""


CHARTS: tuple[ChartSpec, ...] = (
    ChartSpec(
        "Reward",
        "reward",
        (
            Curve("training", "reward/mean", "blue"),
            Curve("held-out", "reward/heldout", "violet", "dot"),
        ),
    ),
    ChartSpec(
        "Accuracy",
        "share of responses",
        (
            Curve("training", "accuracy/train", "blue"),
            Curve("held-out", "accuracy/heldout", "violet", "dot"),
        ),
    ),
    ChartSpec(
        "Entropy",
        "nats per token",
        (
            Curve("all", "entropy/mean", "blue"),
            Curve("correct", "entropy/correct", "green", compared=False),
            Curve("incorrect", "entropy/incorrect", "red", compared=False),
        ),
    ),
    ChartSpec(
        "Response length",
        "tokens",
        (
            Curve("all", "length/mean", "blue"),
            Curve("correct", "length/correct", "green", compared=False),
            Curve("incorrect", "length/incorrect", "red", compared=False),
        ),
    ),
    ChartSpec(
        "Groups without gradient",
        "share of groups",
        (
            Curve("all-correct", "groups/all_correct_rate", "green"),
            Curve("all-incorrect", "groups/all_incorrect_rate", "red"),
            Curve("canceled", "groups/cancelled_rate", "amber"),
        ),
        stacked=True,
        fallback=(Curve("zero variance", "groups/zero_variance_rate", "gray"),),
    ),
    ChartSpec(
        "Clip fraction",
        "share of loss tokens",
        (
            Curve("low side", "clip/low_rate", "red", compared=False),
            Curve("high side", "clip/high_rate", "green", compared=False),
            Curve("dual", "clip/dual_rate", "amber", compared=False),
        ),
    ),
    ChartSpec(
        "Sampler-learner mismatch",
        "|Δ probability|",
        (
            Curve("mean over tokens", "mismatch/prob_diff_mean", "blue"),
            Curve(
                "maximum, mean over responses", "mismatch/prob_diff_max", "amber", compared=False
            ),
            Curve(
                "maximum, worst response",
                "mismatch/prob_diff_max/worst_sequence",
                "red",
                compared=False,
            ),
        ),
    ),
    ChartSpec(
        "Off-policy samples",
        "nats per token",
        (Curve("NLL gap", "mismatch/nll_gap", "blue"),),
    ),
    ChartSpec(
        "Truncated responses",
        "share of responses",
        (Curve("truncated", "length/truncated_rate", "amber"),),
    ),
    ChartSpec(
        "KL divergence",
        "nats per token (k3)",
        (
            Curve("from the reference model", "kl/reference/k3", "violet"),
            Curve("from the old policy", "kl/old_policy/k3", "blue"),
        ),
    ),
    ChartSpec("Gradient norm", "before clipping", (Curve("norm", "optimizer/grad_norm", "blue"),)),
)

CHARTED_METRICS = tuple(
    curve.metric for chart in CHARTS for curve in (*chart.curves, *chart.fallback)
)
"""The metrics that are kept over the whole run for the charts."""
