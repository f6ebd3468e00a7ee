"""The mismatch of a run, as a view."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch
from grpodoctor.probe.run_mismatch.signatures import LikelyCause
from grpodoctor.report.phrases import count_of
from grpodoctor.report.view import Block, Bullets, Card, Column, Paragraph, Section, Table, View


def view_of(result: RunMismatch) -> View:
    """Translate the mismatch of a run."""
    tokens = sum(step.tokens for step in result.steps)
    read = f"{count_of(len(result.steps), 'step')}, {tokens:,} tokens"
    damaged = f" · {result.damaged} entries damaged" if result.damaged else ""
    return View(
        product="grpodoctor probe",
        page_title=f"Mismatch of {result.run}",
        heading=result.run,
        facts=f"{', '.join(result.frameworks)} · {read}{damaged}",
        diagnosis=_diagnosis(result),
        warnings=(),
        blocks=tuple(_blocks(result)),
        json=result.to_json,
    )


def _diagnosis(result: RunMismatch) -> str:
    latest = result.steps[-1]
    return (
        f"{result.severity}: the KL of sampler and learner is {latest.kl_k3:.2g} nats per token at "
        f"step {latest.step}; {_trend(result)}."
    )


def _trend(result: RunMismatch) -> str:
    trend = result.trend
    if trend.direction == "unknown":
        return "there are too few steps for a trend"
    if trend.direction == "flat":
        return "it does not change over these steps"
    return f"it {trend.direction} from {trend.first:.2g} to {trend.last:.2g}"


def _blocks(result: RunMismatch) -> Iterator[Block]:
    yield from (_cause(cause, result) for cause in result.causes)
    if not result.causes:
        yield Paragraph("The last step has too few tokens to compare causes.")
    yield Section("Steps", (_table(result),))


def _cause(cause: LikelyCause, result: RunMismatch) -> Card:
    return Card(
        tone=result.severity,
        badge="possible cause",
        code="",
        title=cause.cause,
        body=(Paragraph(cause.evidence),),
        advice=(Bullets((cause.experiment,), "advice"),),
    )


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
