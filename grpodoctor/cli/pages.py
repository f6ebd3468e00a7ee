"""How lists and pages are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpodoctor.cli.options import PageFormat


def print_page(text: str, output_format: PageFormat) -> None:
    """Print a list or a page; plain text is wrapped at the width of a terminal.

    Args:
        text: the list or the page in that format.
        output_format: its format.
    """
    if output_format == "text":
        from grpodoctor.cli.wrapped_text import for_terminal

        text = for_terminal(text)
    print(text)


def json_text(data: object) -> str:
    """Indented JSON that is safe to print on a terminal."""
    from grpodoctor.support.safe_text import json_bytes

    return json_bytes(data, indent=True).decode()
