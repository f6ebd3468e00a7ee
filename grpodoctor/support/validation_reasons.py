"""Reasons of pydantic's validation errors, in words for users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_KINDS = {
    "integer": "an integer",
    "dictionary": "a table",
    "string": "text",
    "boolean": "true or false",
    "bool": "true or false",
}
_REPLACEMENTS = (
    (re.compile(r"^(?:Value error|Assertion failed), "), ""),
    (re.compile(r"^Input should be less than or equal to (.+)$"), r"must be at most \1"),
    (re.compile(r"^Input should be greater than or equal to (.+)$"), r"must be at least \1"),
    (re.compile(r"^Input should be less than (.+)$"), r"must be below \1"),
    (re.compile(r"^Input should be greater than (.+)$"), r"must be above \1"),
    (re.compile(r"^Input should be (.+)$"), r"must be \1"),
    (re.compile(r"^Extra inputs are not permitted$"), "is not a known key"),
    (re.compile(r"^Field required$"), "is missing"),
)
_VALID_KIND = re.compile(r"^Input should be (?:a|an) valid (?P<kind>\w+)(?:,.*)?$")


class ValidationProblems(Protocol):
    """The part of pydantic's ValidationError that is read here."""

    def errors(self) -> Sequence[Mapping[str, Any]]:
        """The problems, each with `loc` and `msg`."""


def plain_reason(message: str) -> str:
    """The message of a validation error without pydantic's wording, beginning in lower case."""
    if found := _VALID_KIND.match(message):
        kind = found["kind"]
        return f"must be {_KINDS.get(kind, f'a {kind}')}"
    for pattern, replacement in _REPLACEMENTS:
        message = pattern.sub(replacement, message)
    return message[:1].lower() + message[1:]


def first_reason(error: ValidationProblems) -> str:
    """The first problem of a validation error: its key and the reason, in one line."""
    problem = error.errors()[0]
    key = ".".join(map(str, problem["loc"]))[:80]
    reason = plain_reason(problem["msg"])[:160]
    return " ".join((f"{key}: {reason}" if key else reason).split())
