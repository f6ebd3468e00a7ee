"""SYN009."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    RECOVERED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    current_metric,
    is_near_best,
    outcome_metric,
    outcome_noun,
    reading_noise,
)
from grpodoctor.rules.shared.outcome.replaced_policy import (
    measures_replacement,
    replaced_policy,
    sudden_length,
)
from grpodoctor.rules.shared.shapes.level_jumps import is_apart
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition

_ENTROPY = "entropy/mean"
_KLS = ("kl/old_policy/k3", "kl/old_policy/k2")
_UPDATES = "updates_per_batch"
_LN_VOCABULARY = math.log(300_000)
"""Entropy of a uniform choice from a vocabulary larger than those in use, in nats."""


class WeightsOrPromptsReplaced(Rule):
    """The policy changes from one step to the next by more than its updates explain.

    What it sees:
        A lasting step in the entropy, and the KL divergence of the updates around it. A policy that
        moved by that divergence cannot change its entropy by more than a known bound.

        Or entropy, length and reward that jump at the same step, a third of the reward or more with
        it, although gradient norm, learning rate and clip fraction were as usual in the steps
        before. A policy that diverges takes several updates for it. Held-out evaluations must fall
        as well, where there are any. Such a jump is a warning, and critical if 60 % of the reward
        or more is lost and the log measures the updates, not only the learning rate.

        Or a length that changes by a quarter or more at one step, after ordinary updates: shorter
        responses that earn a fifth less at once, without more truncation, or longer ones with a
        fifth less entropy. Harder prompts raise the entropy. This is `info`, also in a run that has
        recovered since.

    Why it matters:
        Something else than training changed the policy or what it reads: a resume that loaded other
        weights, a template or a limit that changed the prompts, another data set or sampling
        temperature. Curves of reward and length then compare two different runs.

    Evidence it needs:
        `entropy/mean`, and `kl/old_policy/k3` or `k2`. Optional: `updates_per_batch`. For the jump
        of all three: entropy, `length/mean`, `reward/mean` or `accuracy/train`, and a measure of
        the updates. Optional: a held-out metric.

    Remedies:
        Compare the first responses after the step with the last ones before it. Score a fixed batch
        with the checkpoint before the step: another entropy means other weights, the same one means
        other prompts.

    When it is wrong:
        A curriculum or a mixture that changes on purpose. A step of the entropy alone is therefore
        `info`. A single update can ruin a policy where the log has no measure of that update.

    References:
        Audenaert 2007, A Sharp Fannes-type Inequality; Pinsker's inequality.
    """

    code: ClassVar[str] = "SYN009"
    name: ClassVar[str] = "weights-or-prompts-replaced"
    condition: ClassVar[Condition] = "other"
    summary: ClassVar[str] = "The policy changes at one step by more than its updates explain."
    explains: ClassVar[tuple[Condition, ...]] = (
        "reward-loss",
        "environment-change",
        "zero-rewards",
        "equal-rewards",
        "entropy-rise",
        "entropy-loss",
        "length-growth",
        "length-loss",
        "truncation",
        "no-end-token",
        "reference-drift",
        "held-out-loss",
    )
    confirm: ClassVar[str] = "Score a fixed batch with the checkpoints before and after the step."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS,)
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

    clearance: ClassVar[int] = WINDOW
    """The weights stay replaced until the run has learned again what it lost."""

    critical_loss: float = 0.6
    """Share of the outcome whose loss is critical; see REW002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a jump of all, then for one of the entropy beyond the bound."""
        outcome = outcome_metric(chart)
        has_bound = chart.is_fresh(_ENTROPY) and len(chart.series(current_metric(chart, _KLS))) > 0
        found = self._all_at_once(chart, outcome) if outcome else None
        if found is None and has_bound:
            found = self._beyond_bound(chart)
        if found is None and outcome:
            found = self._length_at_once(chart, outcome)
        if found is not None:
            return found
        if not has_bound and not measures_replacement(chart, outcome):
            return NOT_LOGGED
        return RECOVERED if outcome and is_near_best(chart.series(outcome)) else None

    def _all_at_once(self, chart: Chart, outcome: str) -> Sighting | None:
        """A jump of entropy, length and outcome."""
        found = replaced_policy(chart, outcome)
        if found is None:
            return None
        (old, new), noun = found.outcome, outcome_noun(chart)
        length = found.moved["length/mean"]
        why = (
            "after ordinary updates: other weights"
            if found.is_measured
            else "learning rate unchanged: probably other weights"
        )
        text = (
            f"{noun.capitalize()} fell from {old:.2g} to {new:.2g} at step {found.step}, length "
            f"from {length[0]:.0f} to {length[1]:.0f}, {why}."
        )
        evidence = (
            cite(chart, outcome, old),
            *(cite(chart, name, levels[0]) for name, levels in found.moved.items()),
        )
        is_critical = found.is_measured and new <= (1 - self.critical_loss) * old
        severity: Severity = "critical" if is_critical else "warning"
        return Sighting(severity, text, evidence, find_onset=lambda: found.step)

    def _length_at_once(self, chart: Chart, outcome: str) -> Sighting | None:
        """A jump of the length that the run may have recovered from since."""
        found = sudden_length(chart, outcome)
        if found is None:
            return None
        old, new = found.moved["length/mean"]
        text = f"Length went from {old:.0f} to {new:.0f} at step {found.step}, and "
        if new < old:
            earned, left = found.outcome
            text += f"{outcome_noun(chart)} from {earned:.2g} to {left:.2g}: "
            text += "other stop tokens or weights."
        else:
            entropy = next(name for name in found.moved if name in ENTROPY_METRICS)
            before, after = found.moved[entropy]
            text += f"entropy from {before:.2g} to {after:.2g}: other weights."
        evidence = tuple(cite(chart, name, levels[0]) for name, levels in found.moved.items())
        onset = found.step
        return Sighting(
            "info",
            text,
            evidence,
            find_onset=lambda: onset,
            condition="environment-change",
        )

    def _beyond_bound(self, chart: Chart) -> Sighting | None:
        """Compare the latest readings with those before, and with the bound."""
        series = chart.series(_ENTROPY)
        if not is_apart(series, self.side):
            return None  # the usual case
        values = series.tail(self.before + self.side)
        if len(values) < self.before + self.side or not math.isfinite(sum(values)):
            return None
        nearby, latest = values[-2 * self.side : -self.side], values[-self.side :]
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
