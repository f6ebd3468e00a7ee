"""Wording that several reports share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grpodoctor.rules.base import SEVERITIES, Severity
from grpodoctor.support.numbers import count_of


def severity_counts(severities: Iterable[Severity]) -> str:
    """The number of findings of each severity, such as `1 critical, 2 warnings`."""
    found = list(severities)
    counts = {severity: found.count(severity) for severity in reversed(SEVERITIES)}
    nouns = {
        "critical": f"{counts['critical']} critical",
        "warning": count_of(counts["warning"], "warning"),
        "info": f"{counts['info']} info",
    }
    return ", ".join(nouns[severity] for severity, count in counts.items() if count)


def check_counts(findings: str, parts: Sequence[tuple[int, str]]) -> str:
    """The diagnosis line: the findings, then how many checks had which other result."""
    others = [text for count, text in parts if count]
    return " · ".join([findings or "no findings", *others])
