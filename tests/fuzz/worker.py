"""The process that reads inputs: `python -m tests.fuzz.worker SEED`.

A fork of it reads them. It prints the number of each input before it reads it and the outcome after
it. A fork that dies thus names the input that ended it; the next one starts at once, because the
imports are those of this process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.fuzz.limits import limit_memory, outcome, reset_peak
from tests.fuzz.targets import planted
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.catalogue import all_targets


@cache
def target_named(name: str) -> Target:
    """The target with this name.

    Raises:
        SystemExit: if there is none.
    """
    found = next((each for each in (*all_targets(), *planted.targets()) if each.name == name), None)
    if found is None:
        raise SystemExit(f"no target {name!r}")
    return found


def write_input(target: Target, seed: int, number: int, folder: Path) -> Path:
    """Write the input with this number and its companions below a folder; return its path."""
    for name, content in target.companions.items():
        _write(folder / name, content())
    path = folder / target.file
    _write(path, target.input(target.sound(), seed, number))
    return path


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def read_one(target: Target, seed: int, number: int, folder: Path) -> str:
    """Read one input in a fresh folder; return the outcome."""
    place = folder / str(number)
    path = write_input(target, seed, number, place)
    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
            return outcome(lambda: target.read(path), target.refusals, target.seconds)
    finally:
        shutil.rmtree(place)


def main() -> None:
    """Read the ranges that the standard input names, one per line: first, count, target."""
    seed = int(sys.argv[1])
    limit_memory()
    all_targets()
    with tempfile.TemporaryDirectory() as folder:
        while (code := _fork_status(seed, folder)) != 0:
            print(f"! {code}", flush=True)


def _fork_status(seed: int, folder: str) -> int:
    """Let a fork read; returns its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _read_ranges(seed, folder)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read_ranges(seed: int, folder: str) -> None:
    # Unbuffered: what this process has read ahead would be lost to the next one.
    with open(0, "rb", buffering=0, closefd=False) as lines:
        while line := lines.readline().decode():
            first, count, name = line.rstrip("\n").split(" ", 2)
            numbers = range(int(first), int(first) + int(count))
            _read_range(target_named(name), seed, numbers, folder)


def _read_range(target: Target, seed: int, numbers: range, folder: str) -> None:
    target.sound()
    reset_peak()
    for number in numbers:
        print(f"> {number}", flush=True)
        began = time.process_time()
        what = read_one(target, seed, number, Path(folder))
        print(f"= {time.process_time() - began:.6f} {what}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
