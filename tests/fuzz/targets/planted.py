"""Readers that break the contract, one way each: a campaign must report all of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from grpodoctor.errors import InputError
from tests.fuzz.targets.base import Target


def targets() -> list[Target]:
    """One reader per breach; they are not among those that are fuzzed."""
    readers = (_raise, _refuse_in_two_lines, _allocate, _crash, _run_on, _wait)
    return [
        Target(f"planted:{each.__name__}", "file", lambda: b"sound", each, seconds=1)
        for each in readers
    ]


def _raise(path: Path) -> None:
    {}[path]


def _refuse_in_two_lines(path: Path) -> None:
    raise TwoLinesError(str(path))


class TwoLinesError(InputError):
    """A documented error whose text is not one line."""

    def __str__(self) -> str:
        return "one\ntwo"


def _allocate(_: Path) -> None:
    block = bytearray(1100 * 2**20)
    block[::4096] = b"x" * len(block[::4096])


def _crash(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _run_on(_: Path) -> None:
    while True:
        pass


def _wait(_: Path) -> None:
    signal.pause()
