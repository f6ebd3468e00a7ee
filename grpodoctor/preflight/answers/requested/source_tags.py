"""The tags and code fences that a reward function reads, from the texts in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.trainer.rewards.user_reward import UserReward

_CLOSING = re.compile(r"</([A-Za-z][\w-]*)>")
_FENCE = re.compile(r"```(?:\(\?:)?([A-Za-z]\w{0,11})")
_MAX_BYTES = 1_000_000


def tags_read(spec: str) -> tuple[str, ...]:
    """Names of the closing tags in the texts of a reward function's file.

    Args:
        spec: `FILE.py:function`; a module by name is not read.
    """
    return tuple(dict.fromkeys(name for text in _texts(spec) for name in _CLOSING.findall(text)))


def fences_read(spec: str) -> tuple[str, ...]:
    """Languages of the code fences in the texts of a reward function's file, such as `json`.

    Args:
        spec: `FILE.py:function`; a module by name is not read.
    """
    found = (name.casefold() for text in _texts(spec) for name in _FENCE.findall(text))
    return tuple(dict.fromkeys(found))


def mentions_none(spec: str) -> bool:
    """Whether None occurs in a reward function's file; also true if the file cannot be read.

    Args:
        spec: `FILE.py:function`; a module by name is not read.
    """
    tree = source_tree(spec)
    nodes = ast.walk(tree) if tree else ()
    return tree is None or any(
        isinstance(node, ast.Constant) and node.value is None for node in nodes
    )


def _texts(spec: str) -> list[str]:
    tree = source_tree(spec)
    return [
        node.value
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def source_tree(spec: str) -> ast.Module | None:
    """The parsed file; None if it is no file of Python, too large or damaged."""
    path = Path(spec.rpartition(":")[0])
    if path.suffix != ".py":
        return None
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def knows_thoughts(reward: UserReward, rows: Sequence[PromptRow]) -> bool:
    """Whether most prompts ask for a thought in <think>, or the reward function reads the tag."""
    asking = sum(any("<think>" in text for text in row.texts()) for row in rows)
    return asking > len(rows) / 2 or "think" in tags_read(reward.spec)
