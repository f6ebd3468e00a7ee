"""The settings that an installed framework accepts, read from its files without an import.

The framework's own import would take seconds and load its engines. TRL declares settings as fields
of data classes, verl in a YAML file with all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.run_config import read_file

_CLASSES: Mapping[str, tuple[tuple[str, str, frozenset[str]], ...]] = {
    "trl": (
        ("trl", "trainer/grpo_config.py", frozenset({"GRPOConfig"})),
        ("trl", "trainer/base_config.py", frozenset({"_BaseConfig"})),
        ("trl", "trainer/model_config.py", frozenset({"ModelConfig"})),
        ("trl", "scripts/utils.py", frozenset({"ScriptArguments", "DatasetMixtureConfig"})),
        ("transformers", "training_args.py", frozenset({"TrainingArguments"})),
    ),
}
"""Package, file and classes whose fields are settings."""
_TREES: Mapping[str, tuple[str, str]] = {
    "verl": ("verl", "trainer/config/_generated_ppo_trainer.yaml"),
}
"""Package and YAML file with all settings."""
_MAX_BYTES = 2_000_000
_DEEPEST = 12


@lru_cache(maxsize=8)
def package_settings(framework: str) -> frozenset[str]:
    """Dotted keys that the installed package of a framework accepts; empty if it is not installed.

    Args:
        framework: name of the framework.
    """
    names: set[str] = set()
    for package, file, classes in _CLASSES.get(framework, ()):
        if (path := _file(package, file)) is not None:
            names.update(_fields(path, classes))
    package, file = _TREES.get(framework, ("", ""))
    path = _file(package, file) if package else None
    if path is not None:
        with suppress(ConfigError):
            names.update(_keys(read_file(path), "", 0))
    return frozenset(names)


def _file(package: str, file: str) -> Path | None:
    """A file of an installed package, found without its import."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / file
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            return path
    return None


def _fields(path: Path, classes: frozenset[str]) -> Iterator[str]:
    """The annotated fields of classes in a file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id


def _keys(settings: Mapping[str, Any], prefix: str, depth: int) -> Iterator[str]:
    for name, value in settings.items():
        key = f"{prefix}{name}"
        yield key
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _keys(value, f"{key}.", depth + 1)
