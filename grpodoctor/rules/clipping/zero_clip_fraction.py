"""CLP002."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting, cite
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import NotApplicable

_LOW = "clip/low_rate"
_HIGH = "clip/high_rate"
_UPDATES = "updates_per_batch"


class ZeroClipFraction(Rule):
    """The clip fraction is zero or not logged, and that is expected.

    What it sees:
        One update per batch, with the learner's own log-probabilities as the old ones. The
        importance ratio is then exactly 1 when the gradient is computed, and nothing can be
        clipped.

    Why it matters:
        "The clip ratio is always 0" is a frequent question in issue trackers. Nothing is wrong: the
        clip is not in use, and its settings have no effect.

    Evidence it needs:
        `clip/low_rate` or `clip/high_rate`. If the logged value is 0 instead of "not applicable",
        also `updates_per_batch`, as a metric or a setting.

    Remedies:
        None. More updates per batch would bring the clip into use, but they also move the policy
        further from the one that sampled the batch.

    When it is wrong:
        The framework does not count updates as optimizer steps per batch.

    References:
        TRL issues 3120 and 3144; verl issue 801.
    """

    code: ClassVar[str] = "CLP002"
    name: ClassVar[str] = "zero-clip-fraction"
    condition: ClassVar[Condition] = "expected"
    former_names: ClassVar[tuple[str, ...]] = ("clip-fraction-not-applicable",)
    summary: ClassVar[str] = "The clip fraction is zero, and that is expected."
    inputs: ClassVar[tuple[Need, ...]] = ((_HIGH, _LOW),)
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/3120",
        "github.com/verl-project/verl/issues/801",
    )
    handles_not_applicable: ClassVar[bool] = True

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a reading that is not applicable, or for a zero that one update explains."""
        is_zero, readings = True, chart.readings
        for name in (_HIGH, _LOW):
            reading = readings.get(name)
            if isinstance(reading, NotApplicable):
                return Sighting("info", f"No clipping is expected: {reading.why}.", ())
            if chart.is_fresh(name) and chart.series(name).last:
                is_zero = False
        if not is_zero:
            return None  # the usual case
        if self._updates(chart) != 1 or chart.knobs.get("old_logprobs") == "sampler":
            return None
        text = (
            "A clip fraction of 0 is expected: with 1 update per batch, the importance ratio is 1."
        )
        return Sighting("info", text, self._evidence(chart))

    def _updates(self, chart: Chart) -> object:
        value = chart.value(_UPDATES)
        return chart.knobs.get(_UPDATES) if value is None else value

    def _evidence(self, chart: Chart) -> tuple[Evidence, ...]:
        return tuple(cite(chart, name) for name in (_HIGH, _LOW, _UPDATES) if chart.is_fresh(name))
