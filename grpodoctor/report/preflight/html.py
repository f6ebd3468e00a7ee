"""A preflight's findings as one HTML file that opens offline."""

from __future__ import annotations

from grpodoctor.preflight.run import NotMade, Preflight, Seen
from grpodoctor.report.html_page import document, table
from grpodoctor.report.preflight.text import facts_line, filtered_line, tally
from grpodoctor.support.safe_text import html as safe


def render(found: Preflight) -> str:
    """The findings as an HTML document."""
    body = "".join(
        (
            "<header><p class='eyebrow'>grpodoctor preflight</p>",
            f"<h1>{safe(found.model)}</h1><p class='facts'>{safe(facts_line(found))}</p>",
            f"<p class='tally'>{safe(tally(found))}</p></header>",
            *(_seen(each) for each in found.seen),
            f"<p>{safe(filtered_line(found))}</p>",
            _list("Failed", found.failed),
            _list("Skipped", found.skipped),
            _passed(found),
        )
    )
    return document(f"Preflight of {found.model}", body, [])


def _seen(seen: Seen) -> str:
    remark = seen.remark
    details = "".join(f"<li>{safe(each, limit=400)}</li>" for each in remark.details)
    advice = "".join(f"<li>{safe(each)}</li>" for each in remark.advice)
    return (
        f'<article class="finding {seen.severity}"><h3><span class="badge">{seen.severity}</span> '
        f"<code>{safe(seen.code)}</code> {safe(seen.name)}</h3>"
        f'<div class="halves"><div><p>{safe(remark.summary)}</p>'
        + (f"<ul>{details}</ul>" if details else "")
        + f"</div><div>{f'<ul>{advice}</ul>' if advice else ''}</div></div></article>"
    )


def _list(title: str, entries: tuple[NotMade, ...]) -> str:
    if not entries:
        return ""
    rows = [
        [f"<code>{safe(each.code)}</code> {safe(each.name)}", safe(each.why), safe(each.how)]
        for each in entries
    ]
    return f"<section><h2>{title}</h2>{table(['check', 'why', 'how to have it'], rows)}</section>"


def _passed(found: Preflight) -> str:
    if not found.passed:
        return ""
    codes = " ".join(f"<code>{safe(code)}</code>" for code in found.passed)
    return f'<section><h2>Looked, and saw nothing</h2><p class="codes">{codes}</p></section>'
