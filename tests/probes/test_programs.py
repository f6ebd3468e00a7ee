"""What engine programs need: they run in Pythons that have an engine, numpy and nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.probes.models import tokenizer
from tests.probes.programs import PROBES

BESIDE = {path.stem for path in PROBES.glob("*.py")}
PROGRAMS = sorted(path for path in PROBES.glob("engine_*.py") if path.stem != "engine_recorded")


def imported(path: Path, *, at_start: bool) -> set[str]:
    """The packages that a file imports; those of functions too, unless only at its start."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if at_start else list(ast.walk(tree))
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    named |= {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    return {str(name).partition(".")[0] for name in named}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_no_program_but_that_of_records_needs_this_package(program: Path) -> None:
    waiting, seen = [program.stem], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        packages = imported(PROBES / f"{name}.py", at_start=False)
        assert "grpodoctor" not in packages, f"{name} imports grpodoctor"
        waiting += sorted(packages & BESIDE - seen)


@pytest.mark.parametrize("name", ["engine_vllm", "engine_openai_server", "engine_llama_cpp"])
def test_these_start_with_numpy_alone(name: str) -> None:
    packages = imported(PROBES / f"{name}.py", at_start=True)
    assert packages <= {"numpy", *sys.stdlib_module_names, *BESIDE}


@pytest.mark.parametrize(
    ("template", "messages", "what"),
    [
        ("{{ raise_exception('no system role') }}", [{"role": "system"}], "no system role"),
        ("{{ messages[0].content + 1 }}", [{"role": "user", "content": "a"}], "does not take"),
        ("{% for", [{"role": "user", "content": "a"}], "does not take"),
    ],
)
def test_a_template_that_does_not_take_a_prompt_is_refused_in_words(
    template: str, messages: list[dict[str, Any]], what: str
) -> None:
    from contract import RefusalError
    from hf_tokenizer import encoded

    with pytest.raises(RefusalError) as refused:
        encoded(tokenizer(template=template), {"messages": messages})
    assert what in refused.value.what


def test_a_tokenizer_that_makes_nothing_of_a_prompt_is_refused() -> None:
    from contract import RefusalError
    from hf_tokenizer import encoded
    from transformers import Qwen2TokenizerFast

    made_up = Qwen2TokenizerFast()
    with pytest.raises(RefusalError, match="makes no token of a prompt"):
        encoded(made_up, {"text": "1+1="})
    assert encoded(tokenizer(), {"text": "1+1="})
