"""OPT005."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    fresh_metric,
    has_improved,
    is_near_ceiling,
    is_solved,
    outcome_metric,
)
from grpodoctor.rules.shared.logged_settings import coefficient
from grpodoctor.rules.shared.shapes.trend import change, outcome_has_risen
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import level_shift
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_CHANGED = "optimizer/changed_weight_rate"
_NORM = "optimizer/update_norm_ratio"
_KLS = ("kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
_UPDATES = (_CHANGED, _NORM, *_KLS)
_BEHAVIOR = (*ENTROPY_METRICS, "length/mean")
_GRADIENT = "optimizer/grad_norm"
_RATE = "optimizer/learning_rate"
_EFFECTIVE, _ZERO_VARIANCE = "groups/effective_rate", "groups/zero_variance_rate"


class UpdatesTooSmall(Rule):
    """The gradient is healthy, but the policy hardly moves and the reward is flat.

    What it sees:
        A gradient above zero over many steps, no rise of any outcome, and one of: almost no weight
        changes in a step; the weights change by a tiny share of their norm; the policy stays within
        a tiny KL divergence of the reference, which grows too slowly to leave that range within as
        many readings again; reward, entropy and length are all at their starting values after fifty
        readings, unless the weights visibly move. Where the gradient is not logged, a reward that
        differs from step to step shows that there is one, and groups that vary.

    Why it matters:
        A bf16 weight has eight bits of mantissa, so a change below 1/256 of it is rounded away. At
        a learning rate of 1e-6 that is nearly every change: the optimizer works, and the weights
        stay. A rate that is too low, or a schedule that has ended, looks the same.

    Evidence it needs:
        `optimizer/changed_weight_rate`, `optimizer/update_norm_ratio` or a `kl/reference`; or
        `optimizer/grad_norm` (or a count of the groups that vary) and `entropy/mean` or
        `entropy/sampled` with `length/mean`.

    Remedies:
        Keep the weights that the optimizer updates in float32; raise the learning rate, more for
        LoRA than for full fine-tuning. A rate below the usual 1e-6 is raised first, and a KL
        coefficient above .1 is lowered before anything else. If level responses are the only sign,
        compare the weights before and after one update first.

    When it is wrong:
        Reinforcement learning in bf16 changes few weights per step in runs that go well, too; a
        rising reward therefore always ends the finding. Flat rewards have other causes as well: see
        GRP001, GRP002 and REW004. A report lists a finding that rests on level responses under any
        such cause.

    References:
        verl issue 5308 (full fine-tuning in bf16 falls behind; bf16 weights suspected);
        Reinforcement Learning Finetunes Small Subnetworks, arXiv 2505.11711.
    """

    code: ClassVar[str] = "OPT005"
    name: ClassVar[str] = "updates-too-small"
    condition: ClassVar[Condition] = "undersized-updates"
    summary: ClassVar[str] = "The gradient is healthy, but the policy hardly moves."
    inputs: ClassVar[tuple[Need, ...]] = ((*_UPDATES, *_BEHAVIOR),)
    remedies: ClassVar[tuple[str, ...]] = (
        "float32-weights",
        "raise-learning-rate",
        "compare-weights",
        "recheck-reward",
    )
    references: ClassVar[tuple[str, ...]] = (
        "github.com/verl-project/verl/issues/5308",
        "arXiv 2505.11711",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 5

    max_changed: float = 0.02
    """Share of weights that change in a step. float32 weights all change; in bf16 at a rate of 1e-6
    a few percent of the smallest weights do."""
    max_norm_ratio: float = 1e-7
    """Change over the norm of the weights: float32 itself resolves 6e-8."""
    max_kl: float = 5e-4
    """Nats per token after fifty readings. Runs that learn reach .002 to .1 by then."""
    visible_norm_ratio: float = 1e-5
    """Change over the norm of the weights that is not small: a rate of 1e-6, the usual one, moves
    weights of .02 by up to 5e-5, and runs of small models that learn by 1e-4 to 1e-3."""
    usual_rate: float = 1e-6
    """The default of TRL and verl for full fine-tuning, and the rate of DAPO. Below it the rate is
    the first thing to change; from it on, rounding is."""
    rounding_rate: float = 1e-4
    """Rate from which neither rounding nor the size of a step loses the updates: a step of AdamW is
    about the rate, and the spacing of bf16 at a typical weight of .02 is .02 / 256."""
    min_readings: int = 50
    """Readings over which nothing has risen."""
    max_shift: float = 2.5
    """Standard errors by which each of three metrics may differ between the halves of the run: all
    three stay below in 96 of 100 runs of a policy that does not change. The entropy of runs that
    learn moved by four to eleven."""
    max_summed_rate: float = 5e-6
    """Sum of all learning rates, beyond which AdamW moves no weight: less than a thousandth of a
    typical weight of .02, and the twentieth part of a hundred steps at the usual rate."""
    min_summed: int = 100
    """Readings of the rate from the first steps on, after which such a sum is no warm-up."""
    max_error: float = 0.1
    """Standard error as a share of the level, so that a change by a quarter would show: entropy
    falls by a third in fifty steps of small runs that learn."""
    max_range: float = 3.25
    """The same between the highest and the lowest of six levels: chance stays below in 98 of 100
    runs, and a policy that left and came back has changed."""
    holding_penalty: float = 0.1
    """KL coefficient above which the penalty itself may hold the policy at its reference: twice the
    largest published one."""
    min_effective: float = 0.2
    """Share of groups with reward variance below which the groups explain the flat reward."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require a gradient and a flat outcome, then look for signs of lost updates."""
        gradient = chart.series(_GRADIENT)
        if not len(gradient) and fresh_metric(chart, (*_UPDATES, _RATE)) is None:
            return NOT_LOGGED
        if not self._has_gradient(chart, gradient):
            return None
        if is_solved(chart) or not self._has_signal(chart):
            return None
        names: tuple[str, ...] = (*_UPDATES, *_BEHAVIOR)
        sign = self._sign(chart)
        by_rates = self._sign_of_rates(chart) if sign is None else None
        if by_rates is not None:
            sign, names = by_rates, (_RATE, *names)
        if sign is not None and (outcome_has_risen(chart) is not False or has_improved(chart)):
            sign = None
        if sign is None and (len(gradient) or self._varies(chart)):
            return self._of_level_behavior(chart)
        if sign is None:
            return None
        is_stated = len(gradient) > 0 and sign != by_rates
        norm = f"; the gradient norm is {gradient.level(RECENT):.2g}" if is_stated else ""
        text = f"{sign} without a rise in reward{norm}."
        evidence = cite_all(chart, *names, _GRADIENT, outcome_metric(chart))
        return Sighting("warning", text, evidence, self._remedies(chart))

    def _of_level_behavior(self, chart: Chart) -> Sighting | None:
        """The finding that rests on level responses alone.

        The diagnosis prefers any other cause of a level reward to this sign.
        """
        sign = self._level_behavior(chart)
        if sign is None:
            return None
        remedies = self._remedies(chart)
        if self._rate(chart) < self.usual_rate or remedies[0] == "smaller-kl-penalty":
            text = f"{sign} without a rise in reward."  # the setting explains it
        elif chart.is_fresh(_NORM) or chart.is_fresh(_CHANGED):
            text = f"{sign} without a rise in reward."  # the weights were measured
        else:
            text = f"{sign}: updates are lost, or rewards are uninformative."
            settings = () if self.rounding_rate <= self._rate(chart) < math.inf else remedies
            remedies = ("compare-weights", "recheck-reward", *settings)
        evidence = cite_all(chart, *_BEHAVIOR, *_UPDATES, _GRADIENT, outcome_metric(chart))
        return Sighting("warning", text, evidence, remedies)

    def _remedies(self, chart: Chart) -> tuple[str, ...]:
        remedies: tuple[str, ...] = ("float32-weights", "raise-learning-rate")
        if chart.is_fresh(_CHANGED) and chart.series(_CHANGED).level(RECENT) > self.max_changed:
            remedies = ("raise-learning-rate",)  # rounding does not lose these updates
        elif self._rate(chart) < self.usual_rate:
            remedies = ("raise-learning-rate", "float32-weights")
        if (coefficient(chart, "kl_coefficient") or 0.0) > self.holding_penalty:
            remedies = ("smaller-kl-penalty", *remedies)  # it holds the policy at the reference
        return remedies

    def _rate(self, chart: Chart) -> float:
        """The highest learning rate of the run that is known; infinite if none is."""
        rate, knob = chart.series(_RATE), chart.knobs.get("learning_rate")
        logged = [*rate.head(RECENT), rate.level(RECENT)] if len(rate) else []
        configured = [float(knob)] if isinstance(knob, int | float) else []
        known = list(filter(math.isfinite, logged + configured))
        return max(known) if known else math.inf

    def _has_gradient(self, chart: Chart, gradient: Series) -> bool:
        """Whether there is a gradient, or a varying reward where it is not logged."""
        if len(gradient):
            return len(gradient) >= self.min_readings and gradient.level(RECENT) > 0
        outcome = chart.series(outcome_metric(chart) or "")
        return len(outcome) >= self.min_readings and outcome.noise(self.min_readings) > 0

    def _varies(self, chart: Chart) -> bool:
        """Whether groups with different rewards are counted, which have a gradient."""
        return len(chart.series(_EFFECTIVE)) > 0 or len(chart.series(_ZERO_VARIANCE)) > 0

    def _has_signal(self, chart: Chart) -> bool:
        effective, flat = chart.series(_EFFECTIVE), chart.series(_ZERO_VARIANCE)
        if len(effective):
            return effective.level(2 * RECENT) >= self.min_effective
        return not len(flat) or 1 - flat.level(2 * RECENT) >= self.min_effective

    def _sign(self, chart: Chart) -> str | None:
        changed, norm = chart.series(_CHANGED), chart.series(_NORM)
        if chart.is_fresh(_CHANGED) and changed.level(RECENT) <= self.max_changed:
            steps = in_steps(changed, RECENT)
            return f"Only {changed.level(RECENT):.2%} of the weights change per step {steps}"
        if chart.is_fresh(_NORM) and norm.level(RECENT) <= self.max_norm_ratio:
            return f"Updates change the weights by {norm.level(RECENT):.1e} of their norm"
        for name in _KLS:
            kl = chart.series(name)
            if not chart.is_fresh(name) or len(kl) < self.min_readings:
                continue
            is_signed = name.endswith("/k1")
            level = self._distance(kl) if is_signed else abs(kl.level(RECENT))
            # A policy that is the reference itself is not evidence: some frameworks log zeros.
            if 0 < level <= self.max_kl and (is_signed or not self._moves_on(kl)):
                return f"The policy is within {level:.1e} nats of the reference"
        return None

    def _sign_of_rates(self, chart: Chart) -> str | None:
        """Whether all learning rates of the run together cannot move a weight visibly."""
        rate = chart.series(_RATE)
        if rate.readings < self.min_summed or rate.first_step > self.min_summed:
            return None
        updates = chart.knobs.get("updates_per_batch")
        per_step = float(updates) if isinstance(updates, int | float) else 1.0
        taken = (rate.last_step - rate.first_step + 1) * per_step
        if sum(rate.tail(WINDOW)) / rate.readings * taken > self.max_summed_rate:
            return None  # the usual case: the latest rates alone are enough
        values = rate.whole_run()
        if not min(values) > 0:
            return None  # another rule judges a rate of 0
        moved = statistics.fmean(values) * taken
        if moved > self.max_summed_rate:
            return None
        return (
            f"At a rate of {statistics.fmean(values):.1e}, AdamW moved no weight by more than "
            f"{moved:.1e}"
        )

    def _moves_on(self, kl: Series) -> bool:
        """Whether a KL that grows as before leaves `max_kl` before the run is twice as long.

        The learning rate of many runs rises over the first steps, so the policy is slow to move.
        """
        values = kl.whole_run()
        half = [abs(value) for value in values[: len(values) // 2]][-RECENT:]
        level = abs(kl.level(RECENT))
        return bool(half) and level * level > self.max_kl * statistics.median(half) > 0

    def _distance(self, kl: Series) -> float:
        """Upper bound of a KL whose estimates have both signs: two standard errors off zero."""
        values = kl.tail(WINDOW)
        mean = sum(values) / len(values)
        return abs(mean) + 2 * kl.noise(WINDOW) / math.sqrt(len(values))

    def _level_behavior(self, chart: Chart) -> str | None:
        """Whether the responses have not changed since the first step.

        The outcome is one of the three: a rise within noise is no rise here.
        """
        norm = chart.series(_NORM)
        if chart.is_fresh(_NORM) and norm.level(RECENT) >= self.visible_norm_ratio:
            return None  # whatever keeps the policy level, it is not the size of its updates
        if is_near_ceiling(chart.series(outcome_metric(chart) or "")):
            return None
        names = (current_metric(chart, ENTROPY_METRICS), "length/mean", outcome_metric(chart) or "")
        moves = (chart.series(name) for name in _KLS if len(chart.series(name)))
        if any(abs(kl.level(RECENT)) > self.max_kl for kl in moves):
            return None  # the distance to the reference shows that it has changed
        outcome = chart.series(outcome_metric(chart) or "")
        if not all(self._is_level(chart.series(name), outcome) for name in names):
            return None
        if self._has_shifted(chart.series(_GRADIENT)):
            return None  # other weights have another gradient on the same kind of prompts
        return f"Entropy and length are level over {chart.series(names[0]).readings} readings"

    def _has_shifted(self, series: Series) -> bool:
        """Whether the halves of the run differ, or its first and latest readings."""
        values = series.tail(WINDOW)
        if len(values) < self.min_readings:
            return False
        middle = len(values) // 2
        moved, error = change(series)
        shift = level_shift(values[:middle], values[middle:])
        return abs(shift) >= self.max_shift or abs(moved) >= self.max_shift * error > 0

    def _is_level(self, series: Series, outcome: Series) -> bool:
        """Whether neither the halves of the run differ nor its first and latest readings."""
        values = series.tail(WINDOW)
        if len(values) < self.min_readings or series.opening is None:
            return False
        middle = len(values) // 2
        if not abs(level_shift(values[:middle], values[middle:])) < self.max_shift:
            return False
        moved, error = change(series)
        if error > self.max_error * abs(series.level(WINDOW)) and series is not outcome:
            return False  # too noisy to show a change
        if not abs(moved) < self.max_shift * error or not series.highest or not series.lowest:
            return False
        # Both are medians of ten, like the current level; `error` is that of two of them.
        most = self.max_range * self._range_factor(series)
        return series.highest.level - series.lowest.level < most * error

    def _range_factor(self, series: Series) -> float:
        """How much wider the range of all levels of a run is by chance than in a window.

        The expected range of n normal numbers grows with the square root of log n.
        """
        levels, usual = max(series.readings, WINDOW) / RECENT, WINDOW / RECENT
        return math.sqrt(math.log(levels) / math.log(usual))
