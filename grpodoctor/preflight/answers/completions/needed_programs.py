"""What the file of a reward function needs: programs that it starts, modules that it imports."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from grpodoctor.preflight.answers.requested.source_tags import source_tree

_STARTS = frozenset({"run", "Popen", "call", "check_call", "check_output"})
_PROCESS = frozenset({"subprocess", "sp"})
_ABSENT = frozenset({"ModuleNotFoundError", "ImportError"})
_PROGRAM = re.compile(r"[\w.+-]+|/[^\s=]+")
"""Names of programs and absolute paths. Relative paths depend on the folder of the run."""
_OF_THE_SHELL = frozenset({
    "cd", "export", "set", "source", "ulimit", "exec", "eval", "alias", "unset", "umask", "trap",
    "wait", "if", "for", "while", "command",
})  # fmt: skip
"""Commands without a program of their own."""


def missing_programs(spec: str) -> list[str]:
    """Programs that the file starts by a constant name, and that are not installed.

    Args:
        spec: the reward function as `FILE.py:function`.
    """
    tree = source_tree(spec)
    if tree is None:
        return []
    if any(_name(node) == "which" for node in ast.walk(tree)):  # it provides for a missing one
        return []
    names = [name for name in dict.fromkeys(_programs(tree)) if _PROGRAM.fullmatch(name)]
    return [name for name in names if name not in _OF_THE_SHELL and shutil.which(name) is None]


def missing_modules(spec: str) -> list[str]:
    """Modules that the file imports where an exception is caught, and that do not exist.

    An import at the top of the file fails at once; one that is caught changes the reward silently.
    An exception for a missing module alone, or something in its place, shows that the author has
    another way. Modules in the folder of the file exist when it is loaded from there.
    """
    tree = source_tree(spec)
    if tree is None:
        return []
    caught = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and not _expects_absence(node)
        for statement in node.body
        for name in _imports(statement)
    ]
    expected = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and _expects_absence(node)
        for statement in node.body
        for name in _imports(statement)
    }
    folder = Path(spec.rpartition(":")[0]).parent
    return [
        name
        for name in dict.fromkeys(caught)
        if name not in expected and not _exists(name) and not _is_in(folder, name)
    ]


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


def _name(node: ast.AST) -> str:
    """The name of a variable or an attribute; empty for other nodes."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _is_in(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def _expects_absence(node: ast.Try) -> bool:
    names = [
        name.id
        for handler in node.handlers
        for name in ast.walk(handler.type or ast.Constant(None))
        if isinstance(name, ast.Name)
    ]
    return bool(_ABSENT.intersection(names)) or _has_replacement(node)


def _has_replacement(node: ast.Try) -> bool:
    """Whether a handler imports another module, or gives an imported name or a flag a value.

    Another assignment, such as of a score, hides that the module is missing.
    """
    wanted = {
        each.asname or each.name
        for statement in node.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for each in statement.names
    }
    for handler in node.handlers:
        for statement in handler.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                return True
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement]
            names = [_name(each) or getattr(each, "name", "") for each in targets]
            if any(name in wanted or name.isupper() for name in names):
                return True
    return False


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def defined_names(spec: str) -> frozenset[str]:
    """The names that a module defines or imports; empty if some are not in its file."""
    tree = source_tree(spec)
    names: set[str] = set()
    for node in _of_the_module(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset() if "*" in names else frozenset(names)


def _of_the_module(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module outside its functions and classes, which come as one node each."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _of_the_module(child)
