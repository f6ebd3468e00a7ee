"""A probe's report as one HTML file that opens offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from grpodoctor.probe.results.results import (
    Cell,
    Comparison,
    ExpertComparison,
    NamedCause,
    ProbeResult,
    Replayed,
    WorstResponse,
)
from grpodoctor.report.html_page import Pictures, document, table
from grpodoctor.report.probe.advice import advised
from grpodoctor.report.probe.charts import cell_figures, figure_of, grid_figures
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.phrases import (
    CONTROL_MARKS,
    effect_rows,
    engine_line,
    facts_line,
    figure_rows,
    pair,
    replay_line,
    settings_line,
    small,
    standing,
    sureness,
    tally,
    told_again,
    why,
)
from grpodoctor.support.safe_text import html as safe

_MOST_PICTURED = 6
"""Pairs that get pictures of their own, those that differ most: a page must open at once."""
_NAME_PIXELS, _CELL_PIXELS = 220, 110
"""Room that a heat map needs for the samplers' names, and for each learner."""
_MOST_MARKED = 400
"""Tokens of a response that are shown, around its worst one."""
_SURENESS = {"proven": "critical", "likely": "warning", "possible": "info"}


def _measure(which: str, of: str) -> str:
    """The head of a column whose unit stays on one line."""
    return f'{which} <span class="measure">{of}</span>'


_COLUMNS = (
    ("mismatch/prob_diff_mean", _measure("mean", "|Δp|")),
    ("mismatch/prob_diff_max", _measure("mean of max", "|Δp|")),
    ("mismatch/prob_diff_max/worst_sequence", _measure("largest", "|Δp|")),
    ("mismatch/logprob_diff_mean", _measure("mean", "|Δlogp|, nats")),
    ("mismatch/kl_k3", _measure("k3,", "nats")),
)


def render(result: ProbeResult, framework: str | None = None) -> str:
    """The report as an HTML document.

    Args:
        result: what to show.
        framework: in whose words to say what to set; None says it in general words alone.

    Raises:
        ConfigError: if there is no such framework.
    """
    pictures = Pictures()
    pictured = _pictured(result.cells)
    names = short_names(result)
    body = "".join(
        (
            _header(result),
            _overview(result, names) if len(result.cells) > 1 else "",
            _grid(result, names, pictures),
            *(
                _cell(result, index, names, pictures if index in pictured else None, framework)
                for index in range(len(result.cells))
            ),
            _engines(result, names),
        )
    )
    return document("Do these engines agree?", body, pictures.scripts())


def _pictured(cells: Sequence[Cell]) -> frozenset[int]:
    def gap(index: int) -> float:
        value = figure_of(cells[index], "mismatch/kl_k3")
        return value if value is not None and math.isfinite(value) else -1.0

    measured = [index for index, cell in enumerate(cells) if cell.comparison]
    return frozenset(sorted(measured, key=gap, reverse=True)[:_MOST_PICTURED])


def _header(result: ProbeResult) -> str:
    notes = "".join(f'<p class="damage">{safe(note)}</p>' for note in result.notes)
    return (
        "<header><p class='eyebrow'>grpodoctor probe</p><h1>Do these engines agree?</h1>"
        f"<p class='facts'>{safe(facts_line(result))}</p>"
        f"<p class='tally'>{safe(tally(result))}</p>{notes}</header>"
    )


def _overview(result: ProbeResult, names: Mapping[str, str]) -> str:
    is_one_length = len({cell.max_tokens for cell in result.cells}) == 1
    rows = []
    for index, cell in enumerate(result.cells):
        told = f"<p><small>{safe(why(cell), limit=200)}</small></p>"
        sides = f"{safe(names[cell.sampler])} → {safe(names[cell.learner])}"
        lengths = [] if is_one_length else [str(cell.max_tokens)]
        figures = [small(figure_of(cell, metric)) for metric, _ in _COLUMNS]
        link = f'<a href="#cell-{index}">{sides}</a>{told}'
        rows.append([_standing(cell), link, *lengths, *figures])
    lengths = [] if is_one_length else ["tokens"]
    head = ["", "sampler → learner", *lengths, *(title for _, title in _COLUMNS)]
    return f"<section>{table(head, rows, frozenset(range(2, len(head))))}</section>"


def _standing(cell: Cell) -> str:
    word, tone = standing(cell)
    return _badge(word, tone)


def _badge(word: str, tone: str) -> str:
    return f'<span class="{tone}"><span class="badge">{safe(word)}</span></span>'


