"""The columns of the data that a reward function reads, by its parameters and its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from grpodoctor.trainer.rewards.call_forms import Function

_PASSED = frozenset({
    "self", "prompt", "prompts", "completion", "completions", "completion_ids", "trainer_state",
    "log_extra", "log_metric", "solution_str", "solution_strs", "extra_info", "extra_infos",
})  # fmt: skip
"""Arguments that a trainer passes besides the columns."""


@dataclass(frozen=True, slots=True)
class ColumnsRead:
    """Names of columns that a function reads."""

    parameters: tuple[str, ...] = ()
    """Its parameters, without those that every trainer passes."""
    keywords: tuple[str, ...] = ()
    """Keys that it takes from its `**kwargs`."""


def columns_read(function: Function) -> ColumnsRead:
    """The columns that a function reads; empty if its signature or source is not known."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ColumnsRead()
    named = [
        name for name, each in parameters.items()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL) and name not in _PASSED
    ]  # fmt: skip
    keywords = [name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD]
    read = list(_keys_read(function, keywords[0])) if keywords else []
    return ColumnsRead(tuple(named), tuple(key for key in read if key not in _PASSED))


def _keys_read(function: Function, keywords: str) -> dict[str, None]:
    """The constant keys with which a function's source reads its dictionary of keywords."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    return dict.fromkeys(_keys_in(tree, keywords))


def _keys_in(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and _is_name(node.value, name):
            key = node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("get", "pop")
            and _is_name(node.func.value, name)
            and node.args
        ):
            key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
