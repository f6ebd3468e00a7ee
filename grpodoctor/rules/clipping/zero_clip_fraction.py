"""CLP002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting, cite
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import NotApplicable

_LOW = "clip/low_rate"
_HIGH = "clip/high_rate"
_UPDATES = "updates_per_batch"


@dataclass(frozen=True)
class ZeroClipFraction(Rule):
    """The clip fraction is zero, or missing, because it has to be.

    What it sees:
        One update on each batch with the learner's own log-probabilities as the old ones: the ratio
        is exactly 1 when the gradient is taken, so that nothing can be clipped.

    Why it matters:
        "The clip ratio is always 0" is asked in every tracker. Nothing is wrong: the clip is not in
        use, and its settings have no effect. This note exists so that nobody searches for a fault.

    Evidence it needs:
        `clip/low_rate` or `clip/high_rate`; with a zero rather than "not applicable" also
        `updates_per_batch`, as a metric or as a knob.

    Remedies:
        None. More updates on each batch would bring the clip into use, at the price of training
        further away from the policy that sampled.

    When it is wrong:
        A framework that counts updates in another unit than optimizer steps on a batch.

    References:
        TRL issues 3120 and 3144; verl issue 801.
    """

    code: ClassVar[str] = "CLP002"
    name: ClassVar[str] = "zero-clip-fraction"
    former_names: ClassVar[tuple[str, ...]] = ("clip-fraction-not-applicable",)
    summary: ClassVar[str] = "The clip fraction is zero because it has to be."
    inputs: ClassVar[tuple[Need, ...]] = ((_HIGH, _LOW),)
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/issues/3120",
        "github.com/volcengine/verl/issues/801",
    )
    judges_applicability: ClassVar[bool] = True

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a reading that says so, or for a zero that one update explains."""
        for name in (_HIGH, _LOW):
            reading = chart.readings.get(name)
            if isinstance(reading, NotApplicable):
                return Sighting("info", f"no clip fraction is expected: {reading.why}", ())
        if any(chart.series(name).last for name in (_HIGH, _LOW) if chart.is_fresh(name)):
            return None
        if self._updates(chart) != 1 or chart.knobs.get("old_logprobs") == "sampler":
            return None
        text = "the clip fraction of zero is expected: with one update per batch the ratio is 1"
        return Sighting("info", text, self._evidence(chart))

    def _updates(self, chart: Chart) -> object:
        value = chart.value(_UPDATES)
        return chart.knobs.get(_UPDATES) if value is None else value

    def _evidence(self, chart: Chart) -> tuple[Evidence, ...]:
        read = [name for name in (_HIGH, _LOW, _UPDATES) if chart.is_fresh(name)]
        return tuple(cite(chart, name) for name in read)