def _grid(result: ProbeResult, names: Mapping[str, str], pictures: Pictures) -> str:
    learners = {cell.learner for cell in result.cells}
    room = _NAME_PIXELS + _CELL_PIXELS * len(learners)
    places = pictures.place(grid_figures(result.cells, names), wide=room)
    measured = sum(cell.comparison is not None for cell in result.cells)
    few = (
        f"<p class='facts'>The {_MOST_PICTURED} pairs with the largest k3 have pictures below.</p>"
    )
    told = few if measured > _MOST_PICTURED else ""
    return f"<section><h2>The grid</h2>{places}{told}</section>" if places else ""


def _cell(
    result: ProbeResult,
    index: int,
    names: Mapping[str, str],
    pictures: Pictures | None,
    framework: str | None,
) -> str:
    cell = result.cells[index]
    title = f'<section id="cell-{index}"><h2>{safe(pair(cell, names))}</h2>'
    if cell.comparison is None:
        told = safe(cell.told, limit=2000)
        return f'{title}<p class="damage">{_standing(cell)} {told}</p></section>'
    drawn = pictures.place(cell_figures(cell.comparison)) if pictures else ""
    again = told_again(cell)
    advice = "".join(f"<li>{safe(each)}</li>" for each in cell.remedies if each not in again)
    return (
        f'{title}<p class="sentence">{_standing(cell)} {safe(cell.verdict)}</p>'
        + "".join(_cause(each) for each in cell.causes)
        + (f"<h3>What to do</h3><ul>{advice}</ul>" if advice else "")
        + (_settings(result, cell, framework) if framework else "")
        + _controls(cell)
        + drawn
        + f'<div class="halves"><div>{_figures(cell.comparison)}'
        f"{_worst_prompts(cell.comparison)}</div><div>{_effects(cell.comparison)}"
        + _experts(cell.comparison.experts, replayed=cell.replayed)
        + _experts(cell.churn, "Experts: the older checkpoint against this one")
        + "</div></div>"
        + _worst(cell.comparison)
        + "</section>"
    )


def _cause(cause: NamedCause) -> str:
    details = "".join(f"<li><code>{safe(each, limit=200)}</code></li>" for each in cause.details)
    figures = " · ".join(
        f"{safe(name.replace('_', ' '))} {small(value)}" for name, value in cause.figures.items()
    )
    remedies = "".join(f"<li>{safe(each)}</li>" for each in cause.remedies)
    tone = _SURENESS[cause.confidence]
    explained = sureness(cause).partition(", ")[2]
    return (
        f'<article class="finding {tone}"><h3>{_badge(cause.confidence, tone)} '
        f"{safe(cause.title)} <small><code>{safe(cause.cause)}</code> {explained}</small></h3>"
        f'<div class="halves"><div><p>{safe(cause.told)}</p>'
        + (f"<ul>{details}</ul>" if details else "")
        + (f'<p class="facts">{figures}</p>' if figures else "")
        + f"</div><div>{f'<ul>{remedies}</ul>' if remedies else ''}</div></div></article>"
    )


def _settings(result: ProbeResult, cell: Cell, framework: str) -> str:
    cards = "".join(
        f"<div class='advice'><p>{safe(each.title[:1].upper() + each.title[1:])}:</p>"
        f"<pre>{safe(chr(10).join(each.lines), lines=True)}</pre></div>"
        for each in advised(result, cell, framework)
    )
    return f"<h3>In {safe(framework)}</h3>{cards}" if cards else ""


def _controls(cell: Cell) -> str:
    if not cell.controls:
        return ""
    tones = {True: "good", False: "critical", None: "warning"}
    rows = [
        [_badge(CONTROL_MARKS[each.passed], tones[each.passed]), safe(each.title), safe(each.told)]
        for each in cell.controls
    ]
    return f"<h3>Controls</h3>{table(['', '', ''], rows)}"


def _figures(comparison: Comparison) -> str:
    counts = (
        f"{comparison.prompts:,} prompts, {comparison.responses:,} responses, "
        f"{comparison.tokens:,} tokens"
    )
    rows = [
        [safe(name), value, between, f"<small>{safe(where, limit=80)}</small>"]
        for name, value, between, where in figure_rows(comparison)
    ]
    if comparison.entropy_z is not None:
        name = "z of mean(log p + entropy): were the tokens drawn as the sampler says?"
        rows.append([name, small(comparison.entropy_z), "", ""])
    listed = table(["", "value", "95 % by prompt", ""], rows, frozenset({1, 2}))
    return f"<h3>How far they differ</h3><p class='facts'>{counts}</p>{listed}"


def _effects(comparison: Comparison) -> str:
    if not comparison.effects:
        return ""
    rows = [
        [safe(title), f"{_percent(share)} of {over}", _percent(lost)]
        for title, over, share, lost in effect_rows(comparison)
    ]
    listed = table(["correction or clip", "acts on", "weight lost"], rows, frozenset({1, 2}))
    return f"<h3>What it does to training, at the usual caps</h3>{listed}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.2%}" if math.isfinite(share) else "n/a"


