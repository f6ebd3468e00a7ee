"""Responses as HTML: tokens colored by a figure, and differences marked. All text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.monitor.dashboard.responses import Passage, TokenFigures
from grpodoctor.monitor.vitals import format_number
from grpodoctor.probe.results.token_text import texts_of
from grpodoctor.report.figures import COLORS
from grpodoctor.support.safe_text import html
from grpodoctor.trainer.model.tokenizer import CharTokenizer

MOST_TOKENS = 1000
"""Tokens that are shown at a time: a page with more responds slowly."""
_LONGEST_TOKEN = 60
_BUILTIN = "builtin"


@dataclass(frozen=True, slots=True)
class Coloring:
    """How a figure colors tokens."""

    column: str
    title: str
    full: float
    """Value with the full color."""
    legend: str
    is_log: bool = False
    """Whether the color shows the logarithm of the value."""


COLORINGS = (
    Coloring("mismatch", "Mismatch |Δp|", 0.5, "Full color: the probabilities differ by 0.5."),
    Coloring("entropy", "Entropy", 2.0, "Full color: 2 nats or more."),
    Coloring("ratio", "Ratio learner/sampler", math.log(2), "Orange: the learner finds the token "
             "more probable than the sampler did; blue: less. Full color: a factor of two.",
             is_log=True),
    Coloring("clipped", "Outside the clip range", 1.0, "Colored: the ratio of learner to sampler "
             "lies outside the clip range on the side that this advantage clips."),
    Coloring("advantage", "Advantage", 2.0, "Orange: positive; blue: negative. All tokens of a "
             "response have the same advantage. Full color: 2."),
)  # fmt: skip
"""The figures that tokens can be colored by."""

_NAMES = {
    "entropy": "entropy", "advantage": "advantage", "ratio": "ratio", "clipped": "clipped",
    "mismatch": "|Δp|", "learner": "learner logp", "sampler": "sampler logp",
}  # fmt: skip


def token_texts(model: str, ids: Sequence[int | None]) -> list[str]:
    """The texts of tokens; `⟨id⟩` where the model has no local tokenizer.

    Args:
        model: the run's model: a name or a folder.
        ids: the tokens.
    """
    if model.startswith(_BUILTIN):
        decode = CharTokenizer().decode
        return ["" if token is None else decode([token]) or f"⟨{token}⟩" for token in ids]
    texts: Mapping[int, str] = texts_of(model) if model else {}
    return ["" if token is None else texts.get(token) or f"⟨{token}⟩" for token in ids]


def colored_tokens(
    figures: TokenFigures, texts: Sequence[str], coloring: Coloring, first: int = 0
) -> str:
    """Tokens as HTML, with the figures of each in its title.

    Args:
        figures: the figures of all tokens of the response.
        texts: the texts of all tokens.
        coloring: the figure that colors them.
        first: number of the first token shown; at most `MOST_TOKENS` follow.
    """
    values = figures.columns.get(coloring.column, ())
    shown = range(first, min(first + MOST_TOKENS, len(texts)))
    spans = (
        f'<span style="{_style(values[at] if at < len(values) else None, coloring)}" '
        f'title="{html(_title(figures, at))}">{_visible(texts[at])}</span>'
        for at in shown
    )
    return _box("".join(spans))


def _title(figures: TokenFigures, at: int) -> str:
    known = (
        f"{_NAMES[name]} {format_number(column[at])}"
        for name, column in figures.columns.items()
        if column[at] is not None
    )
    identity = [] if figures.ids[at] is None else [f"id {figures.ids[at]}"]
    return " · ".join([f"token {at}", *identity, *known])


def _style(value: float | None, coloring: Coloring) -> str:
    if value is None:
        return ""
    signed = math.log(max(value, 1e-30)) if coloring.is_log else value
    share = min(1.0, abs(signed) / coloring.full)
    color = COLORS["amber" if signed >= 0 else "blue"]
    return f"background:{color}{round(200 * share):02x}" if share > 0.02 else ""


def _visible(text: str) -> str:
    """The text of a token; a line break is shown and made."""
    return html(text.replace("\n", "↵\n"), limit=_LONGEST_TOKEN, lines=True)


def marked_passages(passages: Iterable[Passage]) -> str:
    """A response as HTML, with the passages marked that differ from another response."""
    return _box(
        "".join(
            f"<mark>{html(passage.text, lines=True)}</mark>"
            if passage.is_different
            else html(passage.text, lines=True)
            for passage in passages
        )
    )


def _box(content: str) -> str:
    style = (
        "white-space:pre-wrap;overflow-wrap:anywhere;font-family:ui-monospace,monospace;"
        "font-size:13px;line-height:1.6;max-height:460px;overflow-y:auto"
    )
    return f'<div style="{style}" tabindex="0">{content}</div>'
