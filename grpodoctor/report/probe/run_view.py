"""The mismatch of a run, as a view."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.probe.run_mismatch.experiment_commands import command_lines
from grpodoctor.probe.run_mismatch.run_mismatch import CRITICAL_KL, WARNING_KL, RunMismatch
from grpodoctor.probe.run_mismatch.signatures import LikelyCause
from grpodoctor.probe.run_mismatch.trend import Trend
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Column,
    Paragraph,
    Remedy,
    Section,
    Setting,
    Table,
    View,
)
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import count_of


def view_of(result: RunMismatch) -> View:
    """Translate the mismatch of a run."""
    tokens = sum(step.tokens for step in result.steps)
    read = f"{count_of(len(result.steps), 'step')}, {tokens:,} tokens"
    damaged = f" · {result.damaged} entries damaged" if result.damaged else ""
    lacking = count_of(result.incomplete, "response")
    damaged += f" · {lacking} without both sides" if result.incomplete else ""
    return View(
        product="grpodoctor probe",
        page_title=f"Mismatch of {result.run}",
        heading=result.run,
        facts=f"{', '.join(result.frameworks)} · {read}{damaged}",
        diagnosis=_diagnosis(result),
        warnings=tuple(_warnings(result)),
        blocks=tuple(_blocks(result)),
        json=result.to_json,
    )


def _diagnosis(result: RunMismatch) -> str:
    latest = result.steps[-1]
    if any(cause.kind == "copied" for cause in result.causes):
        return f"no verdict: both sides have the same values at step {latest.step}."
    kl = f"the KL of sampler and learner is {latest.kl_k3:.2g} nats per token at step {latest.step}"
    return f"{_verdict(result)}: {kl} ({_limit(result)}); {_course(result)}."


def _warnings(result: RunMismatch) -> Iterator[str]:
    last = result.steps[-1].step
    if result.is_outdated:
        yield (
            f"The dumps go on to step {result.newest_step}, but the steps after {last} hold no "
            "log-probabilities of both sides; the verdict is about older steps."
        )
    if result.unusable:
        yield (
            f"{count_of(result.unusable, 'token')} were left out: a log-probability that is not "
            "finite, or above 0."
        )

    if result.empty:
        names = ", ".join(result.empty[:_SHOWN_FILES])
        more = len(result.empty) - _SHOWN_FILES
        names += f" and {more} more" if more > 0 else ""
        yield (
            f"Left out, because {'they have' if len(result.empty) > 1 else 'it has'} 0 bytes: "
            f"{names}. Copy again from the disk of the trainer, or record the steps again."
        )


_SHOWN_FILES = 3


def _verdict(result: RunMismatch) -> str:
    if result.severity != "info":
        return result.severity
    is_fault = (
        result.is_outdated or result.unusable > 0 or any(cause.is_fault for cause in result.causes)
    )
    return "within limits" if is_fault or not result.causes else "healthy"


def _limit(result: RunMismatch) -> str:
    """The limit that the last step exceeds, or the first one that it does not."""
    if result.steps[-1].kl_k3 > CRITICAL_KL:
        return f"critical above {CRITICAL_KL:g}"
    return f"warning above {WARNING_KL:g}"


def _course(result: RunMismatch) -> str:
    return trend_phrase(result.trend, len(result.steps))


def trend_phrase(trend: Trend, steps: int) -> str:
    """How a figure of the mismatch changes over the steps, as a part of a sentence."""
    levels = f"from {trend.first:.2g} to {trend.last:.2g}"
    match trend.direction:
        case "unknown":
            return "there are too few steps for a trend"
        case "flat":
            return f"there is no trend over {steps} steps"
        case "jumps" | "drops":
            return f"at step {trend.jump_step} it {trend.direction} {levels} and stays there"
        case _:
            return f"it {trend.direction} {levels}"


def _blocks(result: RunMismatch) -> Iterator[Block]:
    yield from (cause_card(cause, result.severity) for cause in result.causes)
    if not result.causes:
        yield Paragraph("The last steps have too few tokens to compare causes.")
    yield Section("Steps", (_table(result),))


def cause_card(cause: LikelyCause, severity: Severity) -> Card:
    """A cause with the experiment that would prove it."""
    return Card(
        tone=severity,
        badge="possible cause" if cause.is_fault else "explanation",
        code="",
        title=cause.cause,
        body=(Paragraph(cause.evidence),),
        advice=tuple(_advice(cause)),
    )


def _advice(cause: LikelyCause) -> Iterator[Block]:
    if not cause.experiment:
        yield Paragraph("Nothing needs to change.")
        return
    yield Bullets((cause.experiment,), "advice")
    if cause.command:
        lines = tuple(Setting(line) for line in command_lines(cause.command))
        yield Remedy("test it on the recorded responses:", lines, note=cause.note)


def _table(result: RunMismatch) -> Table:
    columns = ("step", "tokens", "KL (k3)", "mean |Δp|", "largest |Δp|", "mean log ratio")
    return Table(
        tuple(Column(title, numeric=True) for title in columns),
        tuple(
            (
                str(step.step), f"{step.tokens:,}", f"{step.kl_k3:.3g}",
                f"{step.prob_diff_mean:.3g}", f"{step.prob_diff_max:.3g}", f"{step.bias:+.3g}",
            )
            for step in result.steps
        ),
    )  # fmt: skip
