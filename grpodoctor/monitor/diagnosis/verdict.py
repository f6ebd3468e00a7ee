"""The verdict on a run: one word, and one sentence with the cause, its cost and its remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.monitor.diagnosis.costs import cost_in_words, with_waste
from grpodoctor.monitor.diagnosis.coverage import Coverage
from grpodoctor.monitor.diagnosis.missing_reward import NAME_ITS_KEY
from grpodoctor.monitor.diagnosis.past_faults import (
    earlier,
    lost_before,
    notable_past,
    past_cause,
    past_problem,
)
from grpodoctor.monitor.diagnosis.problems import SETTINGS, Problem, is_alarm
from grpodoctor.rules.base import Finding
from grpodoctor.rules.config.loss.group_of_one import GroupOfOne
from grpodoctor.rules.reward.no_rise import NoRise
from grpodoctor.runs.reading.read_notes import MIN_READINGS
from grpodoctor.support.numbers import count_of
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
        "zero-rewards", "wrong-old-logprobs", "oversized-updates", "large-kl",
    }
)  # fmt: skip
"""Conditions that a run may learn with and its owner may not know of. Success causes none of them,
unlike low entropy or a large distance to the reference."""

_EXPLAINS_CONSTANT: tuple[Condition, ...] = (
    "wrong-reward",
    "zero-rewards",
    "constant-reward",
    "equal-rewards",
    "zero-gradient",
    "truncation",
)
"""What a reward without any variation may come from or lead to; the first one is stated."""

_UNSOLVED: frozenset[Condition] = frozenset({"zero-rewards"})

_WRONG_SETTINGS = frozenset({GroupOfOne.code})
"""Settings that are wrong although the outcome rises: a group of one response has no baseline."""

_LOST: tuple[Condition, ...] = ("reward-loss", "environment-change")
"""The conditions of an outcome that fell."""

_FALL = re.compile(
    r"(?:^|, and | while )(?P<noun>reward|accuracy) fell from [^\s,;]+ to [^\s,;]+", re.IGNORECASE
)
"""The fall of an outcome in the summary of another fault."""

_MOVED = re.compile(r"\b(?:reward|accuracy) (?:fell|went|rose) from ", re.IGNORECASE)
"""How summaries state a movement of an outcome."""

_NOT_LOGGED = "not logged"


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
    fall: str = ""
    """From where to where the reward in `progress` fell; empty if within its noise."""
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
    constant: str = ""
    """That the reward or the accuracy has the same value in all readings; empty if it has not."""
    crash: str = ""
    """The error with which the log ends, without a full stop; empty if there is none."""


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
    alarms = [each for each in problems if any(map(is_alarm, each.findings))]
    resolved = [each for each in alarms if each is not solved and not _is_alarming(each)]
    faults = faults_of(problems)
    contradicting = [each for each in faults if _contradicts_success(each)]
    if evidence.why_not_judged:
        return Verdict("not examined", evidence.why_not_judged)
    if solved is not None and not contradicting:
        doubt = "" if faults else _doubt(problems, rose=True)
        return _solved(solved, faults, evidence, doubt, lost_before(resolved))
    if faults:
        first_action = first_action if faults[0] is problems[0] else ""
        return _sick(faults, resolved, evidence, first_action)
    if not evidence.readings or not evidence.coverage.ran:
        return Verdict("not examined", _why_not_examined(evidence), readings=evidence.readings)
    if evidence.readings < MIN_READINGS:
        return _too_short(problems, resolved, evidence)
    examined = f"{_ran(evidence)} and {_found(resolved)}"
    doubt = _doubt(problems, rose=evidence.rose)
    if not evidence.rose:
        return _flat(examined, doubt, evidence)
    sentence = f"{'; '.join([*_progress(evidence), examined])}{_but(doubt)}."
    return Verdict("healthy", sentence, readings=evidence.readings)


def faults_of(problems: Sequence[Problem]) -> list[Problem]:
    """The problems with an active warning, without the note that the task is solved."""
    solved = next((each for each in problems if _is_solved(each)), None)
    return [each for each in problems if each is not solved and _is_alarming(each)]


def _progress(evidence: RunEvidence) -> list[str]:
    """How the reward moved, and over how many steps; nothing if it is unknown."""
    span = evidence.steps if evidence.span is None else evidence.span
    return [f"{evidence.progress} over {span} steps"] if evidence.progress else []


def _too_short(
    problems: Sequence[Problem], resolved: Sequence[Problem], evidence: RunEvidence
) -> Verdict:
    """The verdict on a run with few readings: what they have shown so far.

    A reward without any variation is stated with the note that explains it.
    """
    steps = f" (in {evidence.steps} steps)" if evidence.steps > 2 * evidence.readings else ""
    constant = f"; {evidence.constant}" if evidence.constant else ""
    note = _explanation(problems) if evidence.constant else ""
    sentence = (
        f"{evidence.readings} of the {MIN_READINGS} reward readings that a verdict needs"
        f"{steps}{constant}; {_ran(evidence)} and {_found(resolved)} so far{_but(note)}."
    )
    return Verdict("too short", in_plain_words(sentence), readings=evidence.readings)


def _flat(examined: str, doubt: str, evidence: RunEvidence) -> Verdict:
    """The verdict on a run without a fault and without a rise: what keeps it there, if known."""
    is_bound = evidence.noise is not None
    found = f"no rise beyond its noise of {evidence.noise:.2g}" if is_bound else "no lasting rise"
    if is_bound and evidence.fall:
        found = f"a fall beyond its noise of {evidence.noise:.2g}"
    parts = [f"{each}, {found}" for each in _progress(evidence)]
    code = ""
    if evidence.no_rise is not None:
        code = evidence.no_rise.code
        # The first clause is about the same rise and its noise.
        parts += _clause(evidence.no_rise.summary).split("; ")[1:]
    parts.append(examined)
    remark = _but(doubt)
    if evidence.no_rise_action:  # before the note, which it does not concern
        parts.append(f"first, {lower_first(evidence.no_rise_action)}")
        remark = f". Note {doubt}" if doubt else ""
    sentence = in_plain_words(f"{'; '.join(parts)}{remark}.")
    return Verdict("flat", sentence, code=code, readings=evidence.readings)


def _doubt(problems: Sequence[Problem], *, rose: bool) -> str:
    """The active note that questions the reward or the setup: the verdict must not deny it.

    A note may outlast the alarm that explains it.

    Where nothing rose, the note on that names unsolved prompts already.
    """
    notes = [
        (each.condition, each.cause)
        for each in problems
        if each.cause.active and not _is_choice(each)
    ]
    notes += [
        (symptom.path[-1], symptom.finding)
        for each in problems
        if not each.cause.active
        for symptom in each.symptoms
        if symptom.path and symptom.finding.active
    ]
    for conditions in (_CONTRADICTS_SUCCESS, _WORTH_A_WORD):
        for condition, note in notes:
            if condition in conditions and (rose or condition not in _UNSOLVED):
                return f"{note.code}: {_clause(note.summary)}"
    return ""


def _explanation(problems: Sequence[Problem]) -> str:
    """The active note that explains a reward without any variation; empty if there is none."""
    notes = [
        (condition, finding)
        for problem in problems
        for condition, finding in (
            (problem.condition, problem.cause),
            *((each.path[-1], each.finding) for each in problem.symptoms if each.path),
        )
        if finding.active
    ]
    for wanted in _EXPLAINS_CONSTANT:
        for condition, note in notes:
            if condition == wanted:
                return f"{note.code}: {_clause(note.summary)}"
    return ""


def _but(doubt: str) -> str:
    return f", but note {doubt}" if doubt else ""


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


def _solved(
    problem: Problem,
    faults: Sequence[Problem],
    evidence: RunEvidence,
    doubt: str,
    past: Sequence[str],
) -> Verdict:
    is_doubtful = problem.cause.remedies[:1] == ("recheck-reward",)
    advice = (
        "check that wrong responses earn less" if is_doubtful else "stop and keep this checkpoint"
    )
    what = with_waste(f"{_clause(problem.cause.summary)}{_but(doubt)}", problem.cost)
    what = f"{what}; {advice}"
    return Verdict(
        "solved",
        _sentences(what, [*_others(faults), *past]),
        since=problem.cause.onset_step,
        cost=cost_in_words(problem.cost),
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
    fall = _lost_outcome(problem) or (evidence.fall if _explains_fall(problem) else "")
    what = with_waste(_with_lost_outcome(_clause(present.summary), fall), problem.cost)
    if first_action:
        if _NOT_LOGGED in what:  # said already
            first_action = first_action.removesuffix(f" ({_NOT_LOGGED})")
        what = f"{what}; first, {lower_first(first_action)}"
    past = past_cause(problem) or earlier(
        problem, faults[1:], opening=evidence.opening, slack=evidence.slack
    )
    also = _other_candidate(problem, faults[1:], evidence.slack)
    return Verdict(
        "sick",
        _sentences(what, [*also, *past, *notable_past(problem, resolved)]),
        since=problem.since,
        cost=cost_in_words(problem.cost),
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


def _explains_fall(problem: Problem) -> bool:
    """Whether the outcome's failure to rise, which a fall is as well, is an effect of a fault.

    A fault whose summary states how the outcome moved needs no second pair of numbers.
    """
    if _MOVED.search(problem.present.summary):
        return False
    effects = (symptom.finding for symptom in problem.symptoms)
    return any(each.code == NoRise.code and each.active for each in effects)


def _other_candidate(problem: Problem, others: Sequence[Problem], slack: float) -> list[str]:
    """The other critical fault that began at the same time: either may be the cause.

    No causal link leads from one to the other; otherwise, they would be one problem.
    """
    if problem.severity != "critical":
        return []
    close = (
        each.cause
        for each in others
        if each.cause.active
        and each.cause.severity == "critical"
        and abs(each.since - problem.since) <= slack
    )
    second = next(close, None)
    return [f"also: {second.code} {second.name}, since step {second.onset_step}"] if second else []


def _with_lost_outcome(fault: str, fall: str) -> str:
    """A fault and the fall of the outcome; a fall of the same outcome is stated only once.

    The fall that a fault states is that of the time when it was seen last.
    """
    if not fall:
        return fault
    stated = _FALL.search(fault)
    if stated is None or stated["noun"].lower() != fall.split(maxsplit=1)[0]:
        return f"{fault}; {fall}" if "; " in fault else f"{fault}, and {fall}"
    if not stated.start():
        return fault
    return f"{fault[: stated.start()]}{fault[stated.end() :]}, and {fall}"


def lower_first(text: str) -> str:
    """A sentence as a part of another one; an acronym keeps its capitals."""
    return f"{text[:1].lower()}{text[1:]}" if text[1:2].islower() else text


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
    return f"found no active fault; resolved: {past_problem(problem)}{what}{more}"


def _clause(summary: str) -> str:
    """A summary as a part of a sentence."""
    return summary.rstrip(". ")


def _ran(evidence: RunEvidence) -> str:
    coverage = evidence.coverage
    failed = f" ({coverage.failed} failed)" if coverage.failed else ""
    return f"{coverage.ran} of {coverage.rules} rules ran{failed}"


def _why_not_examined(evidence: RunEvidence) -> str:
    if not evidence.steps:
        crash = f"; {evidence.crash}" if evidence.crash else ""
        return f"no step was read{evidence.unread_keys}{crash}."
    if evidence.readings:
        return f"none of the {evidence.coverage.rules} rules could run."
    steps = count_of(evidence.steps, "step")
    return f"no reward was found in {steps}; {evidence.missing_reward}."
