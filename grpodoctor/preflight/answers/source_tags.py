"""The tags that a reward function reads, from the texts in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.trainer.rewards.user_reward import UserReward

_CLOSING = re.compile(r"</([A-Za-z][\w-]*)>")
_MAX_BYTES = 1_000_000


def tags_read(spec: str) -> tuple[str, ...]:
    """Names of the closing tags in the texts of a reward function's file.

    Args:
        spec: `FILE.py:function`; a module by name is not read.
    """
    path = Path(spec.rpartition(":")[0])
    if path.suffix != ".py":
        return ()
    try:
        if path.stat().st_size > _MAX_BYTES:
            return ()
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return tuple(dict.fromkeys(name for text in texts for name in _CLOSING.findall(text)))


def knows_thoughts(reward: UserReward, rows: Sequence[PromptRow]) -> bool:
    """Whether most prompts ask for a thought in <think>, or the reward function reads the tag."""
    asking = sum(any("<think>" in text for text in row.texts()) for row in rows)
    return asking > len(rows) / 2 or "think" in tags_read(reward.spec)
