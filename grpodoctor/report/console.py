"""Rich renderables as the lines of a terminal, or of a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

_NARROWEST = 40


def printed(parts: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """The parts one below the other.

    Args:
        parts: to print; a `Text` with `no_wrap` is to be copied and stays on its line.
        width: columns to wrap the others at.
        colour: write terminal colours.
    """
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, _NARROWEST),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def indented(text: str, style: str = "", columns: int = 2) -> Padding:
    """A text that stands, with all its lines, some columns to the right."""
    return Padding(Text(text, style=style), (0, 0, 0, columns))
