"""What the engine keeps about one rule."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from grpodoctor.rules.base import Finding, Need, Rule, Sighting
from grpodoctor.vocabulary.conditions import Condition

EXPECTED: Condition = "expected"
"""The condition of sightings that explain a state that is no fault."""


@dataclass(slots=True)
class RuleState:
    """What the engine keeps about one rule."""

    rule: Rule
    needs: tuple[tuple[str, ...], ...]
    inputs: frozenset[str]
    """All input metrics; a step without any of them is not examined."""
    recent: deque[int]
    """Severity ranks of the latest consecutive sightings, at most `persistence` of them."""
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
    streak: int = 0
    """Latest consecutive sightings that are alike in whether they show an expected state."""
    streak_step: int = -1
    """The first of them."""
    streak_expected: bool = False
    is_note: bool = False
    """Whether the active finding has reported nothing but an expected state so far."""
    due: int = 1
    """Steps with all inputs until the next examination."""
    clearance: int = 0

    def follow(self, sighting: Sighting, step: int) -> None:
        """Count the consecutive sightings of an expected state, or of more than that."""
        is_expected = sighting.condition == EXPECTED
        if not self.recent or is_expected != self.streak_expected:
            self.streak, self.streak_step, self.streak_expected = 0, step, is_expected
        self.streak += 1

    @property
    def persists(self) -> bool:
        """Whether the latest streak is long enough for a finding."""
        return self.streak >= self.rule.persistence


def initial_state(rule: Rule) -> RuleState:
    """The state of a rule before the first step."""
    needs = tuple(alternatives(need) for need in rule.inputs)
    inputs = frozenset(name for need in needs for name in need)
    recent = deque[int](maxlen=rule.persistence)
    return RuleState(rule, needs, inputs, recent, clearance=rule.clearance)


def alternatives(need: Need) -> tuple[str, ...]:
    """The metrics of a need, any of which is enough."""
    return (need,) if isinstance(need, str) else need
