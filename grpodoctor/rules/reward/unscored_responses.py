"""REW017."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.groups.exact_shares import (
    BatchShape,
    batch_shape,
    covered,
    denominator,
)
from grpodoctor.rules.shared.health.reward_components import MOST_NAMED, component_name
from grpodoctor.rules.shared.health.whole_run import rises_over_run
from grpodoctor.rules.shared.reward_parts.unscored_parts import unscored_parts
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.component_names import is_about_task
from grpodoctor.vocabulary.conditions import Condition

_REWARD, _ABORTED = "reward/mean", "rollouts/aborted_rate"
_WHOLE = 1e-4
"""Distance from a whole number of responses that float32 can cause in a batch of a thousand."""


class UnscoredResponses(Rule):
    """The mean reward covers fewer responses than the batch has.

    What it sees:
        Mean rewards that are shares of 63 responses in a batch of 64. Means of rewards of 0 and 1
        are exact fractions, so their denominators show how many responses were scored. Whole groups
        that are left out do not count: dynamic sampling does that on purpose.

        In TRL's logs, also a mean reward that is no weighted sum of the means of its parts: some
        responses lack a part. This is a note, and a warning if the reward rises while a part for
        correctness does not.

    Why it matters:
        The reward function returned NaN or nothing for some responses, and the trainer left them
        out of the mean. Depending on the trainer they count as incorrect, lose their gradient, or
        shift the advantages of their group. No other metric shows it. Where a part for correctness
        is None, its prompts teach the other parts alone, such as the format or brevity.

    Evidence it needs:
        `reward/mean` with all its digits, of rewards that are 0 or 1. The size of a batch and of a
        group, from the config, or from the readings of the start with
        `groups/zero_variance_rate`. For the parts, `reward/component/<name>/mean` of two or more.

    Remedies:
        Log the responses for which the reward function returns NaN or nothing, and fix the cause: a
        parser that fails, a division by the length, a judge that times out.

    When it is wrong:
        A batch of another size than its config says. Where aborted rollouts are logged, the rule
        leaves them to DAT004. A reward for several tasks returns None for those of others on
        purpose.

    References:
        TRL documentation of custom reward functions, which may return None.
    """

    code: ClassVar[str] = "REW017"
    name: ClassVar[str] = "unscored-responses"
    condition: ClassVar[Condition] = "wrong-reward"
    summary: ClassVar[str] = "The mean reward covers fewer responses than the batch has."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("huggingface.co/docs/trl/grpo_trainer",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 5

    readings: int = 20
    """Latest readings that are looked at."""
    exact_share: float = 0.9
    """Share of them that are fractions of a batch. Graded rewards reach hardly any; means with two
    digits reach .6."""
    min_partial: int = 10
    """Readings of them that cover a part of a group. Whole batches have none; a share of 63
    responses looks like one of whole groups in one of nine."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look at the parts of the reward, then at the denominators of the latest means."""
        return self._missing_parts(chart) or self._missing_rewards(chart)

    def _missing_parts(self, chart: Chart) -> Sighting | None:
        found = unscored_parts(chart)
        if found is None:
            return None
        tasks = [name for name in found.parts if is_about_task(component_name(name))]
        is_lost = rises_over_run(chart.series(_REWARD)) and not any(
            rises_over_run(chart.series(name)) for name in tasks
        )
        severity: Severity = "warning" if tasks and is_lost else "info"
        names = " and ".join(map(component_name, found.missing[:2])) or "a part of it"
        text = (
            f"Some responses lack {names}: no weights explain {found.residual:.0%} of the spread "
            f"of the reward."
        )
        return Sighting(severity, text, cite_all(chart, _REWARD, *found.parts[:MOST_NAMED]))

    def _missing_rewards(self, chart: Chart) -> RuleResult:
        """Mean rewards whose denominators are smaller than the batch."""
        shape, series = batch_shape(chart), chart.series(_REWARD)
        if shape is None:
            return NOT_LOGGED
        values = series.tail(self.readings)
        if len(values) < self.readings or chart.series(_ABORTED).level(self.readings) > 0:
            return None
        if _are_whole(values, shape) or _is_rounded(values) or not self._are_shares(values, shape):
            return None
        partly = [count for value in values if (count := covered(value, shape)) is not None]
        if len(partly) < self.min_partial:
            return None
        count = int(statistics.mode(partly))
        missing = f"{shape.responses - count} of {shape.responses} responses"
        verb = "has" if shape.responses - count == 1 else "have"
        text = f"{missing} {verb} no reward: the mean covers {count}."
        onset = partial(_first_partial, series, shape)
        return Sighting("warning", text, (cite(chart, _REWARD),), find_onset=onset)

    def _are_shares(self, values: list[float], shape: BatchShape) -> bool:
        exact = [denominator(value, shape.responses) is not None for value in values]
        return sum(exact) >= self.exact_share * len(values)


def _are_whole(values: list[float], shape: BatchShape) -> bool:
    """Whether all values are shares of the whole batch, as they usually are."""
    counts = [value * shape.responses for value in values]
    return all(abs(count - round(count)) < _WHOLE for count in counts if math.isfinite(count))


def _is_rounded(values: list[float]) -> bool:
    """Whether all values have three digits at most, so that they imply nothing."""
    return all(math.isclose(value * 1000, round(value * 1000)) for value in values)


def _first_partial(series: Series, shape: BatchShape) -> int:
    """The step of the first reading in the window that covers a part of a group."""
    pairs = zip(series.steps(WINDOW), series.tail(WINDOW), strict=True)
    return next(step for step, value in pairs if covered(value, shape) is not None)
