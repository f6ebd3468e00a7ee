"""The view model: what a report shows, independent of the output format.

`run`, `probe` and `preflight` each translate their results to a `View`; `text`, `markdown` and
`html` each render any `View`. Text in a view may come from a model or a log: the renderers make
it harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from grpodoctor.support.safe_text import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_TOKENS_BEFORE, _TOKENS_AFTER = 12, 7
_MAX_TOKEN_LETTERS = 40

Tone = Literal["good", "info", "warning", "critical"]

SpanStyle = Literal["plain", "code", "strong", "faint", "badge", "unbroken"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text with one style."""

    text: str
    style: SpanStyle = "plain"
    tone: Tone | None = None
    """Color of a badge."""
    link: str = ""
    """Anchor on the same page, or `https` address, that the text links to."""


_CODE = re.compile(r"`([^`\n]+)`")


def code_parts(text: str) -> tuple[Span, ...]:
    """The parts of a text, those between backticks as code; together they are the whole text."""
    parts = _CODE.split(text)
    styled = (Span(part, "code" if at % 2 else "plain") for at, part in enumerate(parts))
    return tuple(span for span in styled if span.text)


Inline = str | Span | tuple[str | Span, ...]
"""Text on one line; the spans of a tuple are separated by a space."""


def spans(inline: Inline) -> tuple[Span, ...]:
    """The text as a sequence of spans."""
    parts = inline if isinstance(inline, tuple) else (inline,)
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def code(text: str) -> Span:
    """A code, a key or a metric name."""
    return Span(text, "code")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of text."""

    kind: ClassVar[str] = "paragraph"
    text: Inline
    style: Literal["normal", "faint", "lead", "warning"] = "normal"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of short texts."""

    kind: ClassVar[str] = "bullets"
    items: tuple[Inline, ...]
    style: Literal["normal", "advice", "overview", "explains", "check"] = "normal"
    """`advice`: things to do; `overview`: links to the findings below; `explains`: symptoms of a
    cause; `check`: what would confirm or exclude it."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A run of codes or keys, such as the rules without findings."""

    kind: ClassVar[str] = "codes"
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a table column."""

    title: str
    numeric: bool = False
    unit: str = ""
    """Printed after the title, never broken across lines."""
    unbroken: bool = False
    """Whether cells stay on one line of a terminal, such as names; where a table does not fit, the
    middle of a name is left out."""
    cut: bool = False
    """Whether cells are cut to stay on one line of a terminal, at their end or, if `unbroken`, in
    their middle."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has one cell per column."""

    kind: ClassVar[str] = "table"
    columns: tuple[Column, ...]
    rows: tuple[tuple[Inline, ...], ...]
    narrow: tuple[Inline, ...] = ()
    """One line per row for terminals that are too narrow for the table."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A line to copy into a configuration, or an instruction for a person."""

    text: str
    copyable: bool = True
    note: str = ""
    """A remark on the line."""
    explains: bool = False
    """Whether it explains the remedy; a short report leaves it out, unlike a setting to make."""

    @property
    def commented(self) -> str:
        """The line, followed by the remark as a comment."""
        return f"{self.text}  # {self.note}" if self.note else self.text


_APPLIED = {
    "safe": "safe: reversible while the run goes on",
    "unsafe": "unsafe: changes the objective",
    "suggest": "manual: restart or check",
}
"""The applicability of a remedy, as reports state it."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that the reader can make."""

    kind: ClassVar[str] = "remedy"
    title: str
    settings: tuple[Setting, ...]
    id: str = ""
    """Id of the remedy; later occurrences of the same id are shortened in plain text."""
    applicability: str = ""
    note: str = ""
    """Shown between the title and the settings."""

    @property
    def applied(self) -> str:
        """How the change is applied."""
        return _APPLIED.get(self.applicability, self.applicability)


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, or a cause: a headline, the facts, and what to do."""

    kind: ClassVar[str] = "card"
    tone: Tone
    badge: str
    code: str
    title: str
    note: str = ""
    """Shown after the title: since when, or how much it explains."""
    body: tuple[Block, ...] = ()
    advice: tuple[Block, ...] = ()
    references: tuple[str, ...] = ()
    """Papers and issues."""
    anchor: str = ""
    resolved: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a response."""

    text: str
    heat: float = 0.0
    """How strongly it is marked, from 0 to 1."""
    title: str = ""
    worst: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """One response, either as text or token by token."""

    kind: ClassVar[str] = "response"
    title: str
    facts: str
    reason: str = ""
    prompt: str = ""
    text: str = ""
    tokens: tuple[Token, ...] = ()
    cut_before: bool = False
    """Whether tokens before the first one are left out."""
    cut_after: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """An interactive chart."""

    caption: str
    figure: Figure
    words: str
    """The content of the chart, for those who cannot see it."""


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts next to each other; only HTML has them."""

    kind: ClassVar[str] = "charts"
    charts: tuple[Chart, ...]
    min_width: int = 0
    """Pixels that each chart needs; 0 puts as many next to each other as the page allows."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two columns on a wide page, one after the other elsewhere."""

    kind: ClassVar[str] = "side-by-side"
    left: tuple[Block, ...]
    right: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that belong together, without their own heading."""

    kind: ClassVar[str] = "group"
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Detail:
    """Content with a full form for HTML and a brief form for text and Markdown."""

    full: Callable[[], Iterable[Block]]
    """Called only for HTML: drawing charts and reading responses takes time."""
    brief: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report under its own heading."""

    kind: ClassVar[str] = "section"
    title: str
    blocks: tuple[Block, ...]
    anchor: str = ""


Block = (
    Paragraph
    | Bullets
    | Codes
    | Table
    | Remedy
    | Card
    | Response
    | Charts
    | Heading
    | SideBySide
    | Group
    | Detail
    | Section
)


@dataclass(frozen=True, slots=True)
class View:
    """A whole report."""

    product: str
    """`grpodoctor`, `grpodoctor probe` or `grpodoctor preflight`."""
    page_title: str
    """Title of the browser window, and of the Markdown document."""
    heading: str
    facts: str
    """What was examined, on one line."""
    diagnosis: Inline
    """The result, in one sentence."""
    warnings: tuple[str, ...]
    """What the reader has to know about the data: damaged lines, prompts left out."""
    blocks: tuple[Block, ...]
    json: Callable[[], dict[str, Any]]
    """The same report for programs."""
    actions: tuple[Setting, ...] = ()
    """What to type first, shown right after the result."""
    shorter: Callable[[], View | None] = lambda: None
    """The same report with less detail, for a terminal on which it does not fit; None if there is
    no shorter one."""


def tokens_around_worst(response: Response) -> tuple[Token, ...]:
    """The worst token of a response with a few tokens before and after it."""
    tokens = response.tokens
    at = next((place for place, token in enumerate(tokens) if token.worst), 0)
    return tokens[max(0, at - _TOKENS_BEFORE) : at + 1 + _TOKENS_AFTER]


def on_one_line(token: Token) -> str:
    """The text of a token without line breaks and tabs; its spaces are kept."""
    text = plain(token.text, limit=_MAX_TOKEN_LETTERS, lines=True)
    return text.replace("\n", "↵").replace("\t", " ")


def full_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The blocks with every `Detail` replaced by its full form."""
    return [
        block
        for outer in blocks
        for block in (full_blocks(outer.full()) if isinstance(outer, Detail) else [outer])
    ]


def brief_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The blocks with every `Detail` replaced by its brief form."""
    return [
        block
        for outer in blocks
        for block in (brief_blocks(outer.brief) if isinstance(outer, Detail) else [outer])
    ]
