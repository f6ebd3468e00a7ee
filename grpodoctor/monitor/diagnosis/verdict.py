"""The verdict on a run: one word, and one sentence with the cause, its cost and its remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.coverage import Coverage
from grpodoctor.monitor.diagnosis.missing_reward import NAME_ITS_KEY
from grpodoctor.monitor.diagnosis.problems import SETTINGS, Problem, is_alarm
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.rules.config.loss.group_of_one import GroupOfOne
from grpodoctor.rules.reward.reward_collapse import RewardCollapse
from grpodoctor.runs.reading.read_notes import MIN_READINGS
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.plain_names import in_plain_words

VerdictKind = Literal["healthy", "flat", "solved", "sick", "too short", "not examined"]
"""`flat` is a run without a fault whose reward did not rise: nothing shows that it is healthy."""

VERDICT_ORDER: tuple[VerdictKind, ...] = (
    "sick",
    "not examined",
    "too short",
    "flat",
    "solved",
    "healthy",
)
"""Worst first, for reports about several runs."""

_CONTRADICTS_SUCCESS: frozenset[Condition] = frozenset(
    {
        "reward-hacking",
        "held-out-loss",
        "wrong-reward",
        "wrong-log",
        "non-finite",
        "reward-loss",
        "environment-change",
    }
)
"""Conditions under which a high reward is no success."""

_WORTH_A_WORD: frozenset[Condition] = frozenset(
    {
        "wrong-reference", "useless-critic", "tool-failures", "wrong-advantages", "off-policy",
        "stale-weights", "engine-mismatch", "length-growth", "length-loss", "truncation",
        "zero-rewards", "wrong-old-logprobs",
    }
)  # fmt: skip
"""Conditions that a run may learn with and its owner may not know of. Success causes none of them,
unlike low entropy or a large distance to the reference."""

_UNSOLVED: frozenset[Condition] = frozenset({"zero-rewards"})

_WRONG_SETTINGS = frozenset({GroupOfOne.code})
"""Settings that are wrong although the outcome rises: a group of one response has no baseline."""

_LOST: tuple[Condition, ...] = ("reward-loss", "environment-change")
"""The conditions of an outcome that fell."""

_FALLS = frozenset({RewardCollapse.code})
"""Rules that report a lasting fall of the outcome."""

_FALL = re.compile(
    r"(?:^|, and | while )(?P<noun>reward|accuracy) fell from [^\s,;]+ to [^\s,;]+", re.IGNORECASE
)
"""The fall of an outcome in the summary of another fault."""

EARLIER = "earlier"
"""How the sentence begins that names what went wrong before the verdict's fault."""

