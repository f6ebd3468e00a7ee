"""A probe's report for a terminal, or for a pipe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpodoctor.probe.results.results import Cell, Comparison, NamedCause, ProbeResult
from grpodoctor.report.console import indented, printed
from grpodoctor.report.probe.advice import advised
from grpodoctor.report.probe.charts import figure_of
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.phrases import (
    CONTROL_MARKS,
    effect_rows,
    engine_line,
    facts_line,
    figure_rows,
    pair,
    replay_line,
    small,
    standing,
    sureness,
    tally,
    told_again,
    why,
)
from grpodoctor.support.safe_text import plain

_COLUMNS = (
    ("mismatch/prob_diff_mean", "mean |Δp|"),
    ("mismatch/prob_diff_max", "mean of max"),
    ("mismatch/kl_k3", "k3"),
)
_CONFIDENCE_STYLES = {"proven": "bold red", "likely": "bold yellow", "possible": "bold blue"}
_CONTROL_STYLES = {True: "green", False: "bold red", None: "yellow"}
_TONE_STYLES = {
    "good": "green",
    "info": "bold blue",
    "warning": "bold yellow",
    "critical": "bold red",
}
_TABLE_COLUMNS = 72
"""Narrower terminals get a list in place of the table of all pairs."""
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
    parts = _parts(result, framework, colour=colour, narrow=width < _TABLE_COLUMNS)
    return printed(parts, width=width, colour=colour)


def _parts(
    result: ProbeResult, framework: str | None, *, colour: bool, narrow: bool
) -> Iterator[RenderableType]:
    names = short_names(result)
    told = Text(tally(result), style="bold")
    yield Text("Do these engines agree?", style="bold")
    yield told
    yield Text(plain(facts_line(result)), style="dim")
    yield from (Text(plain(note), style="yellow") for note in result.notes)
    if len(result.cells) > 1:
        yield from ("", *(_listed(result, names) if narrow else [_overview(result, names)]))
    for cell in result.cells:
        yield ""
        yield Text(plain(pair(cell, names)), style="bold underline")
        yield from _cell(result, cell, framework, colour=colour)
    yield ""
    for label, facts in result.engines.items():
        yield Text(plain(f"{label}: {engine_line(facts)}"), style="dim")
    if len(result.cells) > _MOST_WHOLE:
        yield Text("Figures, pictures and controls of each pair are in the HTML.", style="dim")
    yield told


def _overview(result: ProbeResult, names: Mapping[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("sampler → learner", overflow="fold")
    is_one_length = len({cell.max_tokens for cell in result.cells}) == 1
    for title in [*([] if is_one_length else ["tokens"]), *(title for _, title in _COLUMNS)]:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("why", overflow="fold")
    before = ""
    for cell in result.cells:
        if cell.sampler != before:
            table.add_row(Text(plain(names[cell.sampler]), style="bold"))
        before = cell.sampler
        word, tone = standing(cell)
        table.add_row(
            Text(plain(f"→ {names[cell.learner]}")),
            *([] if is_one_length else [str(cell.max_tokens)]),
            *(small(figure_of(cell, metric)) for metric, _ in _COLUMNS),
            Text(word, style=_TONE_STYLES[tone]),
            Text(plain(", ".join(each.cause for each in cell.causes))),
        )
    return table


def _listed(result: ProbeResult, names: Mapping[str, str]) -> Iterator[RenderableType]:
    """The overview where there is no room for a table."""
    for cell in result.cells:
        word, tone = standing(cell)
        told = [why(cell)] if cell.causes else []
        told += [f"mean |Δp| {small(figure_of(cell, _COLUMNS[0][0]))}"] if cell.comparison else []
        yield Text.assemble(
            (word, _TONE_STYLES[tone]),
            "  ",
            plain(f"{pair(cell, names)}: {', '.join(told)}").rstrip(": "),
        )


def _cell(
    result: ProbeResult, cell: Cell, framework: str | None, *, colour: bool
) -> Iterator[RenderableType]:
    word, tone = standing(cell)
    if cell.comparison is None:
        yield indented(plain(f"{word}: {cell.told}"), "bold red")
        return
    head = Text.assemble((word.upper(), _TONE_STYLES[tone]), "  ", (plain(cell.verdict), "bold"))
    yield Padding(head, (0, 0, 0, 2))
    for cause in cell.causes:
        yield from _cause(cause)
    again = told_again(cell)
    told = (each for each in cell.remedies if each not in again)
    yield from (indented(plain(f"do: {each}"), "cyan") for each in told)
    yield from _settings(result, cell, framework)
    if len(result.cells) > _MOST_WHOLE:
        yield from _controls(cell, failed=True)
        return
    yield Padding(_figures(cell.comparison), (1, 0, 0, 2))
    yield from _effects(cell.comparison)
    yield from _experts(cell.comparison)
    yield from [indented(replay_line(cell.replayed))] if cell.replayed else []
    yield from _churn(cell)
    yield from _worst(cell.comparison, colour=colour)
    yield from _controls(cell)


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


def _worst(comparison: Comparison, *, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for worst in comparison.worst[:_WORST_TOKENS]:
        pieces = worst.pieces or tuple(f"{each} " for each in worst.ids)
        around = range(max(0, worst.at - 12), min(len(pieces), worst.at + 8))
        text = Text()
        for place in around:
            # Spaces tell words apart; what breaks a line would break the report's.
            piece = plain(pieces[place], limit=40, lines=True).replace("\n", "↵").replace("\t", " ")
            if place == worst.at:
                text.append(piece if colour else f"»{piece}«", "reverse")
            else:
                text.append(piece, "dim")
        parts.append(
            indented(
                f"prompt {worst.prompt}, sample {worst.sample}, token {worst.at}: |Δp| "
                f"{small(worst.prob_diff_max)}, sampler {worst.sampler_logprobs[worst.at]:.3f}, "
                f"learner {worst.learner_logprobs[worst.at]:.3f} nats"
            )
        )
        parts.append(Padding(text, (0, 0, 0, 4)))
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
