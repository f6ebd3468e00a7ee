"""Draws the blocks of a report as Streamlit elements; all text in them is escaped and bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from grpodoctor.report.references import linked_reference
from grpodoctor.report.view import (
    Bullets,
    Card,
    Codes,
    Group,
    Heading,
    Inline,
    Paragraph,
    Remedy,
    Response,
    Section,
    SideBySide,
    Span,
    Table,
    Tone,
    code_parts,
    full_blocks,
    spans,
)
from grpodoctor.support.safe_text import code_span, plain, unlinked

PLOT_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "scrollZoom": False,
    "modeBarButtonsToRemove": ["lasso2d", "toImage", "autoScale2d"],
}
"""Plotly's buttons, the same on all charts."""

_LONGEST_TEXT = 2000
_LONGEST_CODE = 4000

TONE_COLORS: Mapping[Tone, str] = {
    "good": "green",
    "info": "blue",
    "warning": "orange",
    "critical": "red",
}
TONE_ICONS: Mapping[Tone, str] = {
    "good": ":material/check_circle:",
    "info": ":material/info:",
    "warning": ":material/warning:",
    "critical": ":material/dangerous:",
}
"""A badge has an icon and a word, so that its color is not needed."""


def badge_text(text: str, tone: Tone | None) -> str:
    """A badge as Markdown."""
    color, icon = (TONE_COLORS[tone], TONE_ICONS[tone]) if tone else ("gray", "")
    return f":{color}-badge[{icon} {unlinked(text, limit=80)}]"


def inline_text(inline: Inline) -> str:
    """Text on one line as Markdown."""
    return " ".join(_span(span) for span in spans(inline) if span.text)


def _span(span: Span) -> str:
    text = prose(span.text)
    match span.style:
        case "badge":
            return badge_text(span.text, span.tone)
        case "code" | "unbroken":
            return code_span(span.text, limit=_LONGEST_TEXT)
        case "strong":
            return f"**{text}**"
        case _ if span.link.startswith("https://"):
            return f"[{text}](<{span.link}>)"
        case "faint":
            return f":gray[{text}]"
        case _:
            return text


def prose(text: str) -> str:
    """A text as Markdown: escaped, except that what it has between backticks is code."""
    parts = code_parts(plain(text, limit=_LONGEST_TEXT))
    return "".join(
        code_span(part.text) if part.style == "code" else _escaped(part.text) for part in parts
    )


def _escaped(text: str) -> str:
    """Escaped text with the spaces at its ends, which `markdown` removes."""
    before, after = text[:1].isspace() * " ", text[-1:].isspace() * " "
    return f"{before}{unlinked(text)}{after}" if text.strip() else before


def show_blocks(blocks: Iterable[object]) -> None:
    """Draw blocks of a report, from top to bottom.

    Charts are left out: pages draw their own, which can be selected.
    """
    for block in full_blocks(blocks):  # type: ignore[arg-type]
        draw = _DRAWERS.get(type(block))
        if draw is not None:
            draw(block)


def _paragraph(block: Paragraph) -> None:
    text = inline_text(block.text)
    if block.style == "faint":
        st.caption(text)
    elif block.style == "warning":
        st.warning(text)
    else:
        st.markdown(text)


_BULLET_TITLES = {"explains": "Explains", "check": "To make sure"}


def _bullets(block: Bullets) -> None:
    lines = [f"- {inline_text(item)}" for item in block.items]
    title = _BULLET_TITLES.get(block.style)
    st.markdown("\n".join([*([f"**{title}**", ""] if title else []), *lines]))


def _codes(block: Codes) -> None:
    st.markdown(" ".join(code_span(code, limit=100) for code in block.codes))


def table_markdown(block: Table) -> str:
    """A table as Markdown: for short ones, which a screen reader can read."""
    heads = [f"{unlinked(c.title)} {unlinked(c.unit)}".strip() or " " for c in block.columns]
    rules = ["---:" if column.numeric else ":---" for column in block.columns]
    rows = [[inline_text(cell) or " " for cell in row] for row in block.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _table(block: Table) -> None:
    st.markdown(table_markdown(block))


def _remedy(block: Remedy) -> None:
    """A remedy with its settings in a box that has a copy button."""
    with st.container(border=True):
        badge = f" :gray-badge[{unlinked(block.applied)}]" if block.applicability else ""
        st.markdown(f"**{prose(block.title)}**{badge}")
        if block.id:
            st.caption(code_span(block.id, limit=100))
        if block.note:
            st.markdown(prose(block.note))
        copied: list[str] = []
        for setting in block.settings:
            if setting.copyable:
                copied.append(plain(setting.commented, limit=_LONGEST_CODE))
                continue
            _copyable(copied)
            st.markdown(prose(setting.text))
            copied = []
        _copyable(copied)


def _copyable(lines: list[str]) -> None:
    if lines:
        st.code("\n".join(lines), language=None, wrap_lines=True)


def _card(block: Card) -> None:
    badge = badge_text("resolved", "good") if block.resolved else ""
    title = f"{code_span(block.code)} **{unlinked(block.title)}**"
    note = f":gray[{unlinked(block.note)}]"
    st.markdown(f"{badge_text(block.badge, block.tone)} {title} {note} {badge}")
    show_blocks(block.body)
    show_blocks(block.advice)
    show_references(block.references)


def show_references(references: Iterable[str]) -> None:
    """Papers and issues; addresses become links."""
    lines = [f"- {inline_text(_joined(linked_reference(each)))}" for each in references]
    if lines:
        st.markdown("\n".join(["**References**", "", *lines]))


def _joined(parts: tuple[Span, ...]) -> tuple[Span, ...]:
    """The parts without the spaces at their ends, which `inline_text` puts back."""
    return tuple(replace(part, text=part.text.strip()) for part in parts if part.text.strip())


def own_markdown(text: str) -> str:
    """Our own Markdown, such as a manual page, without signs that Streamlit reads as its own."""
    return text.replace("$", r"\$").replace("~", r"\~")


def _response(block: Response) -> None:
    st.markdown(f"{code_span(block.title)} {unlinked(block.facts)}")
    if block.reason:
        st.caption(unlinked(block.reason))
    if block.prompt:
        st.code(block.prompt, language=None, wrap_lines=True)
    st.code(block.text, language=None, wrap_lines=True)


def _section(block: Section) -> None:
    st.markdown(f"##### {unlinked(block.title)}")
    show_blocks(block.blocks)


def _heading(block: Heading) -> None:
    st.markdown(f"**{unlinked(block.text)}**")


def _group(block: Group) -> None:
    show_blocks(block.blocks)


def _side_by_side(block: SideBySide) -> None:
    left, right = st.columns(2)
    with left:
        show_blocks(block.left)
    with right:
        show_blocks(block.right)


_DRAWERS: dict[type, Callable[[Any], None]] = {
    Paragraph: _paragraph,
    Bullets: _bullets,
    Codes: _codes,
    Table: _table,
    Remedy: _remedy,
    Card: _card,
    Response: _response,
    Section: _section,
    Heading: _heading,
    Group: _group,
    SideBySide: _side_by_side,
}
