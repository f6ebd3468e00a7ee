import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from grpodoctor import __version__
from grpodoctor.cli.main import COMMANDS, _load, _show_unraisable, command_function
from tests.cli import in_process
from tests.samples import sampled

HEAVY = ("torch", "transformers", "scipy", "plotly", "streamlit", "pyarrow", "pandas", "textual")


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "grpodoctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def modules_after(*arguments):
    """Top-level modules that a command has imported, and its exit code."""
    program = (
        "import sys\nfrom grpodoctor.cli.main import main\n"
        f"sys.argv = ['grpodoctor', *{list(map(str, arguments))!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    print('\\x1d', end.code, *{name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    code, *names = done.stdout.rpartition("\x1d")[2].split()
    return code, set(names)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_nothing_heavy(arguments):
    _, names = modules_after(*arguments)
    assert "grpodoctor" in names
    assert not names & {*HEAVY, "numpy", "pydantic"}


def words_before_paths(command):
    """For each parameter of a command that takes a path: the words before the path."""
    hints = get_type_hints(command_function(command))
    parameters = _load(command).params
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    for each in parameters:
        if "Path" in str(hints[each.name]) or each.name in {"run", "paths", "model"}:
            is_option = each.param_type_name == "option"
            yield [each.opts[0]] if is_option else ["x"] * arguments.index(each)


def test_an_empty_path_is_not_the_current_directory():
    tried = [[command, *words] for command in COMMANDS for words in words_before_paths(command)]
    for words in tried:
        done = in_process.run(*words, "")
        assert (done.returncode, done.stdout) == (2, ""), words
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: the path is empty ("), words
        assert words[-1] in line or not words[-1].startswith("-")
    assert {"check", "watch", "dashboard", "mcp", "snapshot", "export"} <= {
        each[0] for each in tried
    }
    assert len(tried) > 30


@pytest.mark.parametrize("command", sampled(COMMANDS, 3))
def test_the_help_of_a_command_imports_nothing_heavy(command):
    _, names = modules_after(command, "--help")
    assert not names & set(HEAVY)


def test_help_names_every_command():
    shown = run("--help").stdout
    assert all(command in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_list_repeats_the_commands_summaries(command):
    function = command_function(command)
    assert function.__doc__.splitlines()[0] == COMMANDS[command]


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option):
    assert run(option).stdout == f"grpodoctor {__version__}\n"


def completions(*words):
    """Words that the shell offers for the last of these words."""
    environment = {
        **os.environ,
        "_GRPODOCTOR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["grpodoctor", *words]),
        "COMP_CWORD": str(len(words)),
    }
    program = Path(sys.executable).with_name("grpodoctor")
    done = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.split()


def test_the_shell_completes_commands_options_and_values():
    assert completions("ch") == ["check"]
    assert "--output-format" in completions("check", "--out")
    assert completions("check", "--fail-on", "nev") == ["never"]


@pytest.mark.parametrize("command", ["rule", "remedy", "recipe", "metrics"])
def test_json_has_two_short_forms(command):
    whole = in_process.run(command, "--output-format", "json").stdout
    assert json.loads(whole)
    short = [in_process.run(command, *each).stdout for each in (("-o", "json"), ("--json",))]
    assert short == [whole, whole]


@pytest.mark.parametrize("arguments", [["--exit-zero"], ["--fail-on", "never"], ["-o", "json"]])
def test_findings_need_not_fail_a_pipeline(arguments):
    sick = Path(__file__).parents[1] / "data" / "run"
    done = run("check", sick, *arguments)
    assert done.returncode == (1 if arguments[0] == "-o" else 0)
    assert "MIS002" in done.stdout


def test_a_former_command_name_still_works():
    former, current = (in_process.run(name, "--json").stdout for name in ("formulary", "recipe"))
    assert former == current != ""


@pytest.mark.parametrize(
    "arguments", [["chekc"], ["check"], ["check", ".", "--nope"], ["--nope"], ["rule", "a", "b"]]
)
def test_wrong_usage_exits_with_2_and_no_traceback(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_similar_name_is_suggested():
    assert "did you mean check?" in run("chekc").stderr


def test_a_closed_pipe_is_silent():
    program = [sys.executable, "-m", "grpodoctor", "rule", "--output-format", "json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        noise = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert noise == b""


def test_a_terminal_without_unicode_gets_ascii():
    done = run("rule", env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"}, cwd=Path.cwd())
    assert done.returncode == 0
    assert "ENT001" in done.stdout


def test_a_full_disk_behind_stdout_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "grpodoctor", "rule"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: cannot write: No space left on device (standard output); free disk space\n"
    )


def test_closed_streams_do_not_fail_a_command():
    command = f"{sys.executable} -m grpodoctor rule >&- 2>&-"
    done = subprocess.run(["/bin/sh", "-c", command], timeout=60, check=False)
    assert done.returncode == 0


class _Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def test_an_allocation_whose_failure_python_cannot_raise_is_silent(capsys, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", _show_unraisable)
    _Raising(MemoryError())
    assert capsys.readouterr().err == ""
    _Raising(KeyError("lost"))
    assert "KeyError: 'lost'" in capsys.readouterr().err
