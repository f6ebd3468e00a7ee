"""The tags and columns that a reward function reads, from its source."""

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
    tree = _tree(spec)
    if tree is None:
        return ()
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return tuple(dict.fromkeys(name for text in texts for name in _CLOSING.findall(text)))


def columns_read(spec: str) -> tuple[str, ...]:
    """Columns that a reward function reads by name from its further keyword arguments.

    Args:
        spec: `FILE.py:function`; a module by name is not read.
    """
    tree, name = _tree(spec), spec.rpartition(":")[2]
    functions = [
        node
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    if not functions or functions[-1].args.kwarg is None:
        return ()
    further = functions[-1].args.kwarg.arg
    keys: list[ast.expr] = []
    for node in ast.walk(functions[-1]):
        if isinstance(node, ast.Subscript) and _is_name(node.value, further):
            keys.append(node.slice)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and _is_name(node.func.value, further)
        ):
            keys += node.args[:1]
    texts = (key.value for key in keys if isinstance(key, ast.Constant))
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str)))


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _tree(spec: str) -> ast.Module | None:
    """The syntax tree of a reward function's file; None if it cannot be read."""
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
