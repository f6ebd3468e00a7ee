"""Pages and lists at the width of a narrow terminal, and what is typed in place of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.cli.wrapped_text import wrapped
from tests.cli.in_process import run

PAGES = (
    ("rule",),
    ("rule", "LEN002"),
    ("rule", "MIS001"),
    ("remedy",),
    ("remedy", "tis", "--framework", "verl"),
    ("recipe",),
    ("recipe", "gspo"),
    ("recipe", "dapo", "--framework", "verl"),
    ("metrics", "--framework", "verl"),
)


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_page_fits_the_terminal_and_keeps_its_words(words: tuple[str, ...], width: int) -> None:
    whole = run(*words, env={"COLUMNS": str(width)}).stdout  # a table has that width
    fitted = wrapped(whole, width)
    lines = fitted.splitlines()
    copied = [line for line in lines if len(line) > width]
    assert all(" " not in line.strip() for line in copied), copied
    if words[0] != "metrics":  # a table there
        kept = [word for word in fitted.split() if word != "#"]
        assert sorted(kept) == sorted(word for word in whole.split() if word != "#")


def test_rows_prose_and_settings_are_wrapped_each_in_its_own_way() -> None:
    text = """tis   safe     Weight tokens by importance sampling, truncated
What it does:
    A paragraph that was written in lines of
    another width than that of the terminal.
    clearance = 20
    key=value  # a long remark about this setting
    other.key=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
- a bullet that is longer than the terminal has columns"""
    assert wrapped(text, 46).splitlines() == [
        "tis   safe     Weight tokens by importance",
        "               sampling, truncated",
        "What it does:",
        "    A paragraph that was written in lines of",
        "    another width than that of the terminal.",
        "    clearance = 20",
        "    # a long remark about this setting",
        "    key=value",
        "    other.key=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]",
        "- a bullet that is longer than the terminal",
        "  has columns",
    ]
    assert wrapped(text, 100) == text


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("explain", "LEN002"), "use grpodoctor rule LEN002"),
        (("diagnose", "my runs"), "use grpodoctor check 'my runs'"),
        (("chekc", "x"), "did you mean check?"),
        (("qqqqqq",), "use grpodoctor --help, which lists all commands"),
    ],
)
def test_an_unknown_command_names_the_one_that_was_meant(
    words: tuple[str, ...], remedy: str
) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: no such command ({words[0]}); {remedy}\n"


def test_a_path_in_place_of_a_command_is_one_to_check(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert f"did you mean grpodoctor check {tmp_path}?" in done.stderr
