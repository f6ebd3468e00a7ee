"""Calls the reward functions of planted sets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.preflight.planted.cases import Case


def named(cases: Mapping[str, Case], words: str) -> Case:
    """The one set whose name has some words."""
    (case,) = (each for name, each in cases.items() if words in name)
    return case


def reward_function(case: Case) -> Any:
    """The last function of a set's reward file."""
    source: dict[str, Any] = {}
    exec(case.reward, source)  # noqa: S102  # the plants' own code
    return source[re.findall(r"^(?:async )?def (\w+)", case.reward, re.MULTILINE)[-1]]


def rewards_of(case: Case, texts: Sequence[str], at: int = 0) -> list[Any]:
    """The rewards of responses to a row."""
    row = case.rows[at]
    columns = {key: [value] * len(texts) for key, value in row.items() if key != "prompt"}
    found: list[Any] = reward_function(case)(
        prompts=[row.get("prompt")] * len(texts),
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        **columns,
    )
    return found
