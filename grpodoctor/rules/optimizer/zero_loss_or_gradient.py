"""OPT001."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import has_critic, is_solved, lacks_signal
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.inferred_groups import INFERRED_ZERO_VARIANCE
from grpodoctor.vocabulary.conditions import Condition

_LOSS = "optimizer/loss"
_ENTROPY = "entropy/mean"
_GRADIENT = "optimizer/grad_norm"
_TOKENS = "optimizer/loss_tokens"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_GROUP_RATES = (_ZERO_VARIANCE, "groups/all_correct_rate", "groups/all_incorrect_rate")
_EFFECTIVE = "groups/effective_rate"
_GROUP_STD = "groups/reward_std"
_BATCH_STD = "reward/std"
_ZERO_ADVANTAGE = "advantage/zero_rate"
_REWARD = "reward/mean"
_IF_FULL = ("dynamic-sampling", "harder-prompts")
_IF_EMPTY = ("recheck-reward", "easier-prompts", "dynamic-sampling")
_COUNTED = 10
"""Latest readings; the summary states how many of them are zero."""


class ZeroLossOrGradient(Rule):
    """The loss or the gradient is zero, or the gradient comes from penalties alone.

    What it sees:
        Lasting zeros, and which of these cases applies:

        - harmless (`info`): the loss is logged as zero, but the gradient norm is not. With one
          update per batch the ratio is 1, and the centered advantages add up to zero;
        - no signal: all groups have zero variance, so nothing can be learned, or the prompts are
          solved. The gradient is then zero, or it comes from a KL penalty, an entropy bonus or
          weight decay, which looks like training and is not. The finding is `info` where groups
          are logged, since GRP002, GRP003 or GRP004 then names the cause;
        - broken (critical): the gradient is zero although groups vary, because the mask removes
          all tokens, or because the reward function returns nothing any more.

        Where no gradient is logged, a loss that became zero after the start is a warning, unless
        the reward has risen. So is a loss of exactly 0 with an entropy that never changes.

        A clip fraction of zero is reported by CLP002.

    Why it matters:
        A loss of zero is the most frequent question about such runs. Usually nothing is wrong, but
        sometimes nothing is being trained.

    Evidence it needs:
        `optimizer/grad_norm` or `optimizer/loss`. Optional, to separate the cases:
        `groups/zero_variance_rate`, `groups/reward_std`, `reward/max` and `reward/min`,
        `advantage/max` and `advantage/min`, and `optimizer/loss_tokens`.

    Remedies:
        Harmless: none. No signal: see GRP001 to GRP004. Broken: check the loss mask of one batch; a
        padding token that equals the end token masks everything. If the reward is missing, call
        the reward function on one response.

    When it is wrong:
        Where groups are not logged, equal rewards are inferred: from the highest and lowest reward
        or advantage of the batch, or from their standard deviation. With one or two prompts per
        batch, single batches without variance are normal; only lasting ones count.
        A log with four decimals shows zero for a loss that is merely small; that is the harmless
        case. Without group statistics the case is unknown, and the finding says so.

    References:
        TRL issues 3452, 2703 and 3857; open-r1 issue 239.
    """

    code: ClassVar[str] = "OPT001"
    name: ClassVar[str] = "zero-loss-or-gradient"
    condition: ClassVar[Condition] = "zero-gradient"
    summary: ClassVar[str] = "The loss or the gradient is zero: harmless, no signal or broken."
    inputs: ClassVar[tuple[Need, ...]] = ((_GRADIENT, _LOSS),)
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/3452",
        "github.com/huggingface/trl/issues/3857",
        "github.com/huggingface/open-r1/issues/239",
    )
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 20

    max_zero_loss: float = 5e-5
    """A loss below this prints as zero with four decimals, as trainers log it."""
    max_zero_gradient: float = 1e-9
    """A gradient norm below this is zero: far below what weight decay or a KL penalty leaves."""
    all_share: float = 0.98
    """Share of zero-variance groups above which a run has no signal."""
    mostly_zero_variance_share: float = 0.5
    """Share of zero-variance groups above which single steps without any signal are expected.
    Public runs with one to four groups per step, with zero variance in .65 to .95 of them, had zero
    gradients in half of their logged steps."""
    min_zero_losses: int = 10
    """Readings of a loss that became 0, without a gradient that would show the cause."""
    first_loss_factor: float = 100.0
    """Multiple of the largest zero loss that the loss had at the start: no rounding of a zero."""
    patience: int = 20
    """Readings after which a missing signal is critical: every run has a few bad batches."""
    warning_idle_share: float = 0.75
    """Share of these readings without any spread for a warning. A healthy public run with one
    prompt per batch had up to half, five in a row."""

    def examine(self, chart: Chart) -> RuleResult:
        """Find out which of the two is zero, then look for the cause."""
        gradient = chart.value(_GRADIENT)
        if gradient is not None and gradient <= self.max_zero_gradient:
            return self._zero_gradient(chart)
        loss = chart.value(_LOSS)
        if loss is not None and abs(loss) <= self.max_zero_loss:
            return self._zero_loss(chart, gradient)
        if gradient is not None and lacks_signal(chart) and self._has_no_signal(chart):
            return self._penalty_gradient(chart, gradient)
        return None

    def _zero_gradient(self, chart: Chart) -> Sighting:
        if chart.value(_TOKENS) == 0:
            text = "The gradient is 0 because the loss mask removes all tokens."
            return self._sighting(chart, "critical", text, ("check-loss-mask",))
        if since := self._reward_missing_since(chart):
            text = f"The gradient is 0, and the reward is missing since step {since}."
            return self._sighting(chart, "critical", text, ("recheck-reward",))
        if self._has_no_signal(chart):
            return self._no_signal(chart, self._zero_gradients(chart))
        if not has_critic(chart) and self._is_mostly_zero_variance(chart):
            share = self._zero_variance_share(chart)
            text = f"The gradient of this step is 0; {share:.0%} of groups have zero variance."
            return self._sighting(chart, "info", text, ("dynamic-sampling", "easier-prompts"))
        if self._has_signal(chart):
            signal = "advantages are not zero" if has_critic(chart) else "groups vary in reward"
            text = f"The gradient is 0 although {signal}: the loss mask or the code is broken."
            return self._sighting(chart, "critical", text, ("check-loss-mask",))
        zeros = self._zero_gradients(chart)
        text = f"{zeros}; group rewards, which would show why, are not logged."
        severity: Severity = "warning" if self._is_mostly_zero(chart) else "info"
        return self._sighting(chart, severity, text, ("recheck-reward", "check-loss-mask"))

    def _is_mostly_zero(self, chart: Chart) -> bool:
        """Whether nearly all of the latest gradients are 0.

        A few prompts per batch that are all solved or all failed give none in half of the steps.
        """
        latest = chart.series(_GRADIENT).tail(self.patience)
        zeros = sum(abs(value) <= self.max_zero_gradient for value in latest)
        return len(latest) == self.patience and zeros >= self.warning_idle_share * self.patience

    def _zero_gradients(self, chart: Chart) -> str:
        """How many of the latest gradients are 0, in words."""
        latest = chart.series(_GRADIENT).tail(_COUNTED)
        zeros = sum(abs(value) <= self.max_zero_gradient for value in latest)
        if zeros == len(latest):
            return "The gradient is 0"
        return f"The gradient is 0 in {zeros} of the last {len(latest)} readings"

    def _reward_missing_since(self, chart: Chart) -> int | None:
        """The step after the last reward, if every step had one before and none has one now."""
        gradient, reward = chart.series(_GRADIENT), chart.series(_REWARD)
        later = [step for step, _ in gradient if step > reward.last_step]
        before = len(gradient) - len(later)
        if len(reward) < self.persistence or len(later) < self.persistence:
            return None
        # One row in two has a reward where rollouts and updates are logged in separate rows.
        return later[0] if len(reward) >= before else None

    def _zero_loss(self, chart: Chart, gradient: float | None) -> Sighting:
        if self._has_no_signal(chart):
            if gradient is not None and lacks_signal(chart):
                return self._penalty_gradient(chart, gradient)
            return self._no_signal(chart, "The loss is 0")
        if gradient is None and self._has_lost_its_loss(chart):
            text = (
                f"The loss has been 0 for {self.min_zero_losses} readings; at the start it was "
                f"{self._first_loss(chart):.2g}."
            )
            remedies = ("recheck-reward", "entropy-bonus", "lower-learning-rate")
            return self._sighting(chart, "warning", text, remedies)
        if gradient is None and self._is_frozen(chart):
            text = (
                f"The loss is exactly 0 and entropy exactly {chart.series(_ENTROPY).last:.4g} in "
                f"{self.min_zero_losses} readings: nothing is trained or measured."
            )
            return self._sighting(chart, "warning", text, ("check-loss-mask", "recheck-reward"))
        if gradient is None:
            text = "A loss of 0 is expected with centered advantages; the gradient is not logged."
            return self._sighting(chart, "info", text, ())
        text = (
            "A loss of 0 is expected: centered advantages add up to 0, and the gradient norm was "
            f"{gradient:.2g}."
        )
        # A gradient shows that this is no fault, so a later fault has a separate onset.
        return replace(self._sighting(chart, "info", text, ()), condition="expected")

    def _first_loss(self, chart: Chart) -> float:
        opening = chart.series(_LOSS).opening
        return opening.level if opening is not None else 0.0

    def _has_lost_its_loss(self, chart: Chart) -> bool:
        """Whether a loss that was not 0 at the start is 0 for good, without success.

        With centered advantages and one update per batch, the loss is 0 from the first step. A loss
        that becomes 0 has no advantages left, or a policy that gives its responses probability 1.
        """
        latest = chart.series(_LOSS).tail(self.min_zero_losses)
        is_zero = len(latest) == self.min_zero_losses and max(map(abs, latest)) <= (
            self.max_zero_loss
        )
        was_loss = abs(self._first_loss(chart)) >= self.first_loss_factor * self.max_zero_loss
        is_success = is_solved(chart) or outcome_has_risen(chart) is not False
        return is_zero and was_loss and not is_success

    def _is_frozen(self, chart: Chart) -> bool:
        """Whether a loss of exactly 0 comes with an entropy that repeats to the last digit.

        Responses are sampled again at each step, so even a frozen policy has another entropy.
        """
        loss = chart.series(_LOSS).tail(self.min_zero_losses)
        entropy = chart.series(_ENTROPY).tail(self.min_zero_losses)
        if len(loss) < self.min_zero_losses or len(entropy) < self.min_zero_losses:
            return False
        return not any(loss) and len(set(entropy)) == 1 and entropy[0] > 0

    def _penalty_gradient(self, chart: Chart, gradient: float) -> Sighting:
        symptom = f"The gradient ({gradient:.2g}) comes from penalties alone"
        return self._no_signal(chart, symptom)

    def _no_signal(self, chart: Chart, symptom: str) -> Sighting:
        if is_solved(chart):
            text = f"{symptom} because the training prompts are solved; this is no failure."
            return self._sighting(chart, "info", text, ("keep-checkpoint", "harder-prompts"))
        if has_critic(chart):
            cause = "no token has an advantage"
        elif self._lasts(chart):
            cause = f"no group varies in reward{self._in_how_many(chart)}"
        else:
            cause = "no group varies in reward in these batches"
        text = f"{symptom} because {cause}."
        is_full = chart.value("reward/min") == chart.value("reward/max") == 1
        remedies = _IF_FULL if is_full else _IF_EMPTY
        return self._sighting(chart, self._no_signal_severity(chart), text, remedies)

    def _no_signal_severity(self, chart: Chart) -> Severity:
        """Critical if the gradient stays zero; `info` alongside GRP002 to GRP004.

        Where groups are logged, those rules name the cause, and this symptom must not precede it.
        Where they are not, a few batches of little variety look the same: one or two prompts per
        batch are often all incorrect at first.
        """
        if any(map(chart.is_fresh, _GROUP_RATES)):
            return "info"
        gradients = chart.series(_GRADIENT).tail(self.patience)
        if len(gradients) == self.patience and max(gradients) <= self.max_zero_gradient:
            return "critical"
        return "warning" if self._lasts(chart) else "info"

    def _lasts(self, chart: Chart) -> bool:
        """Whether nearly all of the latest batches had equal rewards."""
        flat = self._flat_batches(chart)
        if flat is not None:
            return len(flat) == self.patience and sum(flat) >= (
                self.warning_idle_share * self.patience
            )
        gradients = chart.series(_GRADIENT)
        return gradients.level(self.patience) <= self.max_zero_gradient

    def _in_how_many(self, chart: Chart) -> str:
        """In how many of the latest batches no group varies; empty if that is so in all."""
        flat = self._flat_batches(chart) or [True]
        return "" if all(flat) else f" in {sum(flat)} of the last {len(flat)} batches"

    def _flat_batches(self, chart: Chart) -> list[bool] | None:
        """Whether the rewards of each of the latest batches are equal; None if only gradients tell.

        Without group rates or spreads, a mean reward of 0 is taken for equal rewards.
        """
        shares = chart.series(INFERRED_ZERO_VARIANCE).tail(self.patience)
        if shares:
            return [share >= self.all_share for share in shares]
        for name in (_EFFECTIVE, _GROUP_STD, _BATCH_STD):
            if spreads := chart.series(name).tail(self.patience):
                return [spread == 0 for spread in spreads]
        if len(chart.series(_GRADIENT)):
            return None
        return [reward == 0 for reward in chart.series(_REWARD).tail(self.patience)]

    def _has_no_signal(self, chart: Chart) -> bool:
        if has_critic(chart):  # zero-variance groups contribute gradient here
            return chart.value(_ZERO_ADVANTAGE) == 1
        if any(map(chart.is_fresh, _GROUP_RATES)):
            share = self._zero_variance_share(chart)
            return share >= self.all_share or self._is_all_or_nothing(chart)
        if self._is_at_extreme(chart) or self._inferred_share(chart) >= self.all_share:
            return True
        is_zero = any(chart.value(name) == 0 for name in (_EFFECTIVE, _GROUP_STD, _BATCH_STD))
        return is_zero or chart.value(_ZERO_ADVANTAGE) == 1

    def _inferred_share(self, chart: Chart) -> float:
        """Lower bound of the share of zero-variance groups that other readings imply."""
        is_inferred = chart.is_fresh(INFERRED_ZERO_VARIANCE)
        return chart.series(INFERRED_ZERO_VARIANCE).last if is_inferred else 0.0

    def _is_mostly_zero_variance(self, chart: Chart) -> bool:
        """Whether single steps without any signal are expected.

        A log of every tenth step has the gradient of the last step and the mean of ten steps for
        the groups, so varying groups do not prove that one varied in the last step.
        """
        is_logged = any(map(chart.is_fresh, _GROUP_RATES))
        return is_logged and self._zero_variance_share(chart) >= self.mostly_zero_variance_share

    def _is_all_or_nothing(self, chart: Chart) -> bool:
        """Whether all groups that are not all-incorrect are all-correct.

        For rewards of at most 1, the mean over all groups is at most the share of groups with any
        reward. It reaches that share only if each of their responses has the full reward.
        """
        incorrect, reward = chart.value("groups/all_incorrect_rate"), chart.value(_REWARD)
        is_bounded = chart.series(_REWARD).is_within(0, 1)
        if not is_bounded or incorrect is None or reward is None:
            return False
        return incorrect + reward >= 1 - 1e-6

    def _is_at_extreme(self, chart: Chart) -> bool:
        """Whether all rewards of the batch are 0, or all are 1, in a run with rewards between."""
        reward = chart.series(_REWARD)
        is_bounded = reward.is_within(0, 1)
        return is_bounded and chart.value(_REWARD) in (0.0, 1.0) and not never_moved(reward)

    def _has_signal(self, chart: Chart) -> bool:
        """Whether groups are known to vary; the spread over the whole batch does not show it.

        With a critic: whether some token has an advantage.
        """
        if has_critic(chart):
            return (chart.value(_ZERO_ADVANTAGE) or 0.0) < 1 and chart.is_fresh(_ZERO_ADVANTAGE)
        if chart.is_fresh(_ZERO_VARIANCE):
            return self._zero_variance_share(chart) < self.all_share
        return bool(chart.value(_EFFECTIVE)) or bool(chart.value(_GROUP_STD))

    def _zero_variance_share(self, chart: Chart) -> float:
        """Share of zero-variance groups, or the part of it that is split by correctness."""
        if chart.is_fresh(_ZERO_VARIANCE):
            return chart.series(_ZERO_VARIANCE).last
        return sum(chart.value(name) or 0.0 for name in _GROUP_RATES)

    def _sighting(
        self, chart: Chart, severity: Severity, text: str, remedies: tuple[str, ...]
    ) -> Sighting:
        spreads = (_GROUP_STD, "reward/max", "reward/min", "advantage/max", "advantage/min")
        evidence = cite_all(chart, _GRADIENT, _LOSS, _TOKENS, *_GROUP_RATES, *spreads)
        return Sighting(severity, text, evidence, remedies)
