"""What the file of a reward function needs: programs that it starts, modules that it imports."""

from __future__ import annotations

import ast
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

_STARTS = frozenset({"run", "Popen", "call", "check_call", "check_output"})
_PROCESS = frozenset({"subprocess", "sp"})
_ABSENT = frozenset({"ModuleNotFoundError", "ImportError"})


def missing_programs(spec: str) -> list[str]:
    """Programs that the file starts by a constant name, and that are not installed.

    Args:
        spec: the reward function as `FILE.py:function`.
    """
    tree = _tree(spec)
    if tree is None:
        return []
    names = dict.fromkeys(_programs(tree))
    return [name for name in names if shutil.which(name) is None and not Path(name).exists()]


def missing_modules(spec: str) -> list[str]:
    """Modules that the file imports where an exception is caught, and that do not exist.

    An import at the top of the file fails at once; one that is caught changes the reward silently.
    An exception for a missing module alone shows that the author has another way.
    """
    tree = _tree(spec)
    if tree is None:
        return []
    caught = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and not _expects_absence(node)
        for statement in node.body
        for name in _imports(statement)
    ]
    return [name for name in dict.fromkeys(caught) if not _exists(name)]


def _tree(spec: str) -> ast.Module | None:
    path = Path(spec.rpartition(":")[0])
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _programs(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        is_start = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _STARTS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in _PROCESS
        )
        if is_start and isinstance(node, ast.Call) and node.args:
            command = node.args[0]
            first = command.elts[0] if isinstance(command, ast.List) and command.elts else command
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                words = first.value.split()
                yield from words[:1]


def _imports(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _expects_absence(node: ast.Try) -> bool:
    names = [
        name.id
        for handler in node.handlers
        for name in ast.walk(handler.type or ast.Constant(None))
        if isinstance(name, ast.Name)
    ]
    return bool(_ABSENT.intersection(names))


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def defined_names(spec: str) -> frozenset[str]:
    """The names that a file defines or imports at its top; empty if it cannot be read."""
    tree = _tree(spec)
    names: set[str] = set()
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return frozenset(names)
