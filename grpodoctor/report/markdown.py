"""A report as GitHub-flavored Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from grpodoctor.report.view import (
    Block,
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
    Setting,
    SideBySide,
    Span,
    Table,
    View,
    brief_blocks,
    on_one_line,
    spans,
    tokens_around_worst,
)
from grpodoctor.support.safe_text import code_span, markdown

_MARKERS = {
    "advice": "- **Do:** ",
    "explains": "- **Explains:** ",
    "check": "- **Check:** ",
}
_NUMBER = re.compile(r"[A-Za-z0-9 .,+%-]*", re.ASCII)
"""Needs no escaping in a table cell."""


def render(view: View) -> str:
    """The report as Markdown."""
    lines = [f"# {markdown(view.page_title)}", "", _diagnosis(view.diagnosis), ""]
    if view.actions:
        lines += [*(f"- {_setting(setting)}" for setting in view.actions), ""]
    lines.append(markdown(view.facts))
    for warning in view.warnings:
        lines += ["", f"> {markdown(warning)}"]
    lines += _blocks(view.blocks, level=2)
    return "\n".join(lines) + "\n"


def _diagnosis(diagnosis: Inline) -> str:
    if isinstance(diagnosis, str):
        return f"**{markdown(diagnosis)}**"
    return _inline(diagnosis)


def _blocks(blocks: Sequence[Block], *, level: int) -> Iterator[str]:
    previous: Block | None = None
    for block in brief_blocks(blocks):
        lines = list(_block(block, level))
        if lines:
            if not (isinstance(previous, Remedy) and isinstance(block, Remedy)):
                yield ""
            yield from lines
            previous = block


def _block(block: Block, level: int) -> Iterator[str]:  # noqa: C901 - one case per kind of block
    match block:
        case Paragraph():
            yield _inline(block.text)
        case Bullets():
            marker = _MARKERS.get(block.style, "- ")
            yield from (f"{marker}{_inline(item)}" for item in block.items)
        case Codes():
            yield ", ".join(code_span(code) for code in block.codes)
        case Heading():
            yield f"{'#' * level} {markdown(block.text)}"
        case Table():
            yield from _table(block)
        case Remedy():
            yield from _remedy(block)
        case Card():
            yield from _card(block, level)
        case Response():
            yield f"- {markdown(block.title)}: {markdown(block.facts)}"
            tokens = tokens_around_worst(block)
            words = (f"»{on_one_line(t)}«" if t.worst else on_one_line(t) for t in tokens)
            yield f"  - {code_span(''.join(words))}"
        case SideBySide():
            yield from list(_blocks((*block.left, *block.right), level=level))[1:]
        case Group():
            yield from list(_blocks(block.blocks, level=level))[1:]
        case Section():
            yield f"{'#' * level} {markdown(block.title)}"
            yield from _blocks(block.blocks, level=level + 1)
        case _:  # charts
            return


def _table(table: Table) -> Iterator[str]:
    yield _row([markdown(f"{column.title} {column.unit}") for column in table.columns])
    yield "|" + "|".join("---:" if column.numeric else "---" for column in table.columns) + "|"
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        yield _row([_cell(cell, numeric=column.numeric) for column, cell in cells])


def _cell(cell: Inline, *, numeric: bool) -> str:
    if numeric and isinstance(cell, str) and _NUMBER.fullmatch(cell):
        return cell
    return _inline(cell)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _remedy(remedy: Remedy) -> Iterator[str]:
    title = markdown(remedy.title)
    if remedy.id:
        title = f"**{markdown(remedy.id)}** ({markdown(remedy.applied)}): {title}"
    yield f"- {title}"
    if remedy.note:
        yield f"  - {markdown(remedy.note)}"
    yield from (f"  - {_setting(setting)}" for setting in remedy.settings)


def _setting(setting: Setting) -> str:
    return code_span(setting.commented) if setting.copyable else markdown(setting.text)


def _card(card: Card, level: int) -> Iterator[str]:
    note = f", {markdown(card.note)}" if card.note else ""
    title = markdown(f"{card.code} {card.title}")
    yield f"{'#' * level} {markdown(card.badge)}: {title}{note}"
    yield from _blocks(card.body, level=level + 1)
    yield from _blocks(card.advice, level=level + 1)
    if card.references:
        yield ""
        yield from (f"- See {markdown(reference)}" for reference in card.references)


def _inline(inline: Inline) -> str:
    return " ".join(filter(None, (_span(span) for span in spans(inline))))


def _span(span: Span) -> str:
    if span.style == "code":
        return code_span(span.text)
    text = markdown(span.text)
    return f"**{text}**" if text and span.style in {"strong", "badge"} else text
