"""OPT001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.run_health import has_critic, is_solved, never_moved
from grpodoctor.runs.chart import Chart

_LOSS = "optimizer/loss"
_GRADIENT = "optimizer/grad_norm"
_TOKENS = "optimizer/loss_tokens"
_FLAT = "groups/zero_variance_rate"
_FLAT_KINDS = (_FLAT, "groups/all_correct_rate", "groups/all_incorrect_rate")
_ALIVE = "groups/effective_rate"
_SPREAD = "groups/reward_std"
_BATCH_SPREAD = "reward/std"
_IDLE = "advantage/zero_rate"
_REWARD = "reward/mean"


@dataclass(frozen=True)
class ZeroLossOrGradient(Rule):
    """The loss or the gradient is zero, and this is which of the causes it is.

    What it sees:
        Zeros that last, told apart. *Harmless*: the loss prints as zero and the gradient is alive;
        with one update per batch the ratio is 1 and the centred advantages add up to nothing: a
        note. *Starved*: groups have no variance, so that there is nothing to learn from, or, when
        all is solved, nothing left to learn; where groups are recorded it is a note, and one of
        GRP002 to GRP004 beside it names the cause. *Broken*: groups do vary, or no token bears
        loss, and still there is no gradient: a mask or plumbing fault. The fourth, a clip fraction
        of zero, is CLP002.

    Why it matters:
        It is the most frequent complaint about such runs. Most of the time nothing is wrong, and
        the rest of the time everything is.

    Evidence it needs:
        `optimizer/grad_norm` or `optimizer/loss`. To tell the causes apart also
        `groups/zero_variance_rate`, `groups/reward_std` and `optimizer/loss_tokens`.

    Remedies:
        Harmless: none. Starved: see GRP001 to GRP004. Broken: look at the loss mask of one batch;
        a padding token that equals the end token masks everything.

    When it is wrong:
        A log that rounds to four places shows zero for a loss that is merely small; that is the
        harmless case. Without group statistics the cause stays open, and the finding says so.

    References:
        TRL issues 3452, 2703 and 3857; open-r1 issue 239.
    """

    code: ClassVar[str] = "OPT001"
    name: ClassVar[str] = "zero-loss-or-gradient"
    summary: ClassVar[str] = "The loss or the gradient is zero: harmless, starved or broken."
    inputs: ClassVar[tuple[Need, ...]] = ((_GRADIENT, _LOSS),)
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/3452",
        "github.com/huggingface/trl/issues/3857",
        "github.com/huggingface/open-r1/issues/239",
    )
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 20

    printed_zero: float = 5e-5
    """A loss below this prints as zero with four decimals, as trainers log it."""
    no_gradient: float = 1e-9
    """A gradient below this is zero: far below one that weight decay or a KL penalty leaves."""
    all_groups: float = 0.98
    """Share of groups without variance at which a run is starved."""
    mostly: float = 0.5
    """Share of groups without variance from which on a step may be without any signal: runs of
    strangers with one to four groups to a step, of which .65 to .95 were flat, had gradients of
    zero in half of their logs."""
    patience: int = 20
    """Readings after which a starved run is critical: every run has a few bad batches."""
    idle: float = 0.75
    """Share of those without any spread that is a warning. A healthy run of strangers with one
    prompt to a batch had up to half, five in a row."""

    def examine(self, chart: Chart) -> RuleResult:
        """See which of the two is zero, then look for the cause."""
        gradient = chart.value(_GRADIENT)
        if gradient is not None and gradient <= self.no_gradient:
            return self._no_gradient(chart)
        loss = chart.value(_LOSS)
        if loss is None or abs(loss) > self.printed_zero:
            return None
        return self._zero_loss(chart, gradient)

    def _no_gradient(self, chart: Chart) -> Sighting:
        if chart.value(_TOKENS) == 0:
            text = "the gradient is zero because no token bears loss: the mask removes them all"
            return self._sighting(chart, "critical", text, ("check-loss-mask",))
        if self._is_starved(chart):
            return self._starved(chart, "the gradient is zero")
        if not has_critic(chart) and self._is_mostly_flat(chart):
            share = self._flat_share(chart)
            text = (
                f"the gradient is zero where no group of a step varies: {share:.0%} of the groups "
                "carry no signal, on average since the last log"
            )
            return self._sighting(chart, "info", text, ("dynamic-sampling", "easier-prompts"))
        if self._has_signal(chart):
            alive = "advantages are not zero" if has_critic(chart) else "groups vary in reward"
            text = f"the gradient is zero although {alive}: a mask or plumbing fault"
            return self._sighting(chart, "critical", text, ("check-loss-mask",))
        text = "the gradient is zero; rewards per group would tell a fault from a lack of signal"
        return self._sighting(chart, "warning", text, ("recheck-reward", "check-loss-mask"))

    def _zero_loss(self, chart: Chart, gradient: float | None) -> Sighting:
        if self._is_starved(chart):
            return self._starved(chart, "the loss is zero, any gradient left is not the reward's,")
        if gradient is None:
            text = "a loss of zero is expected with centred advantages; no gradient is recorded"
        else:
            text = f"a loss of zero is expected here: the gradient is alive ({gradient:.2g})"
        return self._sighting(chart, "info", text, ())

    def _starved(self, chart: Chart, symptom: str) -> Sighting:
        if is_solved(chart):
            text = f"{symptom} because the training prompts are solved: saturation, not failure"
            return self._sighting(chart, "info", text, ("stop-training", "harder-prompts"))
        cause = "no token has an advantage" if has_critic(chart) else "no group varies in reward"
        text = f"{symptom} because {cause}: there is nothing to learn from"
        remedies = ("recheck-reward", "easier-prompts", "dynamic-sampling")
        return self._sighting(chart, self._weight_of_starving(chart), text, remedies)

    def _weight_of_starving(self, chart: Chart) -> Severity:
        """Critical where no gradient was left for long; a note beside GRP002 to GRP004.

        With groups on record those rules name the cause, and a symptom must not stand before it.
        Without them a few batches of little variety look the same: one or two prompts to a batch
        are often all wrong at first.
        """
        if any(map(chart.is_fresh, _FLAT_KINDS)):
            return "info"
        gradients = chart.series(_GRADIENT).tail(self.patience)
        long = len(gradients) == self.patience and max(gradients) <= self.no_gradient
        if long:
            return "critical"
        return "warning" if self._lasts(chart) else "info"

    def _lasts(self, chart: Chart) -> bool:
        """Whether nearly none of the latest batches had any spread in reward."""
        for name in (_ALIVE, _SPREAD, _BATCH_SPREAD):
            spreads = chart.series(name).tail(self.patience)
            if spreads:
                idle = sum(spread == 0 for spread in spreads)
                return len(spreads) == self.patience and idle >= self.idle * self.patience
        gradients = chart.series(_GRADIENT)
        if len(gradients):
            return gradients.level(self.patience) <= self.no_gradient
        rewards = chart.series(_REWARD).tail(self.patience)
        return len(rewards) == self.patience and rewards.count(0.0) >= self.idle * self.patience

    def _is_starved(self, chart: Chart) -> bool:
        if has_critic(chart):  # a group without variance is no group without signal
            return chart.value(_IDLE) == 1
        if any(map(chart.is_fresh, _FLAT_KINDS)):
            return self._flat_share(chart) >= self.all_groups or self._is_all_or_nothing(chart)
        if self._is_at_an_end(chart):
            return True
        none = any(chart.value(name) == 0 for name in (_ALIVE, _SPREAD, _BATCH_SPREAD))
        return none or chart.value(_IDLE) == 1

    def _is_mostly_flat(self, chart: Chart) -> bool:
        """Whether single steps without any signal are to be expected.

        A log of every tenth step has the gradient of the last one, and the mean of all ten for the
        groups: that some of them vary is no proof that one did in the last.
        """
        return any(map(chart.is_fresh, _FLAT_KINDS)) and self._flat_share(chart) >= self.mostly

    def _is_all_or_nothing(self, chart: Chart) -> bool:
        """Whether all groups that are not wrong throughout are right throughout.

        A reward of at most 1 has, over all groups, a mean of at most the share of those with any
        reward, and reaches it only where each response of them has all of it.
        """
        wrong, reward = chart.value("groups/all_incorrect_rate"), chart.value(_REWARD)
        bounded = all(0 <= value <= 1 for _, value in chart.series(_REWARD))
        return bounded and wrong is not None and reward is not None and wrong + reward >= 1 - 1e-6

    def _is_at_an_end(self, chart: Chart) -> bool:
        """Whether every reward of the batch is 0, or every one is 1, in a run between the two."""
        reward = chart.series(_REWARD)
        inside = all(0 <= value <= 1 for _, value in reward)
        return inside and chart.value(_REWARD) in (0.0, 1.0) and not never_moved(reward)

    def _has_signal(self, chart: Chart) -> bool:
        """Whether groups are known to vary; a spread over the whole batch says nothing of it.

        With a critic: whether some token has an advantage.
        """
        if has_critic(chart):
            return (chart.value(_IDLE) or 0.0) < 1 and chart.is_fresh(_IDLE)
        if chart.is_fresh(_FLAT):
            return self._flat_share(chart) < self.all_groups
        return bool(chart.value(_ALIVE)) or bool(chart.value(_SPREAD))

    def _flat_share(self, chart: Chart) -> float:
        """Share of groups without variance, or the part of it that is split by correctness."""
        if chart.is_fresh(_FLAT):
            return chart.series(_FLAT).last
        return sum(chart.value(name) or 0.0 for name in _FLAT_KINDS)

    def _sighting(
        self, chart: Chart, severity: Severity, text: str, remedies: tuple[str, ...]
    ) -> Sighting:
        evidence = cite_all(chart, _GRADIENT, _LOSS, _TOKENS, *_FLAT_KINDS, _SPREAD)
        return Sighting(severity, text, evidence, remedies)
