"""REW002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, Severity, Sighting, Verdict, cite
from grpodoctor.rules.outcome import RECENT, share_lost
from grpodoctor.runs.chart import Chart

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"


@dataclass(frozen=True)
class RewardCollapse(Rule):
    """The outcome has fallen far below the best level of the run.

    What it sees:
        The recent level of accuracy, or else of reward, against the run's own best level, beyond
        the noise of a single reading.

    Why it matters:
        A policy rarely comes back from it: the responses that would teach it are no longer sampled.
        What was learnt is in the last checkpoint before the onset.

    Evidence it needs:
        `accuracy/train` or `reward/mean`.

    Remedies:
        Go back to a checkpoint before the onset. If MIS002 stands beside it, its remedy is the
        cause's; else lower the learning rate or make fewer updates on each batch.

    When it is wrong:
        A curriculum that turns to harder prompts, a change of the reward or of the sampling
        temperature lower the outcome without any harm to the policy.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    code: ClassVar[str] = "REW002"
    name: ClassVar[str] = "reward-collapse"
    summary: ClassVar[str] = "The outcome has fallen far below the best level of the run."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    )

    warned: float = 0.35
    """Share of the best level that is lost. The best of many levels lies up to .08 above the
    typical one by chance in small runs (accuracy .7), a loss of .2; collapses lose .6 and more."""
    collapsed: float = 0.6
    """Share whose loss is critical: runs with a sick ratio go from .45 to .12, a loss of .73."""

    def examine(self, chart: Chart) -> Verdict:
        """Compare the recent level with the best."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        best = series.highest
        if best is None or series.last >= best.level:
            return None
        lost = share_lost(series)
        if lost < self.warned:
            return None
        text = (
            f"{name} has fallen from {best.level:.3g} (step {best.step}) "
            f"to {series.level(RECENT):.3g}"
        )
        severity: Severity = "critical" if lost >= self.collapsed else "warning"
        return Sighting(severity, text, (cite(chart, name, best.level),))
