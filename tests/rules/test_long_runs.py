"""How often the engine examines a rule in a long run."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import RuleResult
from grpodoctor.runs.chart import Chart
from tests.rules.test_engine import AboveBar, kinds, watched


class Examined(AboveBar):
    """Judges levels, and notes the steps at which it is examined."""

    judges_levels: ClassVar[bool] = True
    steps: ClassVar[list[int]] = []

    def examine(self, chart: Chart) -> RuleResult:
        self.steps.append(chart.step)
        return super().examine(chart)


def test_a_rule_about_levels_is_examined_half_as_often_in_a_long_quiet_run() -> None:
    Examined.steps.clear()
    patient = watched([0.0] * 400 + [1.0] * 10 + [0.0] * 20, Examined())
    seen = range(401, 415)  # from the first sighting until the finding is resolved
    assert Examined.steps == [*range(258), *range(259, 401, 2), *seen, *range(415, 430, 2)]
    assert kinds(patient) == [(403, "raised"), (414, "resolved")]
