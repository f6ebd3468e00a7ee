"""The phrases that a probe's terminal text and its HTML share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpodoctor.probe.effects import EFFECTS
from grpodoctor.probe.lab import EngineFacts
from grpodoctor.probe.results import (
    Cell,
    Comparison,
    Control,
    NamedCause,
    ProbeResult,
    Replayed,
)
from grpodoctor.report.words import counted
from grpodoctor.vocabulary.values import Max, NotApplicable, scalar

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
        where = reading.where if isinstance(reading, Max) and reading.where else ""
        between = f"{small(interval.low)} to {small(interval.high)}" if interval else ""
        yield name, small(value), between, where


def small(value: float | None) -> str:
    """A figure that may be as small as rounding: three digits, with an exponent below .001."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    return f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.3g}"


def facts_line(result: ProbeResult) -> str:
    """What was probed, on one line."""
    done = [cell.comparison for cell in result.cells if cell.comparison]
    tokens = max((each.tokens for each in done), default=0)
    responses = max((each.responses for each in done), default=0)
    parts = [result.created]
    parts += [f"{key} {value}" for key, value in result.settings.items() if value is not None]
    parts.append(f"up to {responses:,} responses and {tokens:,} tokens a pair")
    parts.append(f"{result.seconds:.0f} s")
    return " · ".join(parts)


def tally(result: ProbeResult) -> str:
    """How many pairs were measured, and how many were not."""
    states = [cell.status for cell in result.cells]
    parts = [f"{counted(states.count('done'), 'pair')} measured"]
    if states.count("failed"):
        parts.append(f"{states.count('failed')} failed")
    if states.count("not_run"):
        parts.append(f"{states.count('not_run')} not run")
    return ", ".join(parts)


def pair(cell: Cell) -> str:
    """Which cell it is."""
    return f"{cell.sampler} → {cell.learner}, {cell.max_tokens} tokens"


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
    return (
        "With the sampler's routing replayed in the learner "
        f"({replayed.tokens:,} tokens, coverage {replayed.experts.coverage:.2%}, agreement "
        f"{obeyed}) k3 goes from {small(replayed.kl_k3_before)} to {small(replayed.kl_k3_after)} "
        f"and mean |Δp| from {small(replayed.prob_diff_before)} to "
        f"{small(replayed.prob_diff_after)}."
    )


def told_again(cell: Cell) -> frozenset[str]:
    """Remedies of a cell that stand beside one of its causes already."""
    return frozenset(each for cause in cell.causes for each in cause.remedies)
