"""INS002."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.distillation import TEACHER, is_distilled
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.shapes.trend import start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_REWARD = "reward/mean"


class DistillationRun(Rule):
    """The run distills from a teacher, so its reward says little or nothing.

    What it sees:
        A KL divergence to a teacher in the log, without a reward, or with a reward that stays at
        one value. The finding is `info` and states the course of the divergence.

    Why it matters:
        On-policy distillation samples like GRPO and learns from the teacher's log-probabilities. A
        reward of zero, groups without variance and clip fractions of zero are normal there, and the
        divergence to the teacher is the curve to watch.

    Evidence it needs:
        `kl/teacher`.

    Remedies:
        None. If the divergence rises, the teacher sees other text than the student: compare
        template and tokenizer.

    When it is wrong:
        A run that combines distillation with a reward is judged by its reward as usual; the rule
        reports nothing once the reward moves.

    References:
        Thinking Machines 2025, On-Policy Distillation; GKD, arXiv 2306.13649.
    """

    code: ClassVar[str] = "INS002"
    name: ClassVar[str] = "distillation-run"
    condition: ClassVar[Condition] = "expected"
    summary: ClassVar[str] = "The run distills from a teacher; a reward of zero is normal."
    inputs: ClassVar[tuple[Need, ...]] = (TEACHER,)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2306.13649",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1

    min_readings: int = 3
    """Readings before the reward counts as constant."""

    def examine(self, chart: Chart) -> RuleResult:
        """State the course of the divergence to the teacher."""
        teacher = chart.series(TEACHER)
        start = start_level(teacher)
        if len(teacher) < self.min_readings or start is None:
            return None
        if not is_distilled(chart):
            return None
        text = (
            f"This run distills from a teacher (KL {start:.2g} to {teacher.level(RECENT):.2g} "
            "nats); a constant reward is expected."
        )
        return Sighting("info", text, cite_all(chart, TEACHER, _REWARD))
