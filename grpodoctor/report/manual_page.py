"""Manual pages of rules and remedies as Markdown."""

from __future__ import annotations


def manual_markdown(manual: str, level: str = "##") -> str:
    """A manual page as Markdown; its sections are indented under `Heading:`.

    Args:
        manual: the page.
        level: the mark of its headings.
    """
    lines: list[str] = []
    for line in manual.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            lines += [f"{level} {line[:-1]}", ""]
        else:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines)
