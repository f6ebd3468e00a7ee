"""A report as text, for a terminal or a pipe."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import table as rich_table
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from grpodoctor.report.distinct_names import distinct_names
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Codes,
    Column,
    Group,
    Heading,
    Inline,
    Paragraph,
    Remedy,
    Response,
    Section,
    Setting,
    SideBySide,
    Table,
    Tone,
    View,
    brief_blocks,
    on_one_line,
    spans,
    tokens_around_worst,
)
from grpodoctor.support.safe_text import plain

TONE_STYLES: dict[Tone, str] = {
    "good": "green",
    "info": "bold blue",
    "warning": "bold yellow",
    "critical": "bold red",
}
"""Terminal styles of tones and severities."""

_MIN_WIDTH = 40
_SCREEN = 40
"""Lines of a terminal; after a longer report the result is repeated at its end."""
_COMMENT = "# "
_GAP = 2
"""Columns between two columns of a table."""
_NARROW = 16
"""Width that a name keeps in a narrow table."""
_MIN_TABLE_WIDTH = 72
"""Narrower terminals get a list instead of a wide table."""
_MIN_WRAPPED_WIDTH = 80
"""The same for a table of names and texts."""

_WORD = re.compile(r"\S+")
_PART_OF_NAME = re.compile(r"[^\s/]+/?|/")
"""A word, or the part of a name up to a slash."""

_SPAN_STYLES = {"plain": "", "code": "", "strong": "bold", "faint": "dim", "unbroken": ""}
_PARAGRAPH_STYLES = {"normal": "", "faint": "dim", "lead": "bold", "warning": "yellow"}
_BULLETS = {
    "normal": ("-", ""),
    "advice": ("do:", "cyan"),
    "overview": ("", ""),
    "explains": ("explains:", ""),
    "check": ("check:", ""),
}


def render(view: View, *, width: int = 80, color: bool = False) -> str:
    """The report as text, on one screen where a shorter form of it fits.

    Args:
        view: the report.
        width: columns to wrap at; settings to copy are never wrapped.
        color: whether to write terminal colors.
    """
    while True:
        lines = list(_TextRenderer(width, color=color).lines(view))
        text = _print(lines, width=width, color=color)
        if text.count("\n") <= _SCREEN:
            return text
        shorter = view.shorter()
        if shorter is None:
            break
        view = shorter
    return text + _print(["", _verdict(view)], width=width, color=color)


def renderables(content: View | Sequence[Block], width: int) -> Iterator[RenderableType]:
    """A report or some blocks for an interactive screen; settings to copy are folded.

    Args:
        content: the report or the blocks; of each `Detail`, the brief form is shown.
        width: columns of the screen.
    """
    renderer = _TextRenderer(width, color=True)
    lines = renderer.lines(content) if isinstance(content, View) else renderer.blocks(content)
    for line in lines:
        if isinstance(line, Text) and line.no_wrap:
            line.no_wrap, line.overflow = False, "fold"
        yield line


def _verdict(view: View) -> Text:
    text = _spans(view.diagnosis, badges_in_capitals=True)
    text.style = "bold"
    return text


def _print(parts: Iterable[RenderableType], *, width: int, color: bool) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, _MIN_WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


class _TextRenderer:
    """Translates a view to rich renderables, one per line or table."""

    def __init__(self, width: int, *, color: bool) -> None:
        self._width = width
        self._color = color
        self._explained: dict[str, str] = {}
        """The remedies that were printed already, with the code of their finding."""
        self._code = ""
        """The finding whose card is printed."""

    def lines(self, view: View) -> Iterator[RenderableType]:
        yield _verdict(view)
        yield from self._settings(view.actions, 2)
        yield Text(plain(view.heading), style="bold", no_wrap=True)
        yield Text(plain(view.facts), style="dim")
        yield from (Text(plain(warning), style="yellow") for warning in view.warnings)
        for block in brief_blocks(view.blocks):
            yield ""
            yield from self._block(block, 0)

    def blocks(self, blocks: Sequence[Block], indent: int = 0) -> Iterator[RenderableType]:
        for block in brief_blocks(blocks):
            yield from self._block(block, indent)

    def _block(  # noqa: C901 - one case per kind of block
        self, block: Block, indent: int
    ) -> Iterator[RenderableType]:
        match block:
            case Paragraph():
                yield _indented(_inline(block), indent)
            case Bullets():
                yield _indented(_bullets(block), indent)
            case Codes():
                yield _indented(Text(plain(", ".join(block.codes))), indent)
            case Heading():
                yield _indented(Text(plain(block.text), style="bold"), indent)
            case Table():
                yield from self._table(block, indent)
            case Remedy():
                yield from self._remedy(block, indent)
            case Card():
                yield from self._card(block, indent)
            case Response():
                yield from self._response(block, indent)
            case SideBySide():
                yield from self.blocks((*block.left, *block.right), indent)
            case Group():
                yield from self.blocks(block.blocks, indent)
            case Section():
                yield _indented(Text(plain(block.title), style="bold underline"), indent)
                yield from self.blocks(block.blocks, indent + 2)
            case _:  # charts
                return

    def _table(self, table: Table, indent: int) -> Iterator[RenderableType]:
        if table.narrow and self._width < (
            _MIN_WRAPPED_WIDTH if _wraps(table) else _MIN_TABLE_WIDTH
        ):
            yield from (_indented(_spans(line), indent) for line in table.narrow)
            return
        grid = rich_table.Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        widths = _column_widths(table, self._width - indent)
        for column, width in zip(table.columns, widths, strict=True):
            grid.add_column(
                plain(f"{column.title} {column.unit}"),
                justify="right" if column.numeric else "left",
                no_wrap=_is_one_line(column),
                overflow="ellipsis" if column.cut else "fold",
                width=width,
            )
        columns = [[_spans(row[place]) for row in table.rows] for place in range(len(widths))]
        for row in zip(*map(_fitted, columns, table.columns, widths), strict=True):
            cells = zip(row, table.columns, strict=True)
            grid.add_row(*(cell if _is_one_line(column) else _Cell(cell) for cell, column in cells))
        yield _indented(grid, indent)

    def _remedy(self, remedy: Remedy, indent: int) -> Iterator[RenderableType]:
        title = plain(remedy.title)
        if remedy.id:
            title = plain(f"remedy: {remedy.id} ({remedy.applied}): {remedy.title}")
        if remedy.id in self._explained:
            where = self._explained[remedy.id]
            yield _indented(Text(plain(f"remedy: {remedy.id}, as for {where}")), indent)
            return
        if remedy.id:
            self._explained[remedy.id] = self._code
        yield _indented(Text(title, style="" if remedy.id else "cyan"), indent)
        if remedy.note:
            yield _indented(Text(plain(remedy.note), style="dim"), indent + 2)
        yield from self._settings(remedy.settings, indent + 2)

    def _settings(self, settings: Sequence[Setting], indent: int) -> Iterator[RenderableType]:
        for setting in settings:
            if setting.copyable:  # stays on one line
                text = plain(setting.commented)
                if setting.note and indent + len(text) > self._width:
                    yield _indented(self._comment(setting.note, indent), indent)
                    text = plain(setting.text)
                yield Text(" " * indent + text, style="cyan", no_wrap=True)
            else:
                yield _indented(Text(plain(setting.commented), style="cyan"), indent)

    def _comment(self, note: str, indent: int) -> Text:
        """A comment above a setting; each of its lines may be pasted with the setting."""
        width = max(self._width, _MIN_WIDTH) - indent - len(_COMMENT)
        lines = textwrap.wrap(plain(note), width, break_on_hyphens=False)
        return Text("\n".join(f"{_COMMENT}{line}" for line in lines), style="cyan")

    def _card(self, card: Card, indent: int) -> Iterator[RenderableType]:
        head = Text.assemble(
            (card.badge.upper(), TONE_STYLES[card.tone]),
            "  ",
            (plain(f"{card.code} {card.title}"), "bold"),
        )
        if card.note:
            head.append(f"  {card.note}", style="dim")
        yield _indented(head, indent)
        self._code = card.code
        yield from self.blocks((*card.body, *card.advice), indent + 2)
        for reference in card.references:
            yield _indented(Text(plain(f"see: {reference}"), style="dim"), indent + 2)

    def _response(self, response: Response, indent: int) -> Iterator[RenderableType]:
        title = plain(f"{response.title}: {response.facts}")
        yield _indented(Text(title), indent)
        if response.tokens:
            yield _indented(self._tokens(response), indent + 2)

    def _tokens(self, response: Response) -> Text:
        line = Text()
        for token in tokens_around_worst(response):
            piece = on_one_line(token)
            if token.worst:
                line.append(piece if self._color else f"»{piece}«", "reverse")
            else:
                line.append(piece, "dim")
        return line


@dataclass(frozen=True)
class _Cell:
    """A cell of several lines; a name that is wider than its column is broken after a slash."""

    text: Text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """At least the longest word, or the longest part of a name."""
        longest = max(map(len, _PART_OF_NAME.findall(self.text.plain)), default=0)
        return Measurement(longest, self.text.cell_len)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the text with its names broken."""
        breaks = [
            place
            for word in _WORD.finditer(self.text.plain)
            for place in _breaks(word.group(), word.start(), options.max_width)
        ]
        yield Text("\n", end="").join(self.text.divide(breaks))


