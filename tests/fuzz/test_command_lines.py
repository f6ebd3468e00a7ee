"""Some odd command lines, run as users run them, and breaches that must be reported."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from grpodoctor.cli import main
from grpodoctor.cli.main import COMMANDS
from tests.forked import forked
from tests.fuzz import command_lines

COUNT, SEED = 10, 15
BREACHES = {
    "raises": "a traceback: ZeroDivisionError: division by zero",
    "calls itself defective": "exit code 3: ",
    "allocates": " MB of memory",
    "is killed": "exit code -9: ",
}


def test_command_lines_have_paths_and_options() -> None:
    lines = [command_lines.command_line(random.Random(n), ["odd-path"]) for n in range(400)]
    assert {line[0] for line in lines} == set(COMMANDS)
    words = {word for line in lines for word in line}
    assert {"odd-path", "run", "--json", "--output", "--temperature"} <= words


def _sample(count: str, seed: str) -> None:
    broken = [each for each in command_lines.campaign(int(count), int(seed)) if each.finding]
    assert not broken, broken


@pytest.mark.timeout(1200)
def test_odd_command_lines_keep_the_contract(tmp_path: Path) -> None:
    """In a process without threads, which a fork would not copy."""
    source = "import sys; from tests.fuzz.test_command_lines import _sample; _sample(*sys.argv[1:])"
    with forked(source, str(COUNT), str(SEED), cwd=tmp_path) as process:
        _, errors = process.communicate(1100)
        assert process.returncode == 0, errors


def _broken(how: str, folder: str) -> None:
    def broken_main() -> None:
        if how == "raises":
            1 / 0  # noqa: B018 - the traceback of any defect
        elif how == "allocates":
            block = bytearray(1100 * 2**20)
            block[::4096] = b"x" * len(block[::4096])
        elif how == "is killed":
            os.kill(os.getpid(), 9)
        raise SystemExit(3 if how == "calls itself defective" else 0)

    main.main = broken_main
    print(command_lines.run(["check"], Path(folder)).finding, file=sys.stderr)


@pytest.mark.parametrize("how", BREACHES)
def test_a_breach_is_reported(how: str, tmp_path: Path) -> None:
    source = "import sys; from tests.fuzz.test_command_lines import _broken; _broken(*sys.argv[1:])"
    with forked(source, how, str(tmp_path), cwd=tmp_path) as process:
        _, errors = process.communicate(60)
    assert BREACHES[how] in errors
