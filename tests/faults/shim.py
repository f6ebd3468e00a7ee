"""The preloaded library that makes one system call fail, and its control block."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

KINDS = (
    *("open", "read", "write", "close", "fsync", "stat", "list", "mkdir", "rename", "unlink"),
    *("truncate", "lock", "map", "fork", "exec", "thread", "socket", "send", "receive", "pipe"),
    "memory",
)
"""Kinds of calls, in the order of `enum kind` in inject.c."""

TRAINER, HELPER = 0, 1
"""Roles: the process of the harness, and a program that it starts, such as the writer process."""

_SOURCE = Path(__file__).with_name("inject.c")
_PATH_BYTES = 1024

P = ParamSpec("P")
T = TypeVar("T")


class _Control(ctypes.Structure):
    _fields_ = (
        ("root", ctypes.c_char * _PATH_BYTES),
        ("excluded", ctypes.c_char * _PATH_BYTES),
        ("role", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("number", ctypes.c_int64),
        ("error", ctypes.c_int64),
        ("persists", ctypes.c_int64),
        ("fired", ctypes.c_int64),
        ("calls", ctypes.c_int64 * (2 * len(KINDS))),
        ("failed", ctypes.c_char * _PATH_BYTES),
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """The call that fails, and its error."""

    kind: str
    error: int
    role: int = TRAINER
    persists: bool = False
    """Whether all later calls of the kind fail too."""


class Control:
    """The control block of one run of a scenario.

    Args:
        path: a new file outside the scenario's own directory.
        root: calls on paths below it count.
        excluded: calls on paths below it do not.
    """

    def __init__(self, path: Path, root: Path, excluded: Path | None = None) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(_Control)))
        with path.open("r+b") as file:
            self._block = _Control.from_buffer(mmap.mmap(file.fileno(), 0))
        self._block.root = str(root).encode()
        self._block.excluded = str(excluded or "").encode()
        self._block.kind = -1

    def set(self, fault: Fault, number: int) -> Self:
        """Ask for a fault at the call of this number, counted from 1."""
        block = self._block
        block.role, block.kind = fault.role, KINDS.index(fault.kind)
        block.number, block.error, block.persists = number, fault.error, fault.persists
        return self

    @property
    def fired(self) -> bool:
        """Whether the call took place, and failed."""
        return bool(self._block.fired)

    @property
    def place(self) -> str:
        """The path of the call that failed, or the name of the call."""
        return str(self._block.failed.decode(errors="replace"))

    def calls(self, fault: Fault) -> int:
        """How many calls of the fault's kind and role took place."""
        return int(self._block.calls[fault.role * len(KINDS) + KINDS.index(fault.kind)])


def compiled() -> Path:
    """Compile the library; returns its path in the temporary directory.

    Raises:
        FileNotFoundError: if there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("fault injection needs a C compiler (cc)")
    target = Path(tempfile.mkdtemp(prefix="grpodoctor-faults-")) / "inject.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", target, _SOURCE]
    subprocess.run([*map(str, command), "-ldl"], check=True)
    return target


@cache
def _library() -> ctypes.PyDLL:
    return ctypes.PyDLL(os.environ["LD_PRELOAD"])


def attach(control: Control) -> None:
    """Let this process take part, and the programs that it starts."""
    if _library().fault_attach(os.fsencode(control.path), TRAINER):
        raise OSError(f"cannot attach to {control.path}")
    os.environ["FAULT_CONTROL"] = str(control.path)


def arm_process() -> None:
    """Count calls without a path in all threads of this process."""
    _library().fault_arm_all(1)


def disarm_process() -> None:
    """End `arm_process` and `armed`."""
    _library().fault_arm_all(-1)


class armed:  # noqa: N801 - used like a function
    """Count calls without a path while this thread is in the block; entry and exit never fail."""

    def __init__(self) -> None:
        library = _library()
        self._arm, self._disarm = library.fault_arm, library.fault_disarm
        self._arm.restype = self._disarm.restype = None

    def __enter__(self) -> None:
        self._arm()

    def __exit__(self, *_: object) -> None:
        self._disarm()


def arming(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose calls without a path count."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with armed():
            return function(*args, **kwargs)

    return call
