"""Whether two findings allow what the causal table says about their conditions.

The table knows which condition can cause which. Some of its links hold only if the numbers or the
steps of the two findings fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from grpodoctor.monitor.diagnosis.causal_table import LEVEL, mechanism
from grpodoctor.rules.base import Finding
from grpodoctor.rules.shared.health.run_health import COLLAPSE_LOSS
from grpodoctor.vocabulary.conditions import Condition

_LOOPS: frozenset[Condition] = frozenset({"length-growth", "repetition"})
_CHANGED: frozenset[Condition] = _LOOPS | {
    "reference-drift", "large-kl", "entropy-rise", "length-loss"
}  # fmt: skip

_OWN_DOING: Mapping[Condition, frozenset[Condition]] = {
    "tool-failures": _CHANGED,
    "invalid-actions": _CHANGED,
    "lost-rollouts": _LOOPS,
}
"""Failures that lower the reward from outside the policy, with the conditions of a policy that
causes them itself: one that changed loses the format of its calls and actions, and responses that
do not end run into a timeout."""

_MIN_CLIMB = COLLAPSE_LOSS / 2
"""Rise of a share of failures that explains half of the smallest loss that REW002 reports."""

_BEFORE_FALL = 10
"""Logged steps before the onset of a fall at which the share of failures must still be low."""

SPIKE_SLACK = 2
"""Logged steps by which a spike may be dated after its effect. A spike is dated to the step; the
running median of five readings that dates its effect is off by up to two."""

_SAME_COLLAPSE: tuple[Condition, Condition] = ("entropy-loss", "length-loss")
"""A link whose cause is dated as exactly: a reward for short responses lowers the entropy as well,
and shortens the responses first."""

_ONE_FALL: tuple[Condition, Condition] = ("reward-loss", "held-out-loss")
"""A lost reward that explains a lost held-out score must be shown: where it is not lost, the policy
optimizes the wrong reward."""

_LIMITS: frozenset[Condition] = frozenset({"truncation", "no-end-token"})
"""Conditions that cost reward as long as they last: one that lasted long before a fall, and did not
grow, does not explain it."""

_LONG_BEFORE = 3 * _BEFORE_FALL
"""Logged steps before a fall at which such a condition had its level already: three levels of ten
readings, because each of the two onsets may be off by one level."""

_LEAST_GROWTH = 0.05
"""Growth of a share or a length that counts, as a part of the later level: truncated shares that
lie near 1 can hardly grow, and change by less from batch to batch."""

_PART_OF_FALL = 0.5
"""Part of a fall that truncation must be able to explain: training on truncated responses may lower
the others' rewards as well."""

_WHOLE_FALL = 0.9
"""Part of a fall that is over within ten readings if it did not come step by step."""

_MEASURED_UPDATES = ("optimizer/", "kl/")
"""Beginnings of the metrics that measure updates: a policy that did not move for lack of updates
has no other explanation than a missing gradient."""


_COMPONENTS = "reward/component/"
_TRUNCATED = "length/truncated_rate"
_OUTCOMES = ("accuracy/train", "reward/mean")

_SHORT_LIMIT = 128
"""Tokens of a limit at which responses are cut before they answer. Two public runs had limits of 40
and of 128 tokens, reached by every response, and entropies of 2.6 and 3.5 nats."""
_NEARLY_ALL_CUT = 0.98
"""Truncated share from which practically all responses are cut."""

_ENDED = 0.25
"""Share of responses that end from which truncation is no reason for a reward that is always 0: the
ended responses earn nothing either. In a public run 55 % were cut and no response earned anything;
in a later one of the same repository 60 % were cut, and the first reading had a reward."""


class Circumstances(NamedTuple):
    """What else is known about the run."""

    alarms: Collection[tuple[Condition, Finding]]
    """All alarms of the run, each with its condition."""
    level_before: Callable[[str, int], float | None]
    """The level of a metric before a step; None if the chart does not reach back to it."""
    stride: float = 1.0
    """Steps from one row of the log to the next."""