_NOT_LOGGED = "not logged"
_SHORTEST = 0.1
"""GPU-hours from which they are named."""
_MOSTLY = 0.5
"""Share of rollouts without gradient from which it is part of the cost: healthy runs lose up to
a third of their groups."""


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What a verdict needs to know about a run besides its problems."""

    steps: int
    """Number of step records read."""
    readings: int
    """Readings of the reward or the accuracy."""
    coverage: Coverage
    progress: str = ""
    """How the reward moved, such as `reward 0.18 → 1.45`; empty if unknown."""
    noise: float | None = None
    """The noise of the rise in `progress`; None if that rise exceeds it or it is unknown."""
    fell: bool = False
    """Whether the reward in `progress` fell by more than its noise."""
    rose: bool = True
    """Whether the reward, the accuracy or a held-out measure rose by more than noise."""
    span: int | None = None
    """Steps from the first to the last that was read; None if they are as many as were read."""
    opening: float = 0.0
    """The last step whose conditions may have been there from the start."""
    slack: float = 0.0
    """Steps by which the onsets of two findings may be off."""
    no_rise: Finding | None = None
    """The note on a reward that has not risen, with what the log shows of the reason."""
    no_rise_action: str = ""
    """What to do first about it, in the imperative; may be empty."""
    why_not_judged: str = ""
    """Why the log is not judged, if the reader knows: it is no reinforcement learning."""
    unread_keys: str = ""
    """The keys of a log without a step, and what to do; empty if there are none."""
    missing_reward: str = NAME_ITS_KEY
    """What a log without a reward has instead, and what to pass."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a run."""

    kind: VerdictKind
    sentence: str
    """What is wrong and what to do first; the sentences after it state what led to it."""
    since: int | None = None
    """Onset of the finding that the sentence begins with."""
    cost: str = ""
    """What the run spent since then, such as `91 steps, 3.0 hours`."""
    code: str = ""
    """Code of the main problem's cause."""
    readings: int = 0
    """Readings of the reward."""
    readings_needed: int = MIN_READINGS

    @property
    def period(self) -> str:
        """Since when, such as `since step 40`; empty if the verdict has no onset."""
        return "" if self.since is None else f"since step {self.since}"

    @property
    def text(self) -> str:
        """Everything after the verdict's name."""
        cost = f" ({self.cost})" if self.cost else ""
        return f"{self.period}{cost}: {self.sentence}" if self.period else self.sentence

    @property
    def line(self) -> str:
        """The whole verdict on one line."""
        name = self.kind[:1].upper() + self.kind[1:]
        return f"{name} {self.text}" if self.period else f"{name}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """The `verdict` object of the report."""
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "code": self.code or None,
            "since_step": self.since,
            "readings": self.readings,
            "readings_needed": self.readings_needed,
        }


def verdict_of(problems: Sequence[Problem], evidence: RunEvidence, first_action: str) -> Verdict:
    """The verdict on a run.

    Args:
        problems: the problems, the most important first.
        evidence: how much of the run was read.
        first_action: what to do first about the first problem, in the imperative; may be empty.
    """
    solved = next((each for each in problems if _is_solved(each)), None)
    faults = [each for each in problems if any(map(is_alarm, each.findings))]
    faults = [each for each in faults if each is not solved]
    resolved = [each for each in faults if not _is_alarming(each)]
    faults = [each for each in faults if _is_alarming(each)]
    contradicting = [each for each in faults if _contradicts_success(each)]
    if evidence.why_not_judged:
        return Verdict("not examined", evidence.why_not_judged)
    if solved is not None and not contradicting:
        doubts = "" if faults else _doubts(problems, rose=True)
        return _solved(solved, faults, evidence, doubts, _lost_before(resolved))
    if faults:
        first_action = first_action if faults[0] is problems[0] else ""
        return _sick(faults, resolved, evidence, first_action)
    if not evidence.readings or not evidence.coverage.ran:
        return Verdict("not examined", _why_not_examined(evidence), readings=evidence.readings)
    if evidence.readings < MIN_READINGS:
        steps = f" (in {evidence.steps} steps)" if evidence.steps > 2 * evidence.readings else ""
        sentence = (
            f"{evidence.readings} of the {MIN_READINGS} reward readings that a verdict needs"
            f"{steps}; {_ran(evidence)} and {_found(resolved)} so far."
        )
        return Verdict("too short", sentence, readings=evidence.readings)
    examined = f"{_ran(evidence)} and {_found(resolved)}{_doubts(problems, rose=evidence.rose)}"
    if not evidence.rose:
        return _flat(examined, evidence)
    sentence = f"{'; '.join([*_progress(evidence), examined])}."
    return Verdict("healthy", sentence, readings=evidence.readings)


def _progress(evidence: RunEvidence) -> list[str]:
    """How the reward moved, and over how many steps; nothing if it is unknown."""
    span = evidence.steps if evidence.span is None else evidence.span
    return [f"{evidence.progress} over {span} steps"] if evidence.progress else []


def _flat(examined: str, evidence: RunEvidence) -> Verdict:
    """The verdict on a run without a fault and without a rise: what keeps it there, if known."""
    is_bound = evidence.noise is not None
    found = f"no rise beyond its noise of {evidence.noise:.2g}" if is_bound else "no lasting rise"
    if is_bound and evidence.fell:
        found = f"a fall beyond its noise of {evidence.noise:.2g}"
    parts = [f"{each}, {found}" for each in _progress(evidence)]
    code = ""
    if evidence.no_rise is not None:
        code = evidence.no_rise.code
        # The first clause is about the same rise and its noise.
        parts += _clause(evidence.no_rise.summary).split("; ")[1:]
    parts.append(examined)
    if evidence.no_rise_action:
        parts.append(f"first, {lower_first(evidence.no_rise_action)}")
    sentence = in_plain_words(f"{'; '.join(parts)}.")
    return Verdict("flat", sentence, code=code, readings=evidence.readings)


def _doubts(problems: Sequence[Problem], *, rose: bool) -> str:
    """The active note that questions the reward or the setup: the verdict must not deny it.

    Where nothing rose, the note on that names unsolved prompts already.
    """
    active = [problem for problem in problems if problem.cause.active]
    active = [problem for problem in active if rose or problem.condition not in _UNSOLVED]
    for conditions in (_CONTRADICTS_SUCCESS, _WORTH_A_WORD):
        for problem in active:
            if problem.condition in conditions and not _is_choice(problem):
                return f", but note {problem.cause.code}: {_clause(problem.cause.summary)}"
    return ""


def _is_choice(problem: Problem) -> bool:
    """Whether a setting of the advantages was chosen, and a rise of the outcome excuses it."""
    is_setting = problem.cause.code.startswith(SETTINGS)
    is_about_advantages = problem.condition == "wrong-advantages"
    return is_setting and is_about_advantages and problem.cause.code not in _WRONG_SETTINGS


def _is_alarming(problem: Problem) -> bool:
    """Whether a warning of the problem is active; a note may outlive its cause."""
    return any(finding.active and is_alarm(finding) for finding in problem.findings)


def _is_solved(problem: Problem) -> bool:
    """Whether the task is solved; a warning says that held-out prompts are not."""
    is_condition = problem.condition == "solved" and problem.cause.active
    return is_condition and not is_alarm(problem.cause)


def _contradicts_success(problem: Problem) -> bool:
    """Whether a problem shows that the high reward is not what the run was meant to achieve."""
    active = [finding for finding in problem.findings if finding.active]
    return any(finding.severity == "critical" for finding in active) or (
        problem.condition in _CONTRADICTS_SUCCESS and any(map(is_alarm, active))
    )


def _lost_before(resolved: Sequence[Problem]) -> list[str]:
    """The longest fall of the outcome that is over: the policy that solves the task came after it.

    A run may have been broken and learned again, which its last steps do not show.
    """
    falls = [
        (finding.last_step - finding.onset_step, finding, problem.cause)
        for problem in resolved
        for finding in problem.findings
        if is_alarm(finding) and finding.code in _FALLS
    ]
    if not falls:
        return []
    _, longest, cause = max(falls, key=lambda each: each[0])
    why = "" if cause is longest else f", caused by {cause.code} {cause.name}"
    return [f"resolved: {_past(longest, longest.last_step)}{why}"]


def _solved(
    problem: Problem,
    faults: Sequence[Problem],
    evidence: RunEvidence,
    doubts: str,
    past: Sequence[str],
) -> Verdict:
    is_doubtful = problem.cause.remedies[:1] == ("recheck-reward",)
    advice = (
        "check that wrong responses earn less" if is_doubtful else "stop and keep this checkpoint"
    )
    what = f"{_clause(problem.cause.summary)}{doubts}; {advice}"
    return Verdict(
        "solved",
        _sentences(what, [*_others(faults), *past]),
        since=problem.cause.onset_step,
        cost=_cost(problem.cost),
        code=problem.cause.code,
        readings=evidence.readings,
    )


def _sick(
    faults: Sequence[Problem],
    resolved: Sequence[Problem],
    evidence: RunEvidence,
    first_action: str,
) -> Verdict:
    """The verdict on a run with an active fault: what it is now, then what is over.

    The report lists the other faults right below.
    """
    problem = faults[0]
    present = problem.present
    what = _with_lost_outcome(_clause(present.summary), _lost_outcome(problem))
    if first_action:
        if _NOT_LOGGED in what:  # said already
            first_action = first_action.removesuffix(f" ({_NOT_LOGGED})")
        what = f"{what}; first, {lower_first(first_action)}"
    past = _past_cause(problem) or _earlier(problem, faults[1:], evidence)
    return Verdict(
        "sick",
        _sentences(what, [*past, *_notable_past(problem, resolved)]),
        since=problem.since,
        cost=_cost(problem.cost),
        code=problem.cause.code,
        readings=evidence.readings,
    )


def _sentences(first: str, further: Sequence[str]) -> str:
    """Sentences in plain words; the first one keeps its first letter, which may be a name's."""
    capitalized = (f"{part[:1].upper()}{part[1:]}" for part in further)
    return " ".join(in_plain_words(f"{part}.") for part in (first, *capitalized))