def _experts(
    experts: ExpertComparison | None, title: str = "Experts", replayed: Replayed | None = None
) -> str:
    if experts is None:
        return ""
    rows = [
        ["tokens with routing on both sides", f"{experts.tokens:,} ({experts.coverage:.1%})"],
        ["tokens with another expert in any layer", f"{experts.any_flip_rate:.2%}"],
        ["experts that are others, mean over tokens and layers", f"{experts.churn:.3%}"],
        ["tokens and layers routed just alike (1 under a replay)", _percent(experts.agreement)],
        ["mean |Δlogp| of tokens with a flip", small(experts.logprob_diff_flipped)],
        ["and of those without", small(experts.logprob_diff_kept)],
        ["rank correlation of flipped layers and |Δlogp|", small(experts.flips_to_gap)],
    ]
    layers = [
        [
            str(each.layer),
            f"{each.overlap:.2%}",
            f"{each.flipped_rate:.2%}",
            small(each.margin_flipped),
            small(each.margin_kept),
        ]
        for each in experts.layers
    ]
    told = f"<p>{safe(replay_line(replayed), limit=600)}</p>" if replayed else ""
    head = ["layer", "overlap", "tokens flipped", "margin, flipped", "margin, kept"]
    margins = [
        [f"{small(low)} to {small(high)}", f"{rate:.2%}", f"{count:,}"]
        for low, high, rate, count in experts.by_margin
    ]
    return (
        f"<h3>{title}</h3>{told}{table(['', ''], rows, frozenset({1}))}"
        + table(head, layers, frozenset(range(5)))
        + (
            table(["router margin", "flipped", "token-layers"], margins, frozenset({1, 2}))
            if margins
            else ""
        )
    )


def _worst_prompts(comparison: Comparison) -> str:
    rows = [
        [
            str(each.prompt),
            str(each.responses),
            small(each.prob_diff_mean),
            small(each.logprob_diff_mean),
            small(each.prob_diff_max),
        ]
        for each in comparison.worst_prompts
    ]
    if not rows:
        return ""
    head = ["prompt", "responses", "mean |Δp|", "mean |Δlogp|", "largest |Δp|"]
    return f"<h3>The prompts that differ most</h3>{table(head, rows, frozenset(range(5)))}"


def _worst(comparison: Comparison) -> str:
    cards = "".join(_response(each) for each in comparison.worst)
    return f"<h3>The responses that differ most</h3>{cards}" if cards else ""


def _response(worst: WorstResponse) -> str:
    first = max(0, worst.at - _MOST_MARKED // 2)
    last = min(len(worst.ids), first + _MOST_MARKED)
    pieces = worst.pieces or tuple(f"{each} " for each in worst.ids)
    marked = "".join(_token(worst, pieces, place) for place in range(first, last))
    before, after = "…" if first else "", "…" if last < len(worst.ids) else ""
    prompt = safe(worst.prompt_text, limit=600, lines=True)
    return (
        f'<article class="sample"><h3>prompt {worst.prompt}, sample {worst.sample} '
        f"<small>largest |Δp| {small(worst.prob_diff_max)} at token {worst.at}, mean |Δlogp| "
        f"{small(worst.logprob_diff_mean)}</small></h3>"
        + (f'<pre class="prompt">{prompt}</pre>' if prompt else "")
        + f"<pre>{before}{marked}{after}</pre></article>"
    )


def _token(worst: WorstResponse, pieces: Sequence[str], place: int) -> str:
    """A token, the redder the further apart its two probabilities are."""
    sampler, learner = worst.sampler_logprobs[place], worst.learner_logprobs[place]
    known = math.isfinite(sampler) and math.isfinite(learner)
    gap = abs(math.exp(min(sampler, 0.0)) - math.exp(min(learner, 0.0))) if known else 1.0
    text = safe(pieces[place], limit=80, lines=True)
    is_worst = place == worst.at
    if gap < 0.01 and not is_worst:  # fainter could not be seen
        return text
    share = max(min(1.0, gap / max(worst.prob_diff_max, 0.05)), 0.2 * is_worst)
    told = f"sampler {sampler:.3f}, learner {learner:.3f} nats"
    return f'<mark style="--heat:{share:.2f}" title="{told}">{text}</mark>'


def _engines(result: ProbeResult, names: Mapping[str, str]) -> str:
    rows = [
        [
            f"{safe(names.get(label, ''))}<p><code>{safe(label)}</code></p>",
            safe(engine_line(facts)),
            f"<small>{safe(settings_line(facts), limit=400)}</small>",
        ]
        for label, facts in result.engines.items()
    ]
    return f"<section><h2>The engines</h2>{table(['', '', ''], rows)}</section>" if rows else ""
