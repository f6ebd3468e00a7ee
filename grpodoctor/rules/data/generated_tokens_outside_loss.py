"""DAT005."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_UNTRAINED = "optimizer/untrained_token_rate"
_ZERO, _EQUAL = "advantage/zero_rate", "groups/zero_variance_rate"
_LEFT_OUT = "optimizer/left_out_rate"
_OF_RESPONSES = frozenset({"group", "centred"})
"""Estimators that give every token of a response the same advantage."""


class GeneratedTokensOutsideLoss(Rule):
    """The loss leaves out tokens that the policy generated.

    What it sees:
        Generated tokens outside the loss mask, in responses whose other tokens are in the loss. So
        are tokens in the mask whose advantage is zero where the rewards of the group differ: a
        reward at the last token that was not passed on to the others.

    Why it matters:
        The policy never learns the tokens that are left out. Without the end token it does not
        learn when to stop, so responses grow; without the first tokens it does not learn which way
        of answering to choose. A mask that is shifted by one leaves out one token per response and
        may include one that was not generated (DAT001).

    Evidence it needs:
        `optimizer/untrained_token_rate`, which the bundled trainer and the hook for TRL record.
        TRL's own log does not contain it. Optional: `advantage/zero_rate`,
        `groups/zero_variance_rate` and the setting `advantage`.

    Remedies:
        Print one response with its loss mask, token by token, from the prompt's last token to the
        first token of padding.

    When it is wrong:
        A method that selects tokens on purpose by the loss mask.

    References:
        DAPO, arXiv 2503.14476, Eq. 8: the sum runs over all tokens of a response.
    """

    code: ClassVar[str] = "DAT005"
    name: ClassVar[str] = "generated-tokens-outside-loss"
    condition: ClassVar[Condition] = "wrong-loss-tokens"
    explains: ClassVar[tuple[Condition, ...]] = ("undersized-updates", "length-growth")
    summary: ClassVar[str] = "The loss leaves out tokens that the policy generated."
    inputs: ClassVar[tuple[Need, ...]] = (_UNTRAINED,)
    remedies: ClassVar[tuple[str, ...]] = ("check-loss-mask",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)

    min_share: float = 0.0001
    """Share of the generated tokens. It is exactly zero with a correct mask; one token in a
    response of ten thousand is the least that a shifted mask leaves out."""

    max_excess: float = 0.5
    """Share of tokens without an advantage beyond the share of groups with equal rewards. The two
    differ where such groups have longer responses: by .17 if they are twice as long, and by this
    much only if they are nine times as long. An advantage at the last token alone leaves out nine
    tokens of ten in responses of ten tokens, and more in longer ones."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the share with zero, then that of tokens without an advantage."""
        series = chart.series(_UNTRAINED)
        share = series.level(RECENT)
        if not share >= self.min_share or not series.last > 0:
            return self._without_advantage(chart)
        text = f"{share:.2g} of the generated tokens are not in the loss."
        return Sighting("warning", text, (cite(chart, _UNTRAINED, 0.0),))

    def _without_advantage(self, chart: Chart) -> Sighting | None:
        """Tokens of groups with different rewards that have no advantage."""
        if chart.knobs.get("advantage") not in _OF_RESPONSES or not chart.is_fresh(_ZERO):
            return None
        left_out = {step for step, share in chart.series(_LEFT_OUT) if share}
        equal = dict(chart.series(_EQUAL))
        excesses = [
            rate - equal[step]
            for step, rate in chart.series(_ZERO)
            if step in equal and step not in left_out
        ][-RECENT:]
        if len(excesses) < RECENT or not min(excesses) >= self.max_excess:
            return None
        zero = chart.series(_ZERO).level(RECENT)
        text = f"{zero:.0%} of the tokens have no advantage, in groups with different rewards."
        return Sighting("warning", text, cite_all(chart, _ZERO, _EQUAL))
