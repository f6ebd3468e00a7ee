"""What the name of a reward component says about what it pays for."""

from __future__ import annotations

import re

PENALTY_NAMES = ("overlong", "penalt", "punish")
"""Parts of component names that are zero in healthy runs."""

FORM_NAMES = (
    "format", "fmt", "xml", "json", "tag", "think", "structure", "length", "lang",
    "repet",
)  # fmt: skip
"""Parts of the names of components that any response can earn, correct or not. In a public run
responses earned the format now and then, and the equation in none of 39 batches."""

_LENGTH = re.compile(r"(?:^|[^a-z])len(?:[^a-z]|$)")
"""`len` is a part of other words, such as `silent`."""


def pays_for_form(name: str) -> bool:
    """Whether any response can earn a component, correct or not, by its name."""
    lower = name.lower()
    has_part = any(part in lower for part in (*FORM_NAMES, *PENALTY_NAMES))
    return has_part or _LENGTH.search(lower) is not None
