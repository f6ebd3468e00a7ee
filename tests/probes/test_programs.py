"""What engine programs need: they run in Pythons that have an engine, numpy and nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.probes.models import tokenizer
from tests.probes.programs import PROBES

HELPERS = {path.name for path in PROBES.iterdir() if (path / "__init__.py").exists()}
HELPERS |= {path.stem for path in PROBES.glob("*.py")}
PROGRAMS = sorted(path for path in PROBES.glob("engine_*.py") if path.stem != "engine_recorded")


def imported(path: Path, *, at_start: bool) -> set[str]:
    """The modules that a file imports, including those imported in functions by default."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if at_start else list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            own = f"{path.parent.name}." if node.level else ""
            modules |= {
                f"{own}{node.module}",
                *(f"{own}{node.module}.{a.name}" for a in node.names),
            }
    return modules


def top_level(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def helper(module: str) -> Path | None:
    """The file of a module in `probes/`, if it is one."""
    path = PROBES / module.replace(".", "/")
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_only_the_recorded_engine_imports_this_package(program: Path) -> None:
    waiting, seen = [program], set[Path]()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        modules = imported(path, at_start=False)
        assert "grpodoctor" not in top_level(modules), f"{path} imports grpodoctor"
        waiting += {file for name in modules if (file := helper(name))} - seen
    assert PROBES / "contract" / "shards.py" in seen


@pytest.mark.parametrize("name", ["engine_vllm", "engine_openai_server", "engine_llama_cpp"])
def test_these_programs_import_only_numpy(name: str) -> None:
    packages = top_level(imported(PROBES / f"{name}.py", at_start=True))
    assert packages <= {"numpy", *sys.stdlib_module_names, *HELPERS}


@pytest.mark.parametrize(
    ("template", "messages", "what"),
    [
        ("{{ raise_exception('no system role') }}", [{"role": "system"}], "no system role"),
        ("{{ messages[0].content + 1 }}", [{"role": "user", "content": "a"}], "rejects a prompt"),
        ("{% for", [{"role": "user", "content": "a"}], "rejects a prompt"),
    ],
)
def test_a_template_that_rejects_a_prompt_is_an_error(
    template: str, messages: list[dict[str, Any]], what: str
) -> None:
    from contract import RefusalError
    from hf.tokenizer import encoded

    with pytest.raises(RefusalError) as refused:
        encoded(tokenizer(template=template), {"messages": messages})
    assert what in refused.value.what


def test_a_prompt_without_tokens_is_refused() -> None:
    from contract import RefusalError
    from hf.tokenizer import encoded
    from transformers import Qwen2TokenizerFast

    made_up = Qwen2TokenizerFast()
    with pytest.raises(RefusalError, match="returns no tokens for a prompt"):
        encoded(made_up, {"text": "1+1="})
    assert encoded(tokenizer(), {"text": "1+1="})
