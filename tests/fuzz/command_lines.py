"""Odd command lines and odd paths for every command: `python -m tests.fuzz.command_lines`.

Each command line runs in a forked child with a folder, a home and an empty standard input of its
own. It must end with exit code 0, 1 or 2 and without a traceback, within ten seconds of processor
time and 1 GiB of memory. Exit code 3 stands for a defect, so it is a finding here. Commands that
serve or follow until they are stopped must end when they are asked to.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import resource
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from grpodoctor.cli.main import COMMANDS, _load, command_function
from tests.fuzz.limits import MEGABYTES, SECONDS, limit_memory, peak_megabytes, reset_peak
from tests.runs.log_formats.sound_logs import SOUND

_DATA = Path(__file__).parents[1] / "data"

_WALL = 120.0
"""Wall-clock seconds after which a command hangs, even on a busy machine."""

_PATIENCE = 8.0
"""Wall-clock seconds after which a command that serves or follows is asked to end."""

_LASTING = ("watch", "dashboard", "mcp")
"""Commands that end when they are stopped."""

_SHORT = {
    "train": ["--steps", "1", "--set", "model.warm_start_steps=0", "--set", "threads=1"],
    "watch": ["--plain"],
    "dashboard": ["--port", "0"],
    "demo": ["--help"],
    "trial": ["--help"],
    "trials": ["--help"],
}
"""Added to the end, so that what starts remains short; the others train many runs."""

_SKIPPED = frozenset({"--install-completion", "--show-completion", "--ray"})
"""They change the shell's start-up files; a Ray cluster takes longer than all else together."""

_TEXTS = ("", " ", "-", "--", "nonsense", "\x1b[31m", "new\nline", "\udcff", "x" * 5000, "[bold]",
          "ENT", "ENT001", "trl", "verl", "jsonl", "0", "=", "a=b", "key=reward/mean", "loss=",
          "steps=-1", "seed=1e400", "transformers:missing", "vllm:", "?", "a:b?c=d", "missing.py:f",
          "٣", "null", "../..", "%s", "{}")  # fmt: skip
_NUMBERS = ("0", "-1", "1", "3", "99999999999999999999", "1e400", "nan", "-inf", "1.5", "", "x",
            "0x10", "1_000", "٣")  # fmt: skip


_PLAIN = 0.6
"""Share of values that are usual, so that odd ones meet commands that get further."""

_SOUND = {
    "paths": ("run", "metrics.jsonl", "two"),
    "run": ("run", "metrics.jsonl"),
    "run_dir": ("new", "run"),
    "around": ("3", "0"),
    "code": ("ENT001", "GRP001"),
    "framework": ("trl", "verl"),
    "select": ("ENT", "GRP001"),
    "output": ("report.html", "report.json"),
}
"""Usual values by the name of the parameter."""


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    words: tuple[str, ...]
    code: int
    finding: str = ""


def odd_paths(folder: Path) -> list[str]:
    """Make odd files in a folder; return their names and some that do not exist."""
    (folder / "empty").mkdir()
    (folder / "empty.jsonl").touch()
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder / "socket"))
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "new\nline.log").write_text("x\n")
    (folder / "binary.db").write_bytes(random.Random(0).randbytes(3000))
    (folder / "metrics.jsonl").write_bytes(SOUND["jsonl"])
    (folder / "metrics.jsonl.gz").write_bytes(gzip.compress(SOUND["jsonl"])[:-9])
    shutil.copytree(_DATA / "run", folder / "run")
    (folder / "two").mkdir()
    for name in ("a", "b"):
        shutil.copytree(_DATA / "run", folder / "two" / name)
    (folder / "half.toml").write_text("[loss\nkind = 1")
    return ["empty", "empty.jsonl", "pipe", "socket", "loop", "dangling", "new\nline.log",
            "binary.db", "metrics.jsonl", "metrics.jsonl", "metrics.jsonl.gz", "run", "run", "two",
            "half.toml", "missing", "n" * 300, "a/" * 2000, "/dev/null", "/dev/zero", "/dev/full",
            "/dev/stdin", "/proc/self/mem", "-", "", ".", "\udcff", "run/steps.jsonl/x", "~",
            "http://127.0.0.1:1/x", "s3://", "file:///etc", "new\x1b[2J"]  # fmt: skip


@cache
def commands() -> dict[str, Any]:
    """Every command by its name, with its parameters."""
    return {name: _load(name) for name in COMMANDS}


def command_line(rng: random.Random, paths: Sequence[str]) -> list[str]:
    """A command with some of its options and with odd values."""
    name, command = rng.choice(sorted(commands().items()))
    words: list[str] = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            words += [
                _value(rng, name, parameter, paths) for _ in range(rng.choice((0, 1, 1, 1, 2)))
            ]
        elif rng.random() < min(0.5, 1.5 / len(command.params)) or parameter.required:
            words += _option(rng, name, parameter, paths)
    if rng.random() < 0.05:
        words.insert(rng.randint(0, len(words)), rng.choice(("--wat", "--", "-x", *_TEXTS)))
    return [name, *words, *_SHORT.get(name, [])]


