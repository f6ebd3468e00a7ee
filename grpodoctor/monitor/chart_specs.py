"""The charts of a run: title, unit and curves of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Color = Literal["blue", "green", "red", "violet", "amber", "gray"]
Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric in a chart."""

    label: str
    metric: str
    color: Color
    dash: Dash = "solid"
    """Each curve of a chart has another dash, so that they differ without color too."""
    compared: bool = True
    """Whether the curve of a second run is drawn too."""


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """One chart over training steps."""

    key: str
    """Name in the ids of the page's elements."""
    title: str
    unit: str
    curves: tuple[Curve, ...]
    """The most important one first: the chart shows its starting range."""
    spans_decades: bool = False
    """Whether the values may differ by powers of ten, so that a logarithmic axis is useful."""
    fallback: ChartSpec | None = None
    """Drawn if none of `curves` was logged."""


def _kl(estimator: str, fallback: ChartSpec | None = None) -> ChartSpec:
    return ChartSpec(
        "kl",
        "KL divergence",
        f"nats per token ({estimator})",
        (
            Curve("from the reference model", f"kl/reference/{estimator}", "violet"),
            Curve("from the old policy", f"kl/old_policy/{estimator}", "blue", "dash"),
        ),
        # k1 may be negative.
        spans_decades=estimator != "k1",
        fallback=fallback,
    )


def _mismatch(figure: str, unit: str, fallback: ChartSpec | None = None) -> ChartSpec:
    largest = f"mismatch/{figure}_max"
    return ChartSpec(
        "mismatch",
        "Sampler-learner mismatch",
        unit,
        (
            Curve("mean", f"mismatch/{figure}_mean", "blue"),
            Curve("mean of response maxima", largest, "amber", "dash", compared=False),
            Curve("worst response", f"{largest}/worst_sequence", "red", "dot", compared=False),
        ),
        spans_decades=True,
        fallback=fallback,
    )


CHARTS: tuple[ChartSpec, ...] = (
    ChartSpec(
        "reward",
        "Reward",
        "reward",
        (
            Curve("training", "reward/mean", "blue"),
            Curve("held-out", "reward/heldout", "violet", "dash"),
        ),
    ),
    ChartSpec(
        "accuracy",
        "Accuracy",
        "share of responses",
        (
            Curve("training", "accuracy/train", "blue"),
            Curve("held-out", "accuracy/heldout", "violet", "dash"),
        ),
    ),
    ChartSpec(
        "entropy",
        "Entropy",
        "nats per token",
        (
            Curve("all", "entropy/mean", "blue"),
            Curve("correct", "entropy/correct", "green", "dash", compared=False),
            Curve("incorrect", "entropy/incorrect", "red", "dot", compared=False),
        ),
    ),
    ChartSpec(
        "length",
        "Response length",
        "tokens",
        (
            Curve("all", "length/mean", "blue"),
            Curve("correct", "length/correct", "green", "dash", compared=False),
            Curve("incorrect", "length/incorrect", "red", "dot", compared=False),
        ),
    ),
    ChartSpec(
        "groups",
        "Groups without gradient",
        "share of groups",
        (
            Curve("zero variance", "groups/zero_variance_rate", "blue"),
            Curve("all-correct", "groups/all_correct_rate", "green", "dash", compared=False),
            Curve("all-incorrect", "groups/all_incorrect_rate", "red", "dot", compared=False),
            Curve("canceled", "groups/cancelled_rate", "amber", "dashdot", compared=False),
        ),
    ),
    ChartSpec(
        "clip",
        "Clip fraction",
        "share of loss tokens",
        (
            Curve("low side", "clip/low_rate", "red"),
            Curve("high side", "clip/high_rate", "green", "dash", compared=False),
            Curve("dual", "clip/dual_rate", "amber", "dot", compared=False),
        ),
        fallback=ChartSpec(
            "clip",
            "Clip fraction",
            "share of loss tokens",
            (Curve("either side", "clip/any_rate", "red"),),
        ),
    ),
    _kl("k3", _kl("k1", _kl("k2"))),
    _mismatch("prob_diff", "|Δ probability|", _mismatch("logprob_diff", "|Δ log-probability|")),
    ChartSpec(
        "nll_gap",
        "Off-policy samples",
        "nats per token",
        (Curve("NLL gap", "mismatch/nll_gap", "blue"),),
    ),
    ChartSpec(
        "staleness",
        "Staleness",
        "optimizer steps",
        (
            Curve("mean", "staleness/mean", "blue"),
            Curve("largest", "staleness/max", "red", "dot", compared=False),
        ),
    ),
    ChartSpec(
        "experts",
        "Expert churn",
        "share",
        (
            Curve("by the update", "experts/churn_update", "blue"),
            Curve("between engines", "experts/churn_engine", "amber", "dash"),
            Curve("tokens", "experts/tokens_with_any_flip", "red", "dot", compared=False),
        ),
    ),
    ChartSpec(
        "truncation",
        "Truncated responses",
        "share of responses",
        (Curve("truncated", "length/truncated_rate", "amber"),),
    ),
    ChartSpec(
        "gradient",
        "Gradient norm",
        "before clipping",
        (Curve("norm", "optimizer/grad_norm", "blue"),),
        spans_decades=True,
    ),
)


DIVIDED_METRICS = (
    "experts/churn_update",
    "experts/churn_engine",
    "experts/load_max_over_mean",
    "experts/router_entropy",
    "experts/router_margin",
    "mismatch/prob_diff_mean",
    "mismatch/logprob_diff_mean",
)
"""Metrics that are kept by layer, position, probability and engine too."""


def _with_fallbacks(chart: ChartSpec) -> Iterator[ChartSpec]:
    yield chart
    if chart.fallback is not None:
        yield from _with_fallbacks(chart.fallback)


CHARTED_METRICS = tuple(
    curve.metric for spec in CHARTS for chart in _with_fallbacks(spec) for curve in chart.curves
)
"""The metrics that are kept over the whole run for the charts."""
