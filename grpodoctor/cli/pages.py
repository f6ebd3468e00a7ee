"""How lists and manual pages are printed."""

from __future__ import annotations


def json_text(data: object) -> str:
    """Indented JSON that is safe to print on a terminal."""
    from grpodoctor.support.safe_text import json_bytes

    return json_bytes(data, indent=True).decode()


def manual_markdown(manual: str) -> str:
    """A manual page as Markdown; its sections are indented under `Heading:`."""
    lines: list[str] = []
    for line in manual.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            lines += [f"## {line[:-1]}", ""]
        else:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines)
