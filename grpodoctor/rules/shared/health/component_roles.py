"""What the components of a reward pay for: the task, or the form of a response."""

from __future__ import annotations

from grpodoctor.rules.shared.health.reward_components import component_means, component_name
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.component_names import PENALTY_NAMES, is_about_task, pays_for_form

_ENOUGH = 20
"""Readings after which a component that no response has earned is out of reach."""


def only_form_is_earned(chart: Chart) -> bool:
    """Whether responses earn components for their form alone, and never one for their content."""
    names = component_means(chart)
    never = [name for name in names if _was_never_earned(chart.series(name), name)]
    earned = [name for name in names if name not in never]
    return any(not is_form(name) for name in never) and all(map(is_form, earned))


def _was_never_earned(series: Series, name: str) -> bool:
    if series.last > 0 or any(part in name for part in PENALTY_NAMES):
        return False
    return len(series) >= _ENOUGH and never_moved(series)


def is_form(metric: str) -> bool:
    """Whether any response can earn a component, correct or not."""
    return pays_for_form(component_name(metric))


def task_component(chart: Chart) -> str | None:
    """The component that only correct responses earn, next to one for their form; None if unclear.

    A reward that also pays for the form keeps most of its level while the task is lost.
    """
    tasks = task_components(chart)
    has_form = len(tasks) == 1 and any(map(is_form, component_means(chart)))
    return tasks[0] if has_form else None


def task_components(chart: Chart) -> list[str]:
    """The components that only correct responses earn, judged by their names."""
    names = [name for name in component_means(chart) if not is_form(name)]
    return [name for name in names if is_about_task(component_name(name))]


def success_component(chart: Chart) -> str | None:
    """The component, in [0, 1], that shows which responses succeed; None if it is unclear.

    It is the one that correct responses earn by its name, or the only one that is not constant.
    """
    tasks = task_components(chart)
    if len(tasks) != 1:
        names = component_means(chart)
        tasks = [name for name in names if not never_moved(chart.series(name))]
        tasks = [name for name in tasks if len(tasks) < len(names) and not is_form(name)]
    is_share = len(tasks) == 1 and chart.series(tasks[0]).is_within(0, 1)
    return tasks[0] if is_share else None
