"""Answers that are the tests of a program: inputs and the outputs that they must give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_MAX_TESTS = 200


def passing_programs(answers: Sequence[str]) -> list[str] | None:
    """Programs that pass the tests by looking up each input; None if the answers are no tests.

    Tests are an object with the lists `inputs` and `outputs`, as in APPS and TACO, or a list of
    objects with `input` and `output`.
    """
    tests = [_tests(answer) for answer in answers]
    if not tests or sum(map(bool, tests)) <= len(tests) / 2:
        return None
    return [_program(each) for each in tests]


def _tests(answer: str) -> dict[str, str]:
    """The output of each input; empty if the answer is something else."""
    if not answer.lstrip().startswith(("{", "[")):
        return {}
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    if isinstance(content, Mapping):
        pairs = list(
            zip(_texts(content.get("inputs")), _texts(content.get("outputs")), strict=False)
        )
    else:
        pairs = [(each.get("input"), each.get("output")) for each in content if _is_test(each)]
    return {str(given): str(wanted) for given, wanted in pairs[:_MAX_TESTS]}


def _is_test(entry: object) -> bool:
    return isinstance(entry, Mapping) and all(
        isinstance(entry.get(name), str) for name in ("input", "output")
    )


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _program(tests: Mapping[str, str]) -> str:
    table = {given.strip(): wanted for given, wanted in tests.items()}
    return f"import sys\ntable = {table!r}\nprint(table[sys.stdin.read().strip()])"