def is_plausible(
    cause: Finding, effect: Finding, path: tuple[Condition, ...], circumstances: Circumstances
) -> bool:
    """Whether the evidence of two findings fits a path of the causal table.

    Args:
        cause: the finding at the beginning of the path.
        effect: the finding at its end.
        path: the conditions from cause to effect, both included.
        circumstances: what else is known about the run.
    """
    if _lacks_link(cause, path):
        return False
    if path[0] == "entropy-rise" and path[-1] == "truncation" and _is_cut_short(effect):
        return cause.onset_step < effect.onset_step
    if path[0] == "entropy-loss" and path[-1] == "equal-rewards" and _is_one_reward(effect):
        # A certain policy gives different responses to different prompts, unless it collapsed.
        return _varied_before(effect) and cause.onset_step < effect.onset_step
    if path[:2] == ("truncation", "zero-rewards") and _has_ended_responses(cause):
        return False
    if path[0] == "gradient-spike" or path[-2:] == _SAME_COLLAPSE:
        return cause.onset_step <= effect.onset_step + SPIKE_SLACK * circumstances.stride
    if path[0] in _OWN_DOING and path[-1] == "reward-loss":
        is_own_doing = any(
            condition in _OWN_DOING[path[0]] and finding.onset_step <= effect.onset_step
            for condition, finding in circumstances.alarms
        )
        return not is_own_doing and _climb(cause, effect, circumstances) >= _MIN_CLIMB
    if path[0] in _LIMITS and path[-1] == "reward-loss":
        return _may_cost(cause, effect, circumstances)
    if mechanism(path) == LEVEL:
        return not _is_measured(effect)
    if path[0] == "undersized-updates":
        return _is_measured(cause) or not any(
            mechanism((condition, path[0])) for condition, _ in circumstances.alarms
        )
    return "undersized-updates" not in path[1:-1]


def _lacks_link(cause: Finding, path: tuple[Condition, ...]) -> bool:
    """Whether a path leads over a condition that the run does not have."""
    if path[0] == "constant-reward" and _is_component(cause):
        return True  # the total still varies
    return path[-2:] == _ONE_FALL and len(path) > len(_ONE_FALL)


def _is_cut_short(finding: Finding) -> bool:
    """Whether practically all responses are cut at a limit that hardly any answer fits in.

    The first tokens of a response have the highest entropy, so a high one says little there.
    """
    medians = {each.metric: each.median for each in finding.evidence}
    length, share = medians.get("length/mean"), medians.get("length/truncated_rate")
    return (
        length is not None
        and length <= _SHORT_LIMIT
        and share is not None
        and share >= _NEARLY_ALL_CUT
    )


def _is_one_reward(finding: Finding) -> bool:
    """Whether all responses of a batch earn the same, and not only those to one prompt."""
    medians = {each.metric: each.median for each in finding.evidence}
    highest, lowest = medians.get("reward/max"), medians.get("reward/min")
    return highest is not None and highest == lowest


def _varied_before(finding: Finding) -> bool:
    """Whether the rewards of a batch differed at the start of the run."""
    starts = {each.metric: each.baseline for each in finding.evidence}
    highest, lowest = starts.get("reward/max"), starts.get("reward/min")
    return highest is not None and lowest is not None and highest > lowest


def _has_ended_responses(truncation: Finding) -> bool:
    """Whether enough responses end to show that these earn nothing either."""
    shares = [each for each in truncation.evidence if each.metric == "length/truncated_rate"]
    return any(each.median is not None and each.median <= 1 - _ENDED for each in shares)


def _is_component(finding: Finding) -> bool:
    """Whether a note is about a component of the reward that is never earned."""
    metrics = [each.metric for each in finding.evidence]
    are_components = bool(metrics) and all(name.startswith(_COMPONENTS) for name in metrics)
    return finding.severity == "info" and are_components


def _is_measured(finding: Finding) -> bool:
    """Whether a finding of small updates rests on the updates and not on level responses."""
    return bool(finding.evidence) and finding.evidence[0].metric.startswith(_MEASURED_UPDATES)


def _grew(cause: Finding, effect: Finding, circumstances: Circumstances) -> bool:
    """Whether what a finding measures grew with the fall that it may explain, or is unknown."""
    return not _climb(cause, effect, circumstances) < _LEAST_GROWTH * abs(_latest(cause))


def _may_cost(cause: Finding, effect: Finding, circumstances: Circumstances) -> bool:
    """Whether a limit on length began to cost reward with a fall, and as much as that."""
    if _costs_less(cause, effect, circumstances) or _grew_later(cause, effect, circumstances):
        return False
    since = _began(effect, circumstances) - cause.onset_step
    return since < _LONG_BEFORE * circumstances.stride or _grew(cause, effect, circumstances)


