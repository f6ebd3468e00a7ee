"""Values that an option does not take: one line that names the option which does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.cli.main import COMMANDS, _load
from tests.cli.in_process import run


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ("check x --output-format r.html", "to write a file, use --output r.html"),
        ("check x -o out/report", "to write a file, use --output out/report"),
        ("metrics -o list.md", "to write a file, use --output-format markdown > list.md"),
        ("rule -o list.csv", "to write a file, use --output-format FORMAT > list.csv"),
        ("check x --format markdown", "did you mean --output-format markdown?"),
        ("check x --framework sarif", "did you mean --output-format sarif?"),
        ("check x -o verl", "did you mean --format verl?"),
        ("check x -o jsonl", "did you mean --format jsonl?"),
        ("recipe -o trl", "did you mean --framework trl?"),
        ("check x --framework tensorboard", "did you mean --format tensorboard?"),
        ("check x -o warning", "did you mean --fail-on warning?"),
        ("check x -o markdwn", "did you mean markdown?"),
        ("check x --fail-on bad", "use one of info, warning, critical, never"),
    ],
)
def test_a_value_of_another_option_names_that_option(arguments: str, remedy: str) -> None:
    done = run(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(f"; {remedy}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check --fail-onn x", "no such option (--fail-onn); did you mean --fail-on?"),
        ("check --zzz x", "no such option (--zzz); see: grpodoctor check --help"),
        ("check --bogs x", "no such option (--bogs); see: grpodoctor check --help"),
        ("check", "missing argument 'PATHS'; see: grpodoctor check --help"),
        ("check x --fail-on", "option '--fail-on' requires an argument; see: "),
        ("rule A B", "unexpected argument (B); see: grpodoctor rule --help"),
        ("--bogus", "no such option (--bogus); see: grpodoctor --help"),
        ("--versoin", "no such option (--versoin); did you mean --version?"),
        ("-x", "no such option (-x); see: grpodoctor --help"),
        (
            "--json check x",
            "no such option (--json); put options after the command: grpodoctor check ... --json",
        ),
        ("--version=3", "option '--version' does not take a value; see: grpodoctor --help"),
        ("check x -q", "no such option (-q); see: grpodoctor check --help"),
        ("mcp /nonexistent", "the root is not a directory (/nonexistent); pass the directory that"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: str, message: str) -> None:
    done = run(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {message}")


@pytest.mark.parametrize("name", ["json", "jsonl", "verl", "volcengine-verl", "generic", "NeMo-RL"])
def test_a_framework_or_a_file_format_is_taken(name: str) -> None:
    done = run("check", "missing", "--format", name)
    assert "is not a value of" not in done.stderr


def test_the_file_of_a_report_may_follow_the_short_option(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"step": {step}, "reward": 0.5}}\n' for step in range(30)))
    done = run("check", log, "-o", tmp_path / "report.html")
    assert (done.stdout, done.returncode) == ("", 1)
    assert (tmp_path / "report.html").read_text().startswith("<!")
    assert run("check", log, "-o", "json").stdout.startswith("{")


def test_a_format_of_logs_and_reports_names_both_options(tmp_path: Path) -> None:
    text = tmp_path / "train.log"
    text.write_text("no log\n")
    line = run("check", text, "--format", "json").stderr
    assert "for a report in this format, use --output-format json" in line
    assert "--output-format" not in run("check", text, "--format", "jsonl").stderr


def test_an_unknown_format_lists_every_framework_and_then_every_file_format() -> None:
    line = run("check", "tests/data/run/steps.jsonl", "--format", "foo").stderr
    frameworks, formats = line.split(" or a file format ")
    assert "…" not in line
    assert "verl" in frameworks
    assert "wandb" in formats


def wrong_values() -> Iterator[tuple[str, Any, str]]:
    """For each option of each command that takes a number or one of a few values: a wrong one."""
    for name in COMMANDS:
        command = _load(name)
        for each in command.params:
            if each.param_type_name != "option" or getattr(each, "is_flag", False):
                continue
            if each.name not in command.texts | command.paths:
                yield name, each, "bad"


def test_no_wording_of_the_validation_library_reaches_the_user() -> None:
    tried = 0
    for name, parameter, value in wrong_values():
        done = run(name, parameter.opts[0], value)
        assert done.returncode == 2, parameter.name
        assert "Value error" not in done.stderr
        assert "Input should" not in done.stderr
        tried += 1
    assert tried > 30
    assert "must be at most 60" in run("watch", "x", "--interval", "100").stderr


def test_the_program_alone_prints_its_help() -> None:
    done = run()
    assert "Usage: " in done.stdout + done.stderr
    assert "check" in done.stdout + done.stderr
