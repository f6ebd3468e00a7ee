"""KLD002."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    current_metric,
    has_improved,
    has_lost_outcome,
    outcome_metric,
)
from grpodoctor.rules.shared.shapes.spikes import LARGE_KL
from grpodoctor.rules.shared.shapes.trend import outcome_start, outcome_text
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition

_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")


class HighReferenceKl(Rule):
    """The policy has moved far away from the reference model.

    What it sees:
        A KL divergence from the reference of one nat per token or more, and several times its
        starting value. The finding is `info` if accuracy or reward rose, since the gain may be
        worth the divergence, and a warning if it did not. At ten nats it is critical in any case:
        that is about the divergence from a uniform choice among all tokens. Single readings of ten
        nats or more, twenty times the usual one, are a note for as long as they are in the window.

    Why it matters:
        At a nat per token the policy writes entirely different text. The policy may also have lost
        other abilities of the reference model. If the reward did not rise, the policy has only
        drifted: the KL penalty is too weak for the learning rate.

    Evidence it needs:
        `kl/reference/k3`, `kl/reference/k1` or `kl/reference/k2`.

    Remedies:
        A lower learning rate; a KL penalty if the run has none, or a larger one if the reward
        rose. If a penalty is in force and the KL grows while the reward does not rise, check the
        penalty's sign first: a larger coefficient of an inverted penalty drives the policy away
        faster. If the reference's abilities do not matter, drop the penalty and the reference.

    When it is wrong:
        A few tokens can dominate the estimates, so the rule uses the median over steps, and names
        single readings as such. A base
        model that learns long chains of thought moves far from the reference, and that is progress.
        If the reference is not the policy's own starting point, the divergence is large from the
        first step on; the rule therefore compares it with its starting value, and KLD003 reports
        the offset.

    References:
        Gao et al. 2022, arXiv 2210.10760; Schulman, Approximating KL Divergence, 2020.
    """

    code: ClassVar[str] = "KLD002"
    name: ClassVar[str] = "high-reference-kl"
    condition: ClassVar[Condition] = "reference-drift"
    judged_by_outcome: ClassVar[bool] = True
    former_names: ClassVar[tuple[str, ...]] = ("far-from-reference",)
    summary: ClassVar[str] = "The policy has moved far away from the reference model."
    inputs: ClassVar[tuple[Need, ...]] = (_KLS,)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "kl-penalty")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2210.10760",
        "Schulman, Approximating KL Divergence, 2020",
    )
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    min_kl: float = 1.0
    """Nats per token. Public runs that went well ended at .02 to .15. One whose penalty was ten
    times weaker than that of its successors reached 2.8, for a reward of .69 instead of .77."""
    min_kl_if_lost: float = 0.4
    """The same in a run that has lost its outcome: more than twice the highest level of a public
    run that went well."""
    growth_factor: float = 5.0
    """Multiple of the starting value, so that a reference other than the starting policy raises no
    finding."""

    spike_factor: float = 20.0
    """Multiple of the usual reading from which one above `critical_kl` is a spike."""
    critical_kl: float = 10.0
    """Nats per token of random text, about ln V; see KLD003. A public run that reached 11 earned
    more by ever shorter responses."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with one nat and with the starting value."""
        name = current_metric(chart, _KLS)
        found = self._by_level(chart, name)
        if found is not None and found.severity != "info":
            return found
        return self._spike(chart, name) or found

    def _spike(self, chart: Chart, name: str) -> Sighting | None:
        """Single readings beyond random text, between usual ones: the log must not hide them.

        Tokens without probability in one of the two models add nearly all of such a reading.
        """
        series = chart.series(name)
        highest = series.window_max()
        if not self.critical_kl <= highest < math.inf:
            return None  # the usual case
        usual = abs(series.level(WINDOW))
        if not highest >= self.spike_factor * usual or usual >= self.critical_kl:
            return None
        step = next(at for at, value in series if value == highest)
        text = (
            f"The KL to the reference jumped to {highest:.2g} nats at step {step} (usually "
            f"{usual:.2g})."
        )
        evidence = cite_all(chart, name, "optimizer/loss", outcome_metric(chart))
        onset = partial(int, step)
        return Sighting("info", text, evidence, find_onset=onset, condition=LARGE_KL)

    def _by_level(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        start = series.start
        if start is None or series.last < self.min_kl_if_lost / 2:
            return None
        level = series.level(RECENT)
        if not level >= self.min_kl_if_lost or not level >= self.growth_factor * start.level:
            return None
        if level < self.min_kl and not has_lost_outcome(chart):
            return None
        text = f"The policy is {level:.2g} nats per token from the reference"
        evidence = cite_all(chart, name, outcome_metric(chart), starts=outcome_start(chart))
        if level >= self.critical_kl:
            text = f"The policy reached {level:.2g} nats per token from the reference"
            return Sighting("critical", f"{text}, similar to random text.", evidence)
        coefficient = chart.knobs.get("kl_coefficient")
        has_penalty = isinstance(coefficient, int | float) and coefficient > 0
        if has_improved(chart) is False:
            if has_penalty:
                text = (
                    f"KL to the reference is {level:.2g} nats per token "
                    f"despite a penalty of {coefficient:g}"
                )
            return Sighting("warning", f"{text}; {outcome_text(chart)}.", evidence)
        return Sighting("info", f"{text}.", evidence)
