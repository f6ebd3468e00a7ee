"""Why a file gives no rows, as far as its first bytes tell."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.errors import RunError, name_some
from grpodoctor.support.damage import Damage
from grpodoctor.support.regular_files import open_regular

_LOOKED_AT = 4096
_MOST_TOLD = 3
_UNPACK = "unpack it first"
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_REMEDY = "give a training log or the directory of one; name its format with --format"


def no_run_error(path: Path, damage: list[Damage]) -> RunError:
    """The error that says why there is no run under a path.

    Args:
        path: what was given.
        damage: the first parts of it that could not be used.
    """
    told = _why(path) if path.is_file() else ""
    if damage and not told:
        if path.is_dir() and (found := _of_files(path)):
            return _error(path, found)
        first = damage[0]
        line = f" line {first.line}" if first.line else ""
        return _error(path, f"{first.file}{line}: {first.why}")
    if path.is_file():
        said = (
            f"it is not a run, but {told}"
            if told
            else "it is not a run, nor text with a step in it"
        )
        return _error(path, "the file is empty" if told == "empty" else said)
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return _error(path, "the directory is empty")
    return _error(path, _of_files(path) or f"found: {name_some(names)}")


def _of_files(directory: Path) -> str:
    """What the files of a directory are, if their beginnings tell."""
    names = sorted(entry.name for entry in directory.iterdir())
    reasons = [f"{name} is {why}" for name in names if (why := _why(directory / name))]
    return "; ".join(reasons[:_MOST_TOLD])


def _error(path: Path, what: str) -> RunError:
    return RunError(f"no log that can be read; {what}", where=str(path), remedy=_REMEDY)


def _why(path: Path) -> str:
    """What a file is in place of a log; empty if its first bytes do not tell."""
    try:
        if path.is_dir():
            return ""
        with open_regular(path) as file:
            head = file.read(_LOOKED_AT)
    except (OSError, RunError):
        return ""
    if not head:
        return "empty"
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None:
        return f"{packed}: {_UNPACK}"
    if not head.strip(b"\0"):
        return "nothing but zeros"
    if head.startswith(_WIDE) or head[1::2].count(0) > len(head) // 3:
        return "UTF-16: convert it to UTF-8"
    return "binary" if b"\0" in head else ""
