"""References of rules and remedies as links: arXiv numbers and addresses without a scheme."""

from __future__ import annotations

import re

from grpodoctor.report.view import Span

_LINKED = re.compile(
    r"arXiv (?P<arxiv>\d{4}\.\d{4,5})"
    r"|(?<![\w/.])(?:https?://)?(?P<address>(?:[a-z0-9-]+\.)+[a-z]{2,}/[\w./#%+=~-]*[\w/])",
)


def linked_reference(reference: str) -> tuple[Span, ...]:
    """The parts of a reference; papers and addresses are links."""
    parts, end = [], 0
    for match in _LINKED.finditer(reference):
        parts += [Span(reference[end : match.start()]), Span(match[0], link=_address(match))]
        end = match.end()
    return tuple(part for part in (*parts, Span(reference[end:])) if part.text)


def _address(match: re.Match[str]) -> str:
    return (
        f"https://arxiv.org/abs/{match['arxiv']}"
        if match["arxiv"]
        else f"https://{match['address']}"
    )
