"""Names and levels of the logged reward components."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from grpodoctor.runs.chart import MOST_LAYOUTS, Chart

PREFIX, MEAN, STD = "reward/component/", "/mean", "/std"

_EQUAL_MEANS = 1e-3
"""Difference of accuracy and reward up to which the reward is 1 for success and 0 otherwise."""

MOST_NAMED = 4
"""Components cited as evidence."""

_IN_SUMMARY = 3
"""Components named in a summary, which is limited to twenty words."""


def component_means(chart: Chart) -> list[str]:
    """Metrics with the mean of a component that were logged at this step, sorted."""
    return list(component_means_among(chart.fresh))


@lru_cache(maxsize=MOST_LAYOUTS)
def component_means_among(fresh: frozenset[str]) -> tuple[str, ...]:
    """The same for a set of metrics, which is the same object at most steps of a run."""
    names = (name for name in fresh if name.startswith(PREFIX) and name.endswith(MEAN))
    return tuple(sorted(names))


def is_sum(chart: Chart) -> bool:
    """Whether the reward has several components, or differs from the share of correct responses."""
    if len(component_means_among(chart.fresh)) > 1:
        return True
    reward, accuracy = chart.series("reward/mean"), chart.series("accuracy/train")
    return len(reward) > 0 < len(accuracy) and abs(accuracy.last - reward.last) > _EQUAL_MEANS


def component_name(metric: str) -> str:
    """The component's own name."""
    return metric.removeprefix(PREFIX).removesuffix(MEAN)


def list_components(chart: Chart, metrics: Sequence[str]) -> str:
    """The components for a summary, with their levels; a level of 0 in all is stated once."""
    levels = [chart.series(name).last for name in metrics]
    if not any(levels):
        return f"{_joined([component_name(name) for name in metrics])} (always 0)"
    return _joined(
        [f"{component_name(name)} ({level:g})" for name, level in zip(metrics, levels, strict=True)]
    )


def _joined(names: Sequence[str]) -> str:
    others = len(names) - _IN_SUMMARY
    if others > 0:
        return f"{', '.join(names[:_IN_SUMMARY])} and {others} others"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
