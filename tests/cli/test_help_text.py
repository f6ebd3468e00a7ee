"""The help of every command at the width of a small terminal."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from grpodoctor.cli.main import COMMANDS, _load
from tests.cli.in_process import run

WIDTH = 80


def help_of(command: str) -> list[str]:
    shown = run(command, "--help", env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)})
    assert shown.returncode == 0
    return [line.rstrip() for line in shown.stdout.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_text_is_wrapped_once(command: str) -> None:
    """A line ends only where its next word would not fit."""
    lines = help_of(command)
    text = lines[: next(index for index, line in enumerate(lines) if line.startswith("╭"))]
    for line, following in pairwise(text):
        if line and following and not line.startswith(" Usage:"):
            assert len(line) + 1 + len(following.split()[0]) > WIDTH - 2, line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_flag_has_no_type(command: str) -> None:
    shown = "\n".join(help_of(command))
    assert "bool" not in shown
    assert "--help" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_usage_has_one_notation(command: str) -> None:
    lines = help_of(command)
    start = next(index for index, line in enumerate(lines) if line.startswith(" Usage:"))
    usage = " ".join(lines[start : lines.index("", start)])
    names = usage.split("[OPTIONS]")[1].split()
    assert all(re.fullmatch(r"\[?[A-Z_|]+\]?(\.\.\.)?", name) for name in names), usage
    arguments = [each for each in _load(command).params if each.param_type_name == "argument"]
    assert [name.startswith("[") for name in names] == [not each.required for each in arguments]
    assert [name.endswith("...") for name in names] == [each.nargs != 1 for each in arguments]


def test_a_missing_argument_is_named_as_in_the_usage() -> None:
    done = run("check")
    assert done.returncode == 2
    assert "PATHS" in done.stderr
