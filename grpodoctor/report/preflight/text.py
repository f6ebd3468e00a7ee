"""A preflight's findings for a terminal, or for a pipe."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from grpodoctor.preflight.rows import MOST_ROWS
from grpodoctor.preflight.run import NotMade, Preflight, Seen
from grpodoctor.report.console import indented, printed
from grpodoctor.report.run.phrases import SEVERITY_STYLES, counted
from grpodoctor.support.safe_text import plain


def render(found: Preflight, *, width: int = 80, colour: bool = False) -> str:
    """The findings as text.

    Args:
        found: what to show.
        width: columns to wrap at.
        colour: write terminal colours.
    """
    return printed(_parts(found), width=width, colour=colour)


def facts_line(found: Preflight) -> str:
    """What was examined."""
    first = "the first " if found.rows == MOST_ROWS else ""
    asked = f", {found.asked} of them asked" if found.asked else ""
    return f"{first}{counted(found.rows, 'prompt')}{asked} · {found.seconds:.0f} s"


def filtered_line(found: Preflight) -> str:
    """What became of the prompts that were to be filtered; empty if none were."""
    if found.filtered is None:
        return ""
    more = found.rows - found.asked
    rest = f"; the {more} others were not asked, see --limit" if more else ""
    return f"{found.filtered} of {found.asked} prompts are of the right difficulty: written{rest}"


def tally(found: Preflight) -> str:
    """How many findings of each severity, and how many checks were made."""
    counts = {
        severity: sum(each.severity == severity for each in found.seen)
        for severity in ("critical", "warning", "info")
    }
    told = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    more = [f"{counted(len(found.passed), 'check')} with nothing to say"]
    if found.skipped:
        more.append(f"{len(found.skipped)} skipped")
    if found.failed:
        more.append(f"{len(found.failed)} failed")
    return f"{told or 'nothing found'}; {', '.join(more)}"


def _parts(found: Preflight) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(plain(found.model), style="bold"),
        Text(facts_line(found), style="dim"),
    ]
    for seen in found.seen:
        parts += ["", *_seen(seen)]
    if written := filtered_line(found):
        parts += ["", Text(written)]
    for title, entries in (("Failed", found.failed), ("Skipped", found.skipped)):
        if entries:
            parts += ["", Text(title, style="bold underline")]
            for entry in entries:
                parts += _entry(entry)
    return [*parts, "", Text(tally(found), style="bold")]


def _seen(seen: Seen) -> list[RenderableType]:
    remark = seen.remark
    title = Text.assemble(
        (seen.severity.upper(), SEVERITY_STYLES[seen.severity]),
        "  ",
        (f"{seen.code} {seen.name}", "bold"),
    )
    return [
        title,
        indented(plain(remark.summary)),
        *(indented(plain(each, limit=300), "dim", 4) for each in remark.details),
        *(indented(plain(f"do: {each}"), "cyan") for each in remark.advice),
    ]


def _entry(entry: NotMade) -> list[RenderableType]:
    parts: list[RenderableType] = [indented(plain(f"{entry.code} {entry.name}: {entry.why}"))]
    if entry.how:
        parts.append(indented(plain(entry.how), "dim", 4))
    return parts
