"""What the engine keeps about one rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from grpodoctor.rules.base import SEVERITIES, Finding, Rule, RuleResult, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

EXPECTED: Condition = "expected"
"""The condition of sightings that explain a state that is no fault."""


class Seen(NamedTuple):
    """A sighting, as the next ones are compared with it."""

    step: int
    rank: int
    """Its severity, as an index of `SEVERITIES`."""
    is_expected: bool


@dataclass(slots=True)
class RuleState:
    """What the engine keeps about one rule."""

    rule: Rule
    needs: tuple[tuple[str, ...], ...]
    inputs: frozenset[str]
    """All input metrics; a step without any of them is not examined."""
    recent: deque[Seen]
    """The latest consecutive sightings, at most `persistence` of them."""
    examine: Callable[[Chart], RuleResult]
    cadence: int
    """The rule's own, like its method: the engine asks for both at every step."""
    stride: int
    """Examinations per due one in a long run while the rule sees nothing."""
    examined: bool = False
    why_inapplicable: str | None = None
    """Why the rule did not apply at its last examination."""
    onset: int = -1
    continues: bool = False
    """Whether the latest sightings continue the previous finding: the rule dates them into it, and
    no setting has changed since its end."""
    clear_count: int = 0
    """Consecutive examinations without a sighting."""
    milder_count: int = 0
    """Consecutive examinations without a sighting of the finding's severity."""
    severe_step: int = -1
    """Step of the latest sighting of the finding's severity."""
    finding: Finding | None = None
    """The active finding."""
    resolved_at: int = -1
    """Number of examinations when the last finding was resolved; -1 if there is none."""
    examinations: int = 0
    last_finding_end: int = -1
    """Last step of the previous finding."""
    due: int = 1
    """Steps with all inputs until the next examination."""
    clearance: int = 0
    is_idle: bool = False
    """Whether the latest examination saw nothing and left nothing to count: no finding is active,
    and nothing was seen shortly before. Most rules are idle at most steps."""

    def follow(self, sighting: Sighting, step: int) -> None:
        """Remember a sighting."""
        rank = SEVERITIES.index(sighting.severity)
        self.recent.append(Seen(step, rank, sighting.condition == EXPECTED))

    @property
    def is_persistent(self) -> bool:
        """Whether there are enough consecutive sightings for a finding."""
        return len(self.recent) == self.rule.persistence

    @property
    def is_note(self) -> bool:
        """Whether the active finding explains an expected state."""
        return self.finding is not None and self.finding.condition == EXPECTED

    @property
    def shows_fault(self) -> bool:
        """Whether there are enough consecutive sightings, none of them of an expected state."""
        return self.is_persistent and not any(seen.is_expected for seen in self.recent)


def initial_state(rule: Rule) -> RuleState:
    """The state of a rule before the first step."""
    needs = tuple((need,) if isinstance(need, str) else need for need in rule.inputs)
    inputs = frozenset(name for need in needs for name in need)
    recent = deque[Seen](maxlen=rule.persistence)
    stride = 2 if rule.judges_levels else 1
    return RuleState(
        rule, needs, inputs, recent, rule.examine, rule.cadence, stride, clearance=rule.clearance
    )
