"""How far the paid judge of a reward and a monitor of the same responses differ."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass

from grpodoctor.rules.shared.health.component_roles import is_form
from grpodoctor.rules.shared.health.monitored_success import monitored_success
from grpodoctor.rules.shared.health.reward_components import component_means, component_name
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import implied_count
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.component_names import PENALTY_NAMES, is_about_task

_JUDGES = re.compile(r"judge|grader|verif")
_STRICT = re.compile(r"strict|exact|full|(?:^|_)all(?:_|$)")
_LENIENT = re.compile(r"soft|loose|lenient|partial|fuzzy|contain|approx")
_OF_SEVERAL = re.compile(r"@|pass_?at|best|majority|(?:^|_)(?:any|maj|cons)(?:_|$)")
"""Names of the success of several responses to a prompt at once."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A monitor and a paid judge whose shares of accepted responses differ."""

    monitor: str
    judge: str
    accepted: float
    """Mean share of responses that the monitor accepts, over the readings compared."""
    paid: float
    """The same of the judge."""
    error: float
    """Standard error of the mean difference, from its scatter from batch to batch."""

    def least(self, errors: float) -> float:
        """Share of the responses accepted by the more lenient of the two that the other rejects.

        Both are 0 or 1 for each response, so the difference of their means is the share that only
        one of them accepts, less the share that only the other accepts. The true share is at least
        the value returned.

        Args:
            errors: standard errors that are subtracted from the difference.
        """
        most = max(self.accepted, self.paid)
        return (abs(self.accepted - self.paid) - errors * self.error) / most if most else 0.0


def judge_disagreement(chart: Chart, readings: int) -> Disagreement | None:
    """The disagreement over the latest readings; None without a comparable pair.

    The two are comparable if both are exact shares of the same number of responses. A function that
    returns None for some tasks covers fewer, and a graded reward takes other values. They are not
    if their names explain the difference: one is strict, lenient, or about several responses.

    Args:
        chart: the run.
        readings: latest readings that are compared.
    """
    monitor = monitored_success(chart)
    judge = None if monitor is None else _paid_judge(chart, monitor)
    if monitor is None or judge is None:
        return None
    one, other = chart.series(monitor), chart.series(judge)
    if len(one) < readings or one.steps(readings) != other.steps(readings):
        return None
    pairs = list(zip(one.tail(readings), other.tail(readings), strict=True))
    found = _compared(monitor, judge, pairs)
    if _name_explains(found) or not _cover_the_same(one, other, readings):
        return None
    return found


def _paid_judge(chart: Chart, monitor: str) -> str | None:
    """The only paid component that is not about the form, if it judges correctness by its name."""
    others = [name for name in component_means(chart) if name != monitor and not _is_aside(name)]
    if len(others) != 1:
        return None
    name = component_name(others[0])
    return others[0] if is_about_task(name) or _JUDGES.search(name.lower()) else None


def _is_aside(metric: str) -> bool:
    return is_form(metric) or any(part in metric for part in PENALTY_NAMES)


def _compared(monitor: str, judge: str, pairs: list[tuple[float, float]]) -> Disagreement:
    differences = [one - other for one, other in pairs]
    return Disagreement(
        monitor,
        judge,
        accepted=statistics.fmean(one for one, _ in pairs),
        paid=statistics.fmean(other for _, other in pairs),
        error=statistics.stdev(differences) / math.sqrt(len(pairs)),
    )


def _name_explains(found: Disagreement) -> bool:
    """Whether the stricter or the more lenient of the two is so by its name."""
    monitor, judge = (component_name(name).lower() for name in (found.monitor, found.judge))
    if _OF_SEVERAL.search(monitor) or _OF_SEVERAL.search(judge):
        return True
    lower, higher = (judge, monitor) if found.paid < found.accepted else (monitor, judge)
    return bool(_STRICT.search(lower) or _LENIENT.search(higher)) and not (
        _STRICT.search(lower) and _STRICT.search(higher)
    )


def _cover_the_same(one: Series, other: Series, readings: int) -> bool:
    """Whether both are exact shares of the same number of responses."""
    count = implied_count(one.tail(readings))
    return count is not None and count > 1 and implied_count(other.tail(readings)) == count
