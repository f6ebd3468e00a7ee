"""A probe's report for a terminal, or for a pipe."""

from __future__ import annotations

import math

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpodoctor.probe.results import Cell, Comparison, NamedCause, ProbeResult
from grpodoctor.report.escape import plain
from grpodoctor.report.printed import indented, printed
from grpodoctor.report.probe_advice import advised
from grpodoctor.report.probe_pictures import figure_of
from grpodoctor.report.probe_words import (
    CONTROL_MARKS,
    effect_rows,
    engine_line,
    facts_line,
    figure_rows,
    pair,
    replay_line,
    small,
    sureness,
    tally,
    told_again,
)

_COLUMNS = (
    ("mismatch/prob_diff_mean", "mean |Δp|"),
    ("mismatch/prob_diff_max", "max |Δp|"),
    ("mismatch/kl_k3", "k3"),
)
_CONFIDENCE_STYLES = {"proven": "bold red", "likely": "bold yellow", "possible": "bold blue"}
_CONTROL_STYLES = {True: "green", False: "bold red", None: "yellow"}
_MOST_DETAILS = 6
_SMALLEST_EFFECT = 1e-4
_WORST_TOKENS = 3
_MOST_WHOLE = 3
"""Cells up to which each is told with all its figures; the HTML and the JSON have them always."""


def render(
    result: ProbeResult, *, width: int = 80, colour: bool = False, framework: str | None = None
) -> str:
    """The report as text.

    Args:
        result: what to show.
        width: columns to wrap at.
        colour: write terminal colours.
        framework: in whose words to say what to set; None says it in general words alone.

    Raises:
        ConfigError: if there is no such framework.
    """
    return printed(_parts(result, framework), width=width, colour=colour)


def _parts(result: ProbeResult, framework: str | None) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text("Do these engines agree?", style="bold"),
        Text(plain(facts_line(result)), style="dim"),
        *(Text(plain(note), style="yellow") for note in result.notes),
    ]
    for label, facts in result.engines.items():
        parts.append(Text(plain(f"{label}: {engine_line(facts)}"), style="dim"))
    if len(result.cells) > 1:
        parts += ["", _overview(result)]
    for cell in result.cells:
        parts += ["", *_cell(result, cell, framework)]
    return [*parts, "", Text(tally(result), style="bold")]


