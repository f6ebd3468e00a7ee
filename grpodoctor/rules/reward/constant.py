"""REW004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, Sighting, Verdict, cite
from grpodoctor.rules.outcome import is_solved
from grpodoctor.runs.chart import WINDOW, Chart

_REWARD = "reward/mean"
_PREFIX, _SUFFIX = "reward/component/", "/mean"
_MOST_NAMED = 4


@dataclass(frozen=True)
class ConstantReward(Rule):
    """The reward, or a component of it, has the same value at every step.

    What it sees:
        A mean that stands where it stood when the run began, in every reading of the window. The
        total reward at zero is a warning: no
        response was ever rewarded. A single component is a note: its share of the nominal reward is
        out of reach, or given away.

    Why it matters:
        Not one response among hundreds earned a reward, or none failed to: a parser that looks for
        another format is far likelier than a policy without a single success. Unlike too hard
        prompts (GRP002) this is judged on the reward itself and needs no groups.

    Evidence it needs:
        `reward/mean`, better with `reward/component/<name>/mean`.

    Remedies:
        Run the reward function on a known right answer in the format that the prompt asks for.

    When it is wrong:
        A rare success may simply not have happened yet in small batches. A component that is meant
        as a constant offset is one.

    References:
        open-r1 issues 293, 215 and 557 for parsers that reject right answers.
    """

    code: ClassVar[str] = "REW004"
    name: ClassVar[str] = "constant-reward"
    summary: ClassVar[str] = "The reward or a component of it has never moved."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/293",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1
    cadence: ClassVar[int] = 10

    readings: int = 20
    """Readings without a move. With 128 responses a step, a success in a thousand would have shown
    itself with a chance of 92 %."""

    def examine(self, chart: Chart) -> Verdict:
        """Look for means that never left their first value."""
        if len(chart.series(_REWARD)) < self.readings:
            return None
        if self._never_moved(chart, _REWARD):
            return self._total(chart, chart.series(_REWARD).last)
        stuck = [name for name in self._components(chart) if self._never_moved(chart, name)]
        if not stuck:
            return None
        each = ", ".join(
            f"{name.removeprefix(_PREFIX).removesuffix(_SUFFIX)} ({chart.series(name).last:g})"
            for name in stuck[:_MOST_NAMED]
        )
        text = f"reward components that do not move: {each}"
        return Sighting("info", text, tuple(cite(chart, name) for name in stuck[:_MOST_NAMED]))

    def _total(self, chart: Chart, level: float) -> Sighting:
        count = len(chart.series(_REWARD))
        text = f"the reward was exactly {level:g} at the start and in the last {count} readings"
        severe = level == 0 and not is_solved(chart)
        return Sighting("warning" if severe else "info", text, (cite(chart, _REWARD),))

    def _components(self, chart: Chart) -> list[str]:
        found = (name for name in chart.readings if name.startswith(_PREFIX))
        return sorted(name for name in found if name.endswith(_SUFFIX) and chart.is_fresh(name))

    def _never_moved(self, chart: Chart, name: str) -> bool:
        series = chart.series(name)
        start, highest, lowest = series.baseline, series.highest, series.lowest
        if start is None or len(series) < self.readings or start.spread:
            return False
        if highest is None or lowest is None or not (highest.level == lowest.level == series.last):
            return False
        return len(set(series.tail(WINDOW))) == 1
