"""Whether the mechanism of a remedy applies to a run, as far as its settings and readings show.

A remedy whose mechanism is known not to apply is not offered. One that depends on something that
is not logged is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grpodoctor.rules.shared.run_health import has_improved
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.vocabulary.values import NotApplicable

_HIGH = "clip/high_rate"
_ANY = "clip/any_rate"
_UPDATES = "updates_per_batch"
_ESTIMATORS = ("k1", "k2", "k3")
_READINGS = 10
"""Readings in which an upper clip must have happened at least once."""


def _clips_high(chart: Chart) -> bool | None:
    """Whether the upper clip removes any token; None if that is not logged."""
    if isinstance(chart.reading(_HIGH), NotApplicable):
        return False
    for name in (_HIGH, _ANY):
        rates = chart.series(name).tail(_READINGS)
        if rates and (name == _HIGH or not any(rates)):
            return any(rates)
    return None


def _updates_twice(chart: Chart) -> bool | None:
    """Whether a batch gets several updates; None if unknown."""
    updates = chart.value(_UPDATES)
    number = chart.knobs.get(_UPDATES) if updates is None else updates
    return number > 1 if isinstance(number, int | float) else None


def _penalty_helps(chart: Chart) -> bool | None:
    """Whether a KL penalty, or a larger one, pulls the policy back; None if it is unknown.

    A penalty that is in force while the divergence grows and the outcome does not may have the
    wrong sign, and a larger coefficient would drive the policy away faster.
    """
    coefficient = chart.knobs.get("kl_coefficient")
    if not isinstance(coefficient, int | float):
        return None
    if coefficient == 0:
        return True
    grows = any(_has_grown(chart.series(f"kl/reference/{estimator}")) for estimator in _ESTIMATORS)
    return not (grows and has_improved(chart) is False)


def _has_grown(series: Series) -> bool:
    start = series.start
    return start is not None and series.level(_READINGS) > 2 * start.level


def _keeps_flat_groups(chart: Chart) -> bool | None:
    """Whether zero-variance groups stay in the batch; None if unknown."""
    setting = chart.knobs.get("dynamic_sampling")
    return None if setting is None else not setting


_MECHANISMS: Mapping[str, Callable[[Chart], bool | None]] = {
    "clip-higher": _clips_high,
    "fewer-updates": _updates_twice,
    "kl-penalty": _penalty_helps,
    "dynamic-sampling": _keeps_flat_groups,
}
"""For each remedy: whether its mechanism applies; None if the run does not show it."""


def remedies_that_apply(chart: Chart, remedies: Sequence[str]) -> tuple[str, ...]:
    """The remedies whose mechanism applies or may apply, in the same order."""
    return tuple(
        remedy
        for remedy in remedies
        if remedy not in _MECHANISMS or _MECHANISMS[remedy](chart) is not False
    )
