"""What the name of a reward component says about what it pays for."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


TASK_NAMES = ("answer", "correct", "accura", "solve", "success", "exact")
"""Parts of the names of components that only correct responses earn."""

TASK_WORDS = frozenset({"acc", "em", "math", "pass", "verified", "verifier"})
"""Whole words in such names."""

_WORD = re.compile(r"[a-z]+")


def is_about_task(name: str, parts: Iterable[str] = TASK_NAMES) -> bool:
    """Whether a component's name says that only correct responses earn it.

    Args:
        name: the component's own name.
        parts: parts of such names.
    """
    lower = name.lower()
    has_part = any(part in lower for part in parts)
    return has_part or not TASK_WORDS.isdisjoint(_WORD.findall(lower))
