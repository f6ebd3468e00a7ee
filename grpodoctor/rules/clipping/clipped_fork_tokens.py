"""CLP003."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    is_solved,
)
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.losses import traits_of

_FORKS, _PROBABILITY, _HIGH = "clip/fork_token_rate", "clip/high_probability", "clip/high_rate"


class ClippedForkTokens(Rule):
    """The upper clip removes mostly unlikely tokens, the ones that begin a new line of thought.

    What it sees:
        Upper clips that fall on tokens of low probability, or on forking tokens (the fifth with the
        highest entropy), in a number that matters. The finding is a warning if entropy has halved
        and no outcome has risen, and `info` otherwise.

    Why it matters:
        At a bound of 1.2, a token of probability .01 can rise to .012 only, while a token of .9 can
        rise freely. Exploration needs unlikely tokens. With an upper bound that is too tight, the
        policy sharpens what it already does, and entropy falls.

    Evidence it needs:
        `clip/fork_token_rate` or `clip/high_probability`, and `clip/high_rate`. Only the recorder
        measures them.

    Remedies:
        Raise the upper clip bound (clip-higher), or use a loss that keeps the gradient of clipped
        tokens.

    When it is wrong:
        Forking tokens move most in every run, so a concentration of clips alone is `info`.

    References:
        DAPO, arXiv 2503.14476, section 3.1; MiniMax-M1, arXiv 2506.13585, section 3.1; Beyond the
        80/20 Rule, arXiv 2506.01939.
    """

    code: ClassVar[str] = "CLP003"
    name: ClassVar[str] = "clipped-fork-tokens"
    condition: ClassVar[Condition] = "clipped-tokens"
    summary: ClassVar[str] = "The upper clip removes mostly unlikely tokens."
    inputs: ClassVar[tuple[Need, ...]] = ((_FORKS, _PROBABILITY), _HIGH)
    remedies: ClassVar[tuple[str, ...]] = ("clip-higher", "fewer-updates")
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2503.14476",
        "arXiv 2506.13585",
        "arXiv 2506.01939",
    )
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT

    min_high_rate: float = 0.002
    """Share of tokens that the upper clip removes. Healthy runs of the bundled trainer stay at .001
    and below; ordinary public recipes report .002 to .01."""
    min_fork_rate: float = 0.02
    """Share of the forking tokens that are clipped. Healthy runs reach .005, one that updates each
    batch sixteen times at a high rate .2."""
    max_probability: float = 0.3
    """Mean probability of the clipped tokens. DAPO finds it below .2; tokens above .83 cannot be
    clipped at a bound of 1.2."""
    entropy_share: float = 0.5
    """Share of the starting entropy below which the lost exploration shows."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look at how many tokens are clipped on the high side, then at which."""
        high = chart.series(_HIGH)
        if high.last < self.min_high_rate / 2 or high.level(RECENT) < self.min_high_rate:
            return None
        if traits_of(chart.knobs.get("loss")).bounds_weights:
            return None
        text = self._text(chart, high.level(RECENT))
        if text is None:
            return None
        entropy = current_metric(chart, ENTROPY_METRICS)
        evidence = cite_all(chart, _HIGH, _FORKS, _PROBABILITY, entropy)
        start, level = start_level(chart.series(entropy)), chart.series(entropy).level(RECENT)
        is_lost = start is not None and level < self.entropy_share * start
        if is_lost and outcome_has_risen(chart) is False and not is_solved(chart):
            text = f"{text}; entropy halved, and the reward did not rise."
            return Sighting("warning", text, evidence)
        return Sighting("info", f"{text}.", evidence)

    def _text(self, chart: Chart, high: float) -> str | None:
        probability, forks = chart.series(_PROBABILITY), chart.series(_FORKS)
        if chart.is_fresh(_PROBABILITY) and probability.level(RECENT) <= self.max_probability:
            mean = probability.level(RECENT)
            return f"The upper clip removes {high:.1%} of tokens, of mean probability {mean:.2f}"
        if chart.is_fresh(_FORKS) and forks.level(RECENT) >= self.min_fork_rate:
            return f"The clip removes {forks.level(RECENT):.1%} of the forking tokens"
        return None
