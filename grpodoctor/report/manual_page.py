"""Manual pages of rules and remedies as Markdown."""

from __future__ import annotations


def manual_markdown(manual: str, level: str = "##") -> str:
    """A manual page as Markdown; its sections are indented under `Heading:`.

    The lines of a paragraph are joined: a wrapped line that begins with a number and a point would
    start a numbered list.

    Args:
        manual: the page.
        level: the mark of its headings.
    """
    lines: list[str] = []
    for line in manual.splitlines():
        text = line.strip()
        if line.endswith(":") and not line.startswith(" "):
            lines += [f"{level} {line[:-1]}", ""]
        elif text and lines and lines[-1] and not text.startswith("- "):
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return "\n".join(lines)