def _breaks(word: str, start: int, width: int) -> Iterator[int]:
    """Where to break a word so that its parts fit."""
    if len(word) <= width:
        return
    length = 0
    for part in _PART_OF_NAME.finditer(word):
        if length and length + len(part.group()) > width:
            yield start + part.start()
            length = 0
        length += len(part.group())


def _is_one_line(column: Column) -> bool:
    return column.numeric or column.unbroken or column.cut


def _column_widths(table: Table, width: int) -> list[int | None]:
    """The widths of the columns of a table; None for those that rich may choose.

    Numbers and headings stay whole. Beside a column that is cut, each column of names or text gets
    what it needs, but at most two fifths of the rest; the last one gets the rest. In a table of
    names and numbers that does not fit, names give way.
    """
    needed = [
        max(
            len(f"{column.title} {column.unit}".rstrip()),
            *(_spans(row[place]).cell_len for row in table.rows),
        )
        for place, column in enumerate(table.columns)
    ]
    rest = width - _GAP * len(needed)
    if any(column.cut for column in table.columns):
        return list(_cut_widths(table, needed, rest))
    names = [place for place, column in enumerate(table.columns) if column.unbroken]
    is_wrapped = not all(column.numeric or column.unbroken for column in table.columns)
    if sum(needed) <= rest or not names or is_wrapped:
        return [None] * len(needed)
    rest -= sum(need for place, need in enumerate(needed) if place not in names)
    share = max(_NARROW, rest // len(names))
    return [min(need, share) if place in names else need for place, need in enumerate(needed)]


def _cut_widths(table: Table, needed: list[int], rest: int) -> list[int]:
    """The widths of a table with columns that are cut; text in others breaks into lines.

    Args:
        table: the table.
        needed: the width that each column needs.
        rest: columns of the terminal without the gaps.
    """
    elastic = [place for place, column in enumerate(table.columns) if _is_elastic(column)]
    rest = max(0, rest - sum(need for place, need in enumerate(needed) if place not in elastic))
    widths = list(needed)
    for place in elastic:
        widths[place] = min(needed[place], rest if place == elastic[-1] else rest * 2 // 5)
        rest -= widths[place]
    return [max(1, each) for each in widths]


def _wraps(table: Table) -> bool:
    """Whether cells of a table with names break into lines, which breaks words if it is narrow."""
    return any(column.unbroken for column in table.columns) and any(
        not _is_one_line(column) for column in table.columns
    )


def _is_elastic(column: Column) -> bool:
    return column.cut or not (column.numeric or column.unbroken)


def _fitted(cells: list[Text], column: Column, width: int | None) -> list[Text]:
    """The cells of a column, with the middle of a name left out if it does not fit.

    The end of a name usually tells names apart, so half of the letters are from there; more if two
    names would look the same otherwise.
    """
    if width is None or not column.unbroken:
        return cells
    if column.cut:
        names = distinct_names([cell.plain for cell in cells], width)
        return [Text(name, cell.style) for name, cell in zip(names, cells, strict=True)]
    ends = range((width - 1) // 2, max(width - 1, 1))
    shortened = ([_shortened(cell, width, end) for cell in cells] for end in ends)
    return max(shortened, key=lambda names: len({name.plain for name in names}), default=cells)


def _shortened(name: Text, width: int, end: int) -> Text:
    """A name without the letters between its start and its end."""
    if name.cell_len <= width:
        return name
    return Text.assemble(name[: width - 1 - end], "…", name[len(name) - end :])


def _inline(paragraph: Paragraph) -> Text:
    text = _spans(paragraph.text, badges_in_capitals=paragraph.style in {"lead", "warning"})
    text.style = _PARAGRAPH_STYLES[paragraph.style]
    return text


def _spans(inline: Inline, *, badges_in_capitals: bool = False) -> Text:
    text = Text()
    for span in spans(inline):
        if text.plain and not text.plain.endswith(" "):
            text.append(" ")
        words = plain(span.text)
        if span.style == "badge":
            style = TONE_STYLES[span.tone] if span.tone else ""
            text.append(words.upper() if badges_in_capitals else words, style)
            text.append("  ")
        else:
            text.append(words, TONE_STYLES[span.tone] if span.tone else _SPAN_STYLES[span.style])
    text.rstrip()
    return text


def _bullets(bullets: Bullets) -> rich_table.Table:
    marker, style = _BULLETS[bullets.style]
    grid = rich_table.Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for item in bullets.items:
        grid.add_row(Text(marker, style), Text.assemble(_spans(item), style=style))
    return grid


def _indented(renderable: RenderableType, columns: int) -> RenderableType:
    return Padding(renderable, (0, 0, 0, columns)) if columns else renderable
