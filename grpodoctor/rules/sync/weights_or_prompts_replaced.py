"""SYN009."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import current_metric, reading_noise
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ENTROPY = "entropy/mean"
_KLS = ("kl/old_policy/k3", "kl/old_policy/k2")
_UPDATES = "updates_per_batch"
_LN_VOCABULARY = math.log(300_000)
"""Entropy of a uniform choice from a vocabulary larger than those in use, in nats."""


class WeightsOrPromptsReplaced(Rule):
    """Entropy jumps between two steps by more than the updates between them can change it.

    What it sees:
        A lasting step in the entropy, and the KL divergence of the updates around it. A policy that
        moved by that divergence cannot change its entropy by more than a known bound.

    Why it matters:
        Something else than training changed the policy or what it reads: a resume that loaded other
        weights, a template or a limit that changed the prompts, another data set or sampling
        temperature. Curves of reward and length then compare two different runs.

    Evidence it needs:
        `entropy/mean`, and `kl/old_policy/k3` or `k2`. Optional: `updates_per_batch`.

    Remedies:
        Compare the first responses after the step with the last ones before it. Score a fixed batch
        with the checkpoint before the step: another entropy means other weights, the same one means
        other prompts.

    When it is wrong:
        A curriculum or a mixture that changes on purpose. The finding is therefore `info`.

    References:
        Audenaert 2007, A Sharp Fannes-type Inequality; Pinsker's inequality.
    """

    code: ClassVar[str] = "SYN009"
    name: ClassVar[str] = "weights-or-prompts-replaced"
    condition: ClassVar[Condition] = "other"
    summary: ClassVar[str] = "Entropy jumps by more than the updates can change it."
    inputs: ClassVar[tuple[Need, ...]] = (_ENTROPY, _KLS)
    remedies: ClassVar[tuple[str, ...]] = ("check-resume",)
    references: ClassVar[tuple[str, ...]] = ("Audenaert 2007, A Sharp Fannes-type Inequality",)
    persistence: ClassVar[int] = 1
    """The rule itself compares several readings before and after the step."""

    side: int = 5
    """Readings on each side of the step, all of them beyond all on the other side."""
    before: int = 20
    """Readings before the step that show the noise of one."""
    min_noises: float = 6.0
    """Multiple of the noise of one reading; the median of five has less than half of it."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the latest readings with those before, and with the bound."""
        series = chart.series(_ENTROPY)
        values = series.tail(self.before + self.side)
        if len(values) < self.before + self.side or not math.isfinite(sum(values)):
            return None
        earlier, latest = values[: -self.side], values[-self.side :]
        nearby = earlier[-self.side :]
        if max(latest) >= min(nearby) and min(latest) <= max(nearby):
            return None
        old, new = statistics.median(nearby), statistics.median(latest)
        # The first reading after the step must have made it, or this is a slope.
        jump = min(abs(latest[0] - nearby[-1]), abs(new - old))
        if jump <= self.min_noises * reading_noise(series):
            return None
        bound = self._bound(chart)
        if bound is None or jump <= bound:
            return None
        step = series.steps(self.side)[0]
        text = (
            f"Entropy jumped from {old:.2g} to {new:.2g} at step {step}; "
            f"the updates allow a change of {bound:.2g}."
        )
        evidence = cite_all(chart, _ENTROPY, *_KLS)
        return Sighting("info", text, evidence, find_onset=lambda: step)

    def _bound(self, chart: Chart) -> float | None:
        """The largest change of entropy by one batch of updates (Pinsker, then Fannes)."""
        kls = chart.series(current_metric(chart, _KLS)).tail(self.before)
        finite = [kl for kl in kls if math.isfinite(kl) and kl >= 0]
        if not finite or not max(finite):
            return None
        divergence = max(finite) * max(1.0, chart.value(_UPDATES) or 1.0)
        variation = min(0.5, math.sqrt(divergence / 2))
        uncertain = -variation * math.log(variation) - (1 - variation) * math.log1p(-variation)
        return variation * _LN_VOCABULARY + uncertain
