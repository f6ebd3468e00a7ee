"""INS003."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Max

_FAILED = "instruments/failed_parts"
_LONGEST_NAME = 40


class FailedInstrument(Rule):
    """A part of a live hook failed, so its readings are missing from then on.

    What it sees:
        The number of parts of the live hook that raised an exception. Each of them is switched off
        at its first exception. The journal (`events.jsonl`) has a `warning` with the reason.

    Why it matters:
        The training is not affected, but the values of that part are missing. Rules that need them
        are skipped from that step on, so their silence does not mean that nothing is wrong.

    Evidence it needs:
        `instruments/failed_parts`, which live hooks record.

    Remedies:
        The training needs no change. Compare the framework's version with the versions that the
        hook was verified on, and report the reason from the journal.

    When it is wrong:
        Never, but it is no statement about the training.

    References:
        docs/hooks.md, which describes the boundary between a training and its instruments.
    """

    code: ClassVar[str] = "INS003"
    name: ClassVar[str] = "failed-instrument"
    condition: ClassVar[Condition] = "other"
    summary: ClassVar[str] = "A part of the live hook failed and records nothing."
    inputs: ClassVar[tuple[Need, ...]] = (_FAILED,)
    references: ClassVar[tuple[str, ...]] = ("docs/hooks.md",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1

    def examine(self, chart: Chart) -> RuleResult:
        """Report the number of failed parts, and the last one."""
        count = chart.value(_FAILED)
        if count is None or not count >= 1:
            return None
        reading = chart.reading(_FAILED)
        last = (reading.where or "") if isinstance(reading, Max) else ""
        part = last.partition(":")[0][:_LONGEST_NAME]
        number = f"{count:.0f} part{'' if count == 1 else 's'} of the live hook failed"
        text = f"{number}, last {part!r}; their readings are missing." if part else f"{number}."
        return Sighting("info", text, (cite(chart, _FAILED),))