def _option(rng: random.Random, command: str, parameter: Any, paths: Sequence[str]) -> list[str]:
    names = [name for name in parameter.opts if name not in _SKIPPED]
    if not names:
        return []
    name = rng.choice(names)
    return [name] if parameter.is_flag else [name, _value(rng, command, parameter, paths)]


def _value(rng: random.Random, command: str, parameter: Any, paths: Sequence[str]) -> str:
    if rng.random() < _PLAIN and parameter.name in _SOUND:
        return rng.choice(_SOUND[parameter.name])
    kinds = _kinds(command).get(parameter.name, [str])
    choices = [each.value for kind in kinds if issubclass(kind, Enum) for each in kind]
    if choices and rng.random() < 0.8:
        return str(rng.choice(choices))
    if {int, float}.intersection(kinds):
        return rng.choice(_NUMBERS)
    takes_path = Path in kinds or parameter.name in ("paths", "path", "run")
    return rng.choice(paths if takes_path or rng.random() < 0.3 else _TEXTS)


@cache
def _kinds(command: str) -> dict[str, list[type]]:
    """The classes in the annotation of each parameter."""
    function = command_function(command)
    return {name: list(_classes(hint)) for name, hint in get_type_hints(function).items()}


def _classes(hint: Any) -> Iterator[type]:
    inner = get_args(hint)
    if isinstance(hint, type) and not inner:
        yield hint
    for each in inner:
        yield from _classes(each)


def run(words: Sequence[str], folder: Path) -> Result:
    """Run a command line in a forked child, in a folder with odd files."""
    output = folder / ".output"
    pid = os.fork()
    if not pid:
        _become(words, folder, output)
    code, is_late = _end_of(pid, words[0] in _LASTING)
    text = output.read_text("utf-8", "replace") if output.exists() else ""
    return Result(tuple(words), code, _finding(code, text, is_late=is_late))


def _finding(code: int, text: str, *, is_late: bool) -> str:
    if is_late:
        return f"no end within {_WALL:.0f} s"
    if code == -signal.SIGXCPU:
        return f"more than {SECONDS} s of processor time"
    if "Traceback (most recent call last)" in text:
        return "a traceback: " + " ".join(text.strip().splitlines()[-1].split())[:200]
    if "PEAK" in text:
        return text[text.index("PEAK") :].splitlines()[0]
    if code not in (0, 1, 2):
        return f"exit code {code}: " + " ".join(text.split())[-300:]
    return ""


def _become(words: Sequence[str], folder: Path, output: Path) -> None:
    """Turn this child into the command; it never returns."""
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(HOME=str(folder), COLUMNS="100", HF_HUB_OFFLINE="1")
        nothing = os.open(os.devnull, os.O_RDONLY)
        writing = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in ((0, nothing), (1, writing), (2, writing)):
            os.dup2(source, target)
        limit_memory()
        limit = int(time.process_time()) + 1 + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        reset_peak()
        sys.argv = ["grpodoctor", *words]
        code = _main()
        if peak_megabytes() > MEGABYTES:
            os.write(2, f"PEAK {peak_megabytes():.0f} MB of memory\n".encode())
    finally:
        os._exit(code)


def _main() -> int:
    from grpodoctor.cli.main import main

    try:
        main()
    except SystemExit as error:
        sys.stdout.flush()
        return error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - what Python itself would print
        import traceback

        traceback.print_exc()
        return 1
    return 0


def _end_of(pid: int, is_lasting: bool) -> tuple[int, bool]:
    """The exit code, and whether the command had to be killed."""
    began, asked = time.monotonic(), False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return (0 if asked and code in (-signal.SIGTERM, 143, 130) else code), False
        waited = time.monotonic() - began
        if is_lasting and not asked and waited > _PATIENCE:
            os.kill(pid, signal.SIGTERM)
            asked, began = True, time.monotonic()
        elif waited > _WALL:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -signal.SIGKILL, True
        time.sleep(0.01)


def campaign(
    count: int, seed: int, report: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Run command lines one after another."""
    results = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            words = command_line(rng, odd_paths(folder))
            results.append(run(words, folder))
            report(results[-1])
    return results


def _print_if_broken(result: Result) -> None:
    if result.finding:
        print(f"{list(result.words)}\n    {result.finding}", flush=True)


def main() -> int:
    """Print the exit codes per command and the command lines that broke the contract."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    chosen = parser.parse_args()
    began = time.monotonic()
    results = campaign(chosen.count, chosen.seed, _print_if_broken)
    print("| command | command lines | exit code 0 | 1 | 2 | broken |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in sorted(commands()):
        mine = [each for each in results if each.words[0] == name]
        codes = Counter(each.code for each in mine if not each.finding)
        broken = sum(bool(each.finding) for each in mine)
        print(f"| {name} | {len(mine)} | {codes[0]} | {codes[1]} | {codes[2]} | {broken} |")
    broken = sum(bool(each.finding) for each in results)
    print(f"\n{len(results)} command lines, seed {chosen.seed}, {time.monotonic() - began:.0f} "
          f"seconds; {broken} broke the contract")  # fmt: skip
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