def _lost_outcome(problem: Problem) -> str:
    """The fall of the reward that an active fault explains: what the user notices of it."""
    for symptom in problem.symptoms:
        fallen = symptom.finding
        if symptom.path and symptom.path[-1] in _LOST and fallen.active and is_alarm(fallen):
            return "" if fallen is problem.present else lower_first(_clause(fallen.summary))
    return ""


def _with_lost_outcome(fault: str, fall: str) -> str:
    """A fault and the fall of the outcome; a fall of the same outcome is stated only once.

    The fall that a fault states is that of the time when it was seen last.
    """
    if not fall:
        return fault
    stated = _FALL.search(fault)
    if stated is None or stated["noun"].lower() != fall.split(maxsplit=1)[0]:
        return f"{fault}, and {fall}"
    if not stated.start():
        return fault
    return f"{fault[: stated.start()]}{fault[stated.end() :]}, and {fall}"


def lower_first(text: str) -> str:
    """A sentence as a part of another one; an acronym keeps its capitals."""
    return f"{text[:1].lower()}{text[1:]}" if text[1:2].islower() else text


def _past_cause(problem: Problem) -> list[str]:
    """The cause of a fault, if it is over."""
    if problem.present is not problem.cause:
        return [f"caused by {_past(problem.cause, problem.cause.last_step)}"]
    if problem.origin is not None:
        return [f"it followed {_past(problem.origin.finding, problem.origin.finding.last_step)}"]
    return []