def _overview(result: ProbeResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("sampler → learner", overflow="fold")
    for title in ("tokens", *(title for _, title in _COLUMNS)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for cell in result.cells:
        table.add_row(
            Text(plain(f"{cell.sampler} → {cell.learner}")),
            str(cell.max_tokens),
            *(small(figure_of(cell, metric)) for metric, _ in _COLUMNS),
            Text(", ".join(each.cause for each in cell.causes) or _state(cell)),
        )
    return table


def _state(cell: Cell) -> str:
    return "" if cell.status == "done" else cell.status.replace("_", " ")


def _cell(result: ProbeResult, cell: Cell, framework: str | None) -> list[RenderableType]:
    title = Text(plain(pair(cell)), style="bold underline")
    if cell.comparison is None:
        return [title, indented(plain(f"{_state(cell)}: {cell.told}"), "bold red")]
    parts: list[RenderableType] = [title, indented(plain(cell.verdict), "bold")]
    for cause in cell.causes:
        parts += _cause(cause)
    again = told_again(cell)
    parts += [indented(plain(f"do: {each}"), "cyan") for each in cell.remedies if each not in again]
    parts += _settings(result, cell, framework)
    if len(result.cells) > _MOST_WHOLE:
        return parts + _controls(cell, failed=True)
    parts += [Padding(_figures(cell.comparison), (1, 0, 0, 2))]
    parts += _effects(cell.comparison) + _experts(cell.comparison)
    parts += [indented(replay_line(cell.replayed))] if cell.replayed else []
    parts += _churn(cell)
    parts += _worst(cell.comparison)
    return parts + _controls(cell)


def _settings(result: ProbeResult, cell: Cell, framework: str | None) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for each in advised(result, cell, framework) if framework else ():
        parts.append(indented(f"in {framework}: {each.title}", "cyan"))
        # A setting is to be copied, so it stays on its line.
        parts += [Text(f"    {plain(line)}", "cyan", no_wrap=True) for line in each.lines]
    return parts


def _cause(cause: NamedCause) -> list[RenderableType]:
    head = Text.assemble(
        (cause.confidence.upper(), _CONFIDENCE_STYLES[cause.confidence]),
        "  ",
        (plain(f"{cause.cause}: {cause.title}"), "bold"),
        (f"  {_explains(cause)}", "dim"),
    )
    parts: list[RenderableType] = [Padding(head, (0, 0, 0, 2)), indented(plain(cause.told), "", 4)]
    shown = cause.details[:_MOST_DETAILS]
    parts += [indented(f"- {plain(each, limit=200)}", "", 4) for each in shown]
    if len(cause.details) > len(shown):
        parts.append(indented(f"- and {len(cause.details) - len(shown)} more", "dim", 4))
    return parts + [indented(plain(f"do: {each}"), "cyan", 4) for each in cause.remedies]


def _explains(cause: NamedCause) -> str:
    return "" if cause.explained is None else sureness(cause).partition(", ")[2]


def _figures(comparison: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    title = (
        f"{comparison.prompts:,} prompts, {comparison.responses:,} responses, "
        f"{comparison.tokens:,} tokens"
    )
    table.add_column(title, overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("95 % by prompt", justify="right", no_wrap=True)
    for name, value, between, where in figure_rows(comparison):
        table.add_row(Text(plain(name + (f" ({where})" if where else ""))), value, between)
    if comparison.entropy_z is not None:
        name = "z of mean(log p + entropy): were the tokens drawn as the sampler says?"
        table.add_row(name, small(comparison.entropy_z), "")
    return table


def _effects(comparison: Comparison) -> list[RenderableType]:
    told = [
        indented(f"{title}: {share:.2%} of the {over}", "", 4)
        for title, over, share, _ in effect_rows(comparison)
        if math.isfinite(share) and share >= _SMALLEST_EFFECT
    ]
    if not comparison.effects:
        return []
    if not told:
        return [indented("At the usual caps no correction would act on one token in 10,000.")]
    return [indented("What it does to training, at the usual caps:"), *told]


def _experts(comparison: Comparison) -> list[RenderableType]:
    experts = comparison.experts
    if experts is None:
        return []
    worst = max(experts.layers, key=lambda each: each.flipped_rate, default=None)
    told = (
        f"Experts: {experts.any_flip_rate:.2%} of {experts.tokens:,} tokens have another one in "
        f"some layer, {experts.churn:.3%} of all experts are others"
    )
    if worst is not None and worst.flipped_rate:
        told += f", most in layer {worst.layer} ({worst.flipped_rate:.2%} of tokens)"
    if experts.logprob_diff_flipped is not None and experts.logprob_diff_kept is not None:
        told += (
            f"; mean |Δlogp| {small(experts.logprob_diff_flipped)} where flipped, "
            f"{small(experts.logprob_diff_kept)} where not"
        )
    return [indented(f"{told}.")]


def _churn(cell: Cell) -> list[RenderableType]:
    if cell.churn is None:
        return []
    told = (
        f"From the older checkpoint to this one {cell.churn.churn:.3%} of the experts have changed "
        f"for the same tokens; {cell.churn.any_flip_rate:.2%} of {cell.churn.tokens:,} tokens have "
        "another one in some layer."
    )
    return [indented(told)]


def _worst(comparison: Comparison) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for worst in comparison.worst[:_WORST_TOKENS]:
        pieces = worst.pieces or tuple(f"{each} " for each in worst.ids)
        around = range(max(0, worst.at - 12), min(len(pieces), worst.at + 8))
        text = Text("    ")
        for place in around:
            text.append(plain(pieces[place], limit=40), "reverse" if place == worst.at else "dim")
        parts.append(
            indented(
                f"prompt {worst.prompt}, sample {worst.sample}, token {worst.at}: sampler "
                f"{worst.sampler_logprobs[worst.at]:.3f}, learner "
                f"{worst.learner_logprobs[worst.at]:.3f} nats"
            )
        )
        parts.append(text)
    return [indented("Where they differ most:"), *parts] if parts else []


def _controls(cell: Cell, *, failed: bool = False) -> list[RenderableType]:
    """All controls, or those alone that did not pass."""
    return [
        Padding(
            Text.assemble(
                (CONTROL_MARKS[each.passed], _CONTROL_STYLES[each.passed]),
                "  control: ",
                plain(f"{each.title}. {each.told}"),
            ),
            (0, 0, 0, 2),
        )
        for each in cell.controls
        if not failed or each.passed is not True
    ]
