"""ENT006."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.entropy.entropy_explosion import EntropyExplosion
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    has_improved,
    outcome_metric,
    outcome_noun,
)
from grpodoctor.rules.shared.health.whole_run import falls_over_run
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition


class NearRandomSamples(Rule):
    """The responses are nearly random from the first step on, and the reward does not rise.

    What it sees:
        An entropy of two nats per token or more in the first readings and now, without a rise of
        accuracy or reward. An entropy that falls over the whole run is none: the policy learns what
        to sample, as base models do that begin at two to three nats.

    Why it matters:
        Two nats are a choice among seven equally likely tokens at every position. Hardly any
        response is correct then, and those that are were lucky, so the groups carry little signal.
        The sampling temperature is too high, the weights were not loaded, or the prompt template is
        not that of the model.

    Evidence it needs:
        `entropy/mean` or `entropy/sampled`, and `accuracy/train` or `reward/mean`.

    Remedies:
        Read five responses of the first step. If they are noise, set the sampling temperature to 1,
        and check that the checkpoint was loaded and that the template is the model's own.

    When it is wrong:
        A vocabulary of units that are not text, such as audio codes or proteins, or a policy that
        starts untrained on purpose. The first tokens of a response have the highest entropy, so a
        limit of few tokens makes it high; LEN002 is then named first.

    References:
        DAPO, arXiv 2503.14476, Fig. 2: entropies between .1 and 1.
    """

    code: ClassVar[str] = "ENT006"
    name: ClassVar[str] = "near-random-samples"
    condition: ClassVar[Condition] = "entropy-rise"
    explains: ClassVar[tuple[Condition, ...]] = ("zero-rewards", "undersized-updates")
    summary: ClassVar[str] = "Responses are nearly random from the first step on."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS, ("accuracy/train", "reward/mean"))
    remedies: ClassVar[tuple[str, ...]] = ("lower-temperature", "lopti")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 10
    judges_levels: ClassVar[bool] = True

    min_entropy: float = 2.0
    """Nats per token. In 31 public runs the first readings are between .04 and 1.7, and all but
    one of them are below .9; ln 7.4 = 2."""
    min_readings: int = 20
    """Readings without a rise."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the first and the latest entropy with the bound."""
        name = current_metric(chart, ENTROPY_METRICS)
        series, outcome = chart.series(name), outcome_metric(chart)
        opening, level = series.opening, series.level(RECENT)
        if outcome is None:
            return NOT_LOGGED
        if opening is None or len(series) < self.min_readings:
            return None
        if min(opening.level, level) < self.min_entropy or level >= EntropyExplosion.noise_entropy:
            return None
        if has_improved(chart) is not False or falls_over_run(series):
            return None
        text = (
            f"Entropy is {level:.2g} nats per token since the start, like {math.exp(level):.0f} "
            f"equally likely tokens; {outcome_noun(chart)} did not rise."
        )
        first_step = series.first_step
        evidence = cite_all(chart, name, outcome)
        return Sighting("warning", text, evidence, find_onset=lambda: first_step)
