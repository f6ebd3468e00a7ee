"""REW004."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.run_health import is_solved, never_moved
from grpodoctor.runs.chart import Chart

_REWARD = "reward/mean"
_PREFIX, _SUFFIX = "reward/component/", "/mean"
_MOST_NAMED = 4


@dataclass(frozen=True)
class ConstantReward(Rule):
    """The reward has the same value at every step, or a component of it was never earned.

    What it sees:
        A mean that stands where it stood when the run began, in every reading of the window. The
        total reward is a warning, unless accuracy says that all is solved: no response was ever
        told from another. A single component at zero or below is a note: its share of the nominal
        reward is out of reach. It is a warning where all that was ever earned is for the form of
        the answer, as the components' names have it: then the task itself was never rewarded.

    Why it matters:
        Not one response among hundreds earned a reward, or none failed to: a parser that looks for
        another format is far likelier than a policy without a single success. Unlike too hard
        prompts (GRP002) this is judged on the reward itself and needs no groups.

    Evidence it needs:
        `reward/mean`, better with `reward/component/<name>/mean`.

    Remedies:
        Run the reward function on a known right answer in the format that the prompt asks for.

    When it is wrong:
        A rare success may simply not have happened yet in small batches. A component at zero may be
        a penalty that no response has incurred, which is well; those that say so by their name are
        left out. A component above zero is left out,
        since all responses earning it is mostly what it was meant for (a format that the policy
        knows from the start); so the rule does not see a part of the reward that is given away.

    References:
        open-r1 issues 293, 215 and 557 for parsers that reject right answers.
    """

    code: ClassVar[str] = "REW004"
    name: ClassVar[str] = "constant-reward"
    summary: ClassVar[str] = "The reward has never moved, or a component of it was never earned."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward",)
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/open-r1/issues/293",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1
    cadence: ClassVar[int] = 10

    readings: int = 20
    """Readings without a move. With 128 responses a step, a success in a thousand would have shown
    itself with a chance of 92 %."""
    penalties: tuple[str, ...] = ("overlong", "penalt", "punish")
    """Parts of the names of components that are zero in health."""
    forms: tuple[str, ...] = (
        "format",
        "xml",
        "tag",
        "think",
        "structure",
        "length",
        "lang",
        "repet",
    )
    """Parts of the names of components that any answer can earn, right or wrong. In a run of
    strangers the format was earned now and then and the equation in none of 39 batches."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for means that never left their first value."""
        if len(chart.series(_REWARD)) < self.readings:
            return None
        if self._never_moved(chart, _REWARD):
            return self._total(chart, chart.series(_REWARD).last)
        stuck = [name for name in self._components(chart) if self._was_never_earned(chart, name)]
        if not stuck:
            return None
        each = ", ".join(
            f"{name.removeprefix(_PREFIX).removesuffix(_SUFFIX)} ({chart.series(name).last:g})"
            for name in stuck[:_MOST_NAMED]
        )
        text = f"reward components that no response has ever earned: {each}"
        evidence = tuple(cite(chart, name) for name in stuck[:_MOST_NAMED])
        if self._only_form_is_earned(chart, stuck):
            text = f"{text}; what is earned is for form, the task was never rewarded"
            evidence = (cite(chart, _REWARD), *evidence)
            return Sighting("warning", text, evidence, since=self._first(chart, stuck[0]))
        return Sighting("info", text, evidence, since=self._first(chart, stuck[0]))

    def _first(self, chart: Chart, name: str) -> Callable[[], int]:
        """The first reading in the window: none of them ever differed."""
        return lambda: next(iter(chart.series(name)))[0]

    def _only_form_is_earned(self, chart: Chart, stuck: list[str]) -> bool:
        earned = [name for name in self._components(chart) if name not in stuck]
        return any(not self._is_form(name) for name in stuck) and all(map(self._is_form, earned))

    def _is_form(self, name: str) -> bool:
        component = name.removeprefix(_PREFIX).lower()
        return any(part in component for part in (*self.forms, *self.penalties))

    def _total(self, chart: Chart, level: float) -> Sighting:
        count = len(chart.series(_REWARD))
        text = (
            f"the mean reward was exactly {level:g} at the start and in the last {count} readings"
        )
        severity: Severity = "info" if is_solved(chart) else "warning"
        return Sighting(severity, text, (cite(chart, _REWARD),), since=self._first(chart, _REWARD))

    def _components(self, chart: Chart) -> list[str]:
        found = (name for name in chart.readings if name.startswith(_PREFIX))
        return sorted(name for name in found if name.endswith(_SUFFIX) and chart.is_fresh(name))

    def _was_never_earned(self, chart: Chart, name: str) -> bool:
        if chart.series(name).last > 0 or any(part in name for part in self.penalties):
            return False
        return self._never_moved(chart, name)

    def _never_moved(self, chart: Chart, name: str) -> bool:
        series = chart.series(name)
        return len(series) >= self.readings and never_moved(series)
