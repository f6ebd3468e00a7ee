"""How lists and manual pages are printed."""

from __future__ import annotations

from enum import StrEnum


class PageFormat(StrEnum):
    """How a manual page or a list is printed."""

    text = "text"
    json = "json"
    markdown = "markdown"


def json_text(data: object) -> str:
    """JSON for people and programs: indented, and harmless on a terminal."""
    from grpodoctor.support.safe_text import json_bytes

    return json_bytes(data, indent=True).decode()


def manual_markdown(manual: str) -> str:
    """A manual page, whose sections are indented under `Heading:`, as Markdown."""
    lines: list[str] = []
    for line in manual.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            lines += [f"## {line[:-1]}", ""]
        else:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines)
