"""The phrases that a probe's terminal text and its HTML share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from grpodoctor.probe.comparison.correction_effects import EFFECTS
from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.results.results import (
    Cell,
    Comparison,
    Control,
    NamedCause,
    ProbeResult,
    Replayed,
)
from grpodoctor.probe.severity import figure, measured_verdict, severity_of
from grpodoctor.report.run.phrases import counted
from grpodoctor.vocabulary.values import Max, NotApplicable, scalar

Tone = Literal["good", "info", "warning", "critical"]

FIGURES: tuple[tuple[str, str], ...] = (
    ("mismatch/prob_diff_mean", "mean |Δp|, mean over responses"),
    ("mismatch/prob_diff_max", "largest |Δp| of a response, mean over responses"),
    ("mismatch/prob_diff_max/worst_sequence", "largest |Δp| of all"),
    ("mismatch/logprob_diff_mean", "mean |Δlogp|, mean over responses"),
    ("mismatch/logprob_diff_max", "largest |Δlogp| of a response, mean over responses"),
    ("mismatch/bias", "learner minus sampler, nats a token"),
    ("mismatch/kl_k1", "KL(sampler, learner), k1"),
    ("mismatch/kl_k3", "KL(sampler, learner), k3"),
    ("mismatch/chi2", "chi-square divergence"),
    ("mismatch/ess", "effective sample size, share of the tokens"),
    ("mismatch/pearson", "correlation of the probabilities"),
    ("mismatch/far_rate", "tokens with |Δlogp| above ln 2"),
    ("mismatch/nonfinite", "tokens that are not finite"),
)
"""What is measured of a pair, in the order of telling."""

_BEST_AT_ONE = frozenset({"mismatch/ess", "mismatch/pearson"})
_ASKED = {
    "prompts": "{} prompts",
    "from": "from {}",
    "samples": "responses a prompt: {}",
    "max_tokens": "at most {} tokens",
}
"""Settings that are better told in words."""
_WORTH_SAYING = 0.005
"""Share of a gap."""
_OF_ONE = {"agree": "agrees", "differ": "differs"}

CONTROL_MARKS = {True: "passed", False: "FAILED", None: "not made"}


def figure_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, interval and where it comes from, of every figure that was measured."""
    for metric, name in FIGURES:
        reading = comparison.readings.get(metric)
        if reading is None:
            continue
        if isinstance(reading, NotApplicable):
            yield name, "n/a", "", reading.why
            continue
        value = scalar(reading)
        interval = comparison.intervals.get(metric)
        where = _place(reading.where) if isinstance(reading, Max) and reading.where else ""
        shown = close_to_one if metric in _BEST_AT_ONE else small
        between = f"{shown(interval.low)} to {shown(interval.high)}" if interval else ""
        yield name, shown(value), between, where


def _place(where: str) -> str:
    """`prompt-14/0` in words; any other name as it is."""
    prompt, _, sample = where.removeprefix("prompt-").partition("/")
    named = where.startswith("prompt-") and prompt.isdigit() and sample.isdigit()
    return f"prompt {prompt}, sample {sample}" if named else where