def _earlier(problem: Problem, others: Sequence[Problem], evidence: RunEvidence) -> list[str]:
    """What went wrong before the onset that the verdict states.

    An alarm that has no known link to the verdict's fault may still have led to it. One that was
    there from the start is a state and no event, and says nothing about what came first.
    """
    latest = problem.since - evidence.slack
    same = [
        each
        for each in problem.findings
        if is_alarm(each) and each.code == problem.present.code and each.last_step < latest
    ]
    if same:
        first = min(same, key=lambda each: each.onset_step)
        return [f"{EARLIER}: the same {_steps(first.onset_step, first.last_step)}"]
    events = [
        each.cause
        for each in others
        if each.cause.active
        and is_alarm(each.cause)
        and not each.cause.code.startswith(SETTINGS)
        and evidence.opening < each.since < latest
    ]
    if not events:
        return []
    first = min(events, key=lambda each: (-SEVERITIES.index(each.severity), each.onset_step))
    return [f"{EARLIER}: {first.code} {first.name}, since step {first.onset_step}"]


def _notable_past(problem: Problem, resolved: Sequence[Problem]) -> list[str]:
    """The most severe resolved fault that was treated, or that lasted and was worse than this one.

    It is left out if it is named as the origin of the present one.
    """
    origin = problem.origin.finding if problem.origin else None
    rank = SEVERITIES.index(problem.severity)
    notable = [
        each
        for each in resolved
        if each.is_treated or (SEVERITIES.index(each.severity) > rank and _came_back(each))
    ]
    notable = [each for each in notable if each.cause is not origin]
    if not notable:
        return []
    worst = max(notable, key=lambda each: SEVERITIES.index(each.severity))
    return [f"resolved: {_past_problem(worst)}"]