def _costs_less(cause: Finding, effect: Finding, circumstances: Circumstances) -> bool:
    """Whether a share of truncated responses that grew cannot have lowered a reward so far.

    A response loses at most 1 of a reward in [0, 1] if it is truncated, so the mean falls by no
    more than their share rises. A share that is high from the start acts through the updates.
    """
    if not effect.evidence or not cause.evidence or cause.evidence[0].metric != _TRUNCATED:
        return False
    best, now = effect.evidence[0].baseline, _latest(effect)
    if effect.evidence[0].metric not in _OUTCOMES or best is None or not 0 <= now <= best <= 1:
        return False
    share = circumstances.level_before(_TRUNCATED, effect.last_step)
    fell_back = 0.0 if share is None else max(_latest(cause) - share, 0.0)
    climb = _climb(cause, effect, circumstances)
    has_grown = climb >= _LEAST_GROWTH * _latest(cause)
    return has_grown and climb - fell_back < _PART_OF_FALL * (best - now)


def _grew_later(cause: Finding, effect: Finding, circumstances: Circumstances) -> bool:
    """Whether a fall was over before the share of truncated responses began to grow much.

    The readings around the first step of the fall tell, whatever the scale of the reward.
    """
    if not effect.evidence or not cause.evidence or cause.evidence[0].metric != _TRUNCATED:
        return False
    outcome, best = effect.evidence[0].metric, effect.evidence[0].baseline
    later = _began(effect, circumstances) + round(_BEFORE_FALL * circumstances.stride)
    level = circumstances.level_before(outcome, later)
    share = circumstances.level_before(_TRUNCATED, later)
    climb = _climb(cause, effect, circumstances)
    if best is None or level is None or share is None or not climb >= _LEAST_GROWTH:
        return False
    is_over = best - level >= _WHOLE_FALL * (best - _latest(effect)) > 0
    return is_over and _latest(cause) - share > (1 - _PART_OF_FALL) * climb


def _climb(cause: Finding, effect: Finding, circumstances: Circumstances) -> float:
    """How far a finding's first metric rose with the fall that it may explain; NaN: unknown."""
    if not cause.evidence:
        return math.nan
    share = cause.evidence[0]
    step = _began(effect, circumstances) - round(_BEFORE_FALL * circumstances.stride)
    before = circumstances.level_before(share.metric, step)
    before = share.baseline if before is None else before
    return math.nan if before is None else _latest(cause) - before


def _latest(finding: Finding) -> float:
    """The latest level of a finding's first metric; NaN if it has none."""
    if not finding.evidence:
        return math.nan
    first = finding.evidence[0]
    return first.value if first.median is None else first.median


def _began(effect: Finding, circumstances: Circumstances) -> int:
    alarms = (finding for _, finding in circumstances.alarms)
    return condition_began(effect, alarms, circumstances.stride)


def problem_began(present: Finding, findings: Iterable[Finding], stride: float) -> int:
    """The step from which the alarms of one problem have lasted without a pause.

    A cause may come and go while what it did to the policy stays: a problem began with the first
    alarm of its cause, if others of its alarms fill the pauses.

    Args:
        present: the finding that describes the run now.
        findings: all alarms of the problem.
        stride: steps from one row of the log to the next.
    """
    slack, alarms = SPIKE_SLACK * stride, list(findings)
    began = condition_began(present, alarms, stride)
    for each in sorted(alarms, key=lambda one: -one.onset_step):
        is_earlier = each.code == present.code and each.onset_step < began
        if is_earlier and _fill(each.last_step + slack, began - slack, alarms):
            began = each.onset_step
    return began


def _fill(begin: float, end: float, alarms: Iterable[Finding]) -> bool:
    """Whether alarms that overlap lead from one step to another."""
    reached = begin
    for each in sorted(alarms, key=lambda one: one.onset_step):
        if each.onset_step <= reached:
            reached = max(reached, each.last_step)
    return reached >= end


def condition_began(finding: Finding, findings: Iterable[Finding], stride: float) -> int:
    """The onset of a finding, or of the earlier ones with the same code that it follows at once.

    A condition whose severity changed is one: a fall, when the held-out evaluation turned out to
    rise, or truncated responses that become fewer.
    """
    began = finding.onset_step
    earlier = [each for each in findings if each.code == finding.code]
    for each in sorted(earlier, key=lambda one: -one.onset_step):
        if each.onset_step < began <= each.last_step + SPIKE_SLACK * stride:
            began = each.onset_step
    return began