def small(value: float | None) -> str:
    """A figure that may be as small as rounding: three digits, with an exponent below .001."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    return f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.3g}"


def close_to_one(value: float | None) -> str:
    """A figure that is 1 at best: what is missing from it has two digits."""
    if value is None or not 0.99 < value < 1 - 1e-9:
        return small(value)
    return f"{value:.{1 - math.floor(math.log10(1 - value))}f}"


def facts_line(result: ProbeResult) -> str:
    """What was probed, on one line."""
    done = [cell.comparison for cell in result.cells if cell.comparison]
    tokens = max((each.tokens for each in done), default=0)
    responses = max((each.responses for each in done), default=0)
    parts = [_moment(result.created), *_asked(result.settings)]
    parts.append(f"up to {responses:,} responses and {tokens:,} tokens a pair")
    parts.append(f"{result.seconds:.0f} s")
    return " · ".join(parts)


def _moment(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return created


def _asked(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))  # noqa: PLW2901 - the same, as text
        if value is not None:
            yield _ASKED.get(name, f"{name.replace('_', ' ')} {{}}").format(value)


def tally(result: ProbeResult) -> str:
    """How many pairs were measured, how many were not, and what came of it."""
    states = Counter(cell.status for cell in result.cells)
    parts = [f"{counted(states['done'], 'pair')} measured"]
    if states["failed"]:
        parts.append(f"{states['failed']} failed")
    if states["not_run"]:
        parts.append(f"{states['not_run']} not run")
    found = _found(result)
    return ", ".join(parts) + (f": {found}" if found else "")


def _found(result: ProbeResult) -> str:
    """How many agree and how many do not, with the causes, most frequent first."""
    cells: dict[str, list[Cell]] = {}
    for cell in result.cells:
        if cell.status == "done":
            cells.setdefault(standing(cell)[0], []).append(cell)
    told = []
    for word, those in sorted(cells.items(), key=lambda each: -len(each[1])):
        causes = Counter(cause.cause for cell in those for cause in cell.causes)
        alone = len(those) == 1
        named = ", ".join(
            cause if alone else f"{cause} {count}" for cause, count in causes.most_common()
        )
        verb = _OF_ONE.get(word, word) if alone else word
        told.append(f"{len(those)} {verb}" + (f" ({named})" if named else ""))
    return "; ".join(told)


def standing(cell: Cell) -> tuple[str, Tone]:
    """How a pair stands, in a word or two, and how bad that is."""
    if cell.comparison is None:
        return ("failed", "critical") if cell.status == "failed" else ("not run", "warning")
    severity = severity_of(cell)
    if severity == "critical":
        is_number = figure(cell.comparison, "mismatch/nonfinite") == 0
        return "far apart" if is_number else "not finite", "critical"
    if severity == "warning":
        sure = any(cause.confidence != "possible" for cause in cell.causes)
        is_far = figure(cell.comparison, "mismatch/prob_diff_mean") > ORDINARY
        return "differ" if sure or is_far else "control failed", "warning"
    if severity == "info":
        sure = any(cause.confidence != "possible" for cause in cell.causes)
        return "small gap" if sure else "unsure", "info"
    unexplained = cell.verdict == measured_verdict(cell.comparison)
    is_exact = figure(cell.comparison, "mismatch/prob_diff_max/worst_sequence") == 0
    return "small gap" if unexplained and not is_exact else "agree", "good"


def why(cell: Cell) -> str:
    """In a line: the causes, or what stands in their place."""
    named = ", ".join(f"{each.cause} ({each.confidence})" for each in cell.causes)
    return named or cell.verdict or cell.told


def pair(cell: Cell, names: Mapping[str, str]) -> str:
    """Which cell it is, in labels or in the names given for them."""
    sampler, learner = (names.get(each, each) for each in (cell.sampler, cell.learner))
    return f"{sampler} → {learner}, {cell.max_tokens} tokens"


def engine_line(facts: EngineFacts) -> str:
    """What an engine has said of itself."""
    layout = ", ".join(f"{name} {degree}" for name, degree in facts.layout.items() if degree > 1)
    parts = [f"{facts.name} {facts.version}", facts.dtype, facts.device, layout]
    parts += [f"log-probabilities {facts.logprobs}", f"loaded in {facts.load_seconds:.1f} s"]
    return " · ".join(part for part in parts if part)


def settings_line(facts: EngineFacts) -> str:
    """What else an engine has said of how it is set up."""
    return ", ".join(f"{name} {value}" for name, value in facts.settings.items())


def sureness(cause: NamedCause) -> str:
    """How sure a cause is, and how much of the gap it explains."""
    if cause.explained is None:
        return cause.confidence
    return f"{cause.confidence}, explains {min(max(cause.explained, 0.0), 1.0):.0%} of the gap"


def control_line(control: Control) -> str:
    """A control's outcome in a line."""
    return f"{CONTROL_MARKS[control.passed]}: {control.title}. {control.told}"


def effect_rows(comparison: Comparison) -> Iterator[tuple[str, str, float, float | None]]:
    """Title, what it acts on, the share of it, and the share of the weights that is lost."""
    for effect in EFFECTS:
        share = comparison.effects.get(effect.name)
        if share is not None:
            yield effect.title, effect.over, share, comparison.effects.get(f"{effect.name}/lost")


def replay_line(replayed: Replayed) -> str:
    """What became of the gap when the learner was forced to the sampler's experts."""
    agreement = replayed.experts.agreement
    obeyed = "not told" if agreement is None else f"{agreement:.2%}"
    before, after = replayed.kl_k3_before, replayed.kl_k3_after
    share = 1 - after / before if before > 0 else 0.0
    if share > _WORTH_SAYING:
        what = f"takes away {share:.0%} of the gap"
    else:
        what = "takes nothing of the gap away" if share < -_WORTH_SAYING else "changes nothing"
    return (
        f"Replaying the sampler's routing in the learner {what}: k3 goes from {small(before)} to "
        f"{small(after)} and mean |Δp| from {small(replayed.prob_diff_before)} to "
        f"{small(replayed.prob_diff_after)} ({replayed.tokens:,} tokens, coverage "
        f"{replayed.experts.coverage:.2%}, agreement {obeyed})."
    )


def told_again(cell: Cell) -> frozenset[str]:
    """Remedies of a cell that stand beside one of its causes already."""
    return frozenset(each for cause in cell.causes for each in cause.remedies)