def _came_back(problem: Problem) -> bool:
    """Whether the cause of a problem was an alarm more than once."""
    same = (each for each in problem.findings if each.code == problem.cause.code)
    return sum(map(is_alarm, same)) > 1


def _cost(cost: Cost) -> str:
    """What a problem cost since its onset, as a list."""
    steps = f"{cost.steps} steps" if cost.steps != 1 else "1 step"
    spent = ", ".join(filter(None, (steps, _time(cost))))
    share = cost.rollouts_without_gradient
    if share is None or share < _MOSTLY:
        return spent
    return f"{spent}, {share:.0%} of rollouts taught nothing as their group had equal rewards"


def _time(cost: Cost) -> str:
    """The time that it took; empty if it is unknown or below a minute."""
    if cost.gpu_hours is not None and cost.gpu_hours >= _SHORTEST:
        return f"{_number(cost.gpu_hours)} GPU-hours"
    if cost.hours is None or cost.hours * 60 < 1:
        return ""
    if cost.hours < 1:
        minutes = round(cost.hours * 60)
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{_number(cost.hours)} hours"


def _number(hours: float) -> str:
    return f"{hours:.1f}" if hours < 10 else f"{hours:.0f}"


def _others(problems: Sequence[Problem]) -> list[str]:
    """The other problems, by name."""
    if not problems:
        return []
    names = [f"{problem.cause.code} {problem.cause.name}" for problem in problems[:2]]
    more = f" and {len(problems) - 2} more" if len(problems) > 2 else ""
    return [f"also {', '.join(names)}{more}"]


def _found(resolved: Sequence[Problem]) -> str:
    """What the rules found in a run without an active fault."""
    if not resolved:
        return "found no fault"
    problem, *others = resolved
    what = ""
    if problem.cause.severity == "critical":
        what = f" ({lower_first(_clause(problem.cause.summary))})"
    more = f" and {len(others)} more" if others else ""
    return f"found no active fault; resolved: {_past_problem(problem)}{what}{more}"


def _past_problem(problem: Problem) -> str:
    """The cause of a resolved problem, with the steps from its onset to the last symptom."""
    last = max(finding.last_step for finding in problem.findings if is_alarm(finding))
    return _past(problem.cause, last)


def _past(finding: Finding, last: int) -> str:
    """A resolved finding with its steps."""
    return f"{finding.code} {finding.name} {_steps(finding.onset_step, last)}"


def _steps(first: int, last: int) -> str:
    return f"at step {first}" if first == last else f"at steps {first} to {last}"


def _clause(summary: str) -> str:
    """A summary as a part of a sentence."""
    return summary.rstrip(". ")


def _ran(evidence: RunEvidence) -> str:
    coverage = evidence.coverage
    failed = f" ({coverage.failed} failed)" if coverage.failed else ""
    return f"{coverage.ran} of {coverage.rules} rules ran{failed}"


def _why_not_examined(evidence: RunEvidence) -> str:
    if not evidence.steps:
        return f"no step was read{evidence.unread_keys}."
    if evidence.readings:
        return f"none of the {evidence.coverage.rules} rules could run."
    steps = "1 step" if evidence.steps == 1 else f"{evidence.steps} steps"
    return f"no reward was found in {steps}; {evidence.missing_reward}."
