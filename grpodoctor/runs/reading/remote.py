"""Runs that lie elsewhere: `s3://`, `gs://`, `hf://` and `https://`, through fsspec.

Logs are brought into a temporary directory, within a bound on files, bytes and time, and read there
by the code that reads every other run. Rollout dumps, which may be larger than any disk, stay where
they are: whoever reads a part of one asks the store for that part.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from grpodoctor.errors import RunError, name_some
from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.frameworks.rollout_formats.registry import format_of_file, may_be_dump
from grpodoctor.runs.records import STEPS
from grpodoctor.support.packed_files import plain_name
from grpodoctor.support.remote_stores import BLOCK, is_remote, store_of, translated_errors

MOST_BYTES = 8 * 1024**3
"""Brought here at most; what goes beyond is left out and named, the largest files first."""

COPIED = 256 * 1024
"""Bytes up to which a file is copied without asking what it is: that is one request either way."""

MOST_FILES = 20_000
_DEEPEST = 6
_AT_A_TIME = 8

_WEIGHTS = {".safetensors", ".bin", ".ckpt", ".gguf", ".onnx", ".distcp", ".pth", ".h5"}
"""Ends of the names of what checkpoints hold: large, and no log."""

Dump = tuple[DumpFormat, DumpFile]

Told = Callable[[int, int], None]
"""Is told how many bytes of how many are here."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that lies elsewhere."""

    path: str
    """As its store names it."""
    name: PurePosixPath
    """Below the directory that was asked for."""
    size: int
    """In bytes; 0 if the store does not say."""


@dataclass
class LocalRun:
    """What was brought here."""

    path: Path
    """The run, as if it had always lain here."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""
    elsewhere: tuple[Dump, ...] = ()
    """Rollout dumps that stay where they are."""


@contextmanager
def fetch_run(url: str, *, most: int = MOST_BYTES, told: Told | None = None) -> Iterator[LocalRun]:
    """Bring a run here for as long as the block lasts.

    Args:
        url: of a log, or of a directory.
        most: bytes that are brought at most.
        told: is told of the progress, from several threads.

    Raises:
        RunError: if nobody knows such a place, or there is nothing, or it is not given to us.
        MissingExtraError: if the packages for such a place are not installed.
    """
    with translated_errors(url):
        store, root = store_of(url)
        files = list_files(store, root, url)
    if not files:
        raise RunError("there is nothing", where=url[:200], remedy="check the address")
    home = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
    try:
        with translated_errors(url):
            elsewhere = _dumps_among(store, files, home, url)
        staying = {str(source.path) for _, source in elsewhere}
        here = [each for each in files if str(home / each.name) not in staying]
        chosen, left = _within(here, most)
        with translated_errors(url):
            _bring(store, chosen, home, most, told)
        single = len(files) == 1 and files[0].path.rstrip("/") == root.rstrip("/")
        found = LocalRun(home / chosen[0].name if single and chosen else home)
        found.elsewhere = tuple(elsewhere)
        if elsewhere:
            size = sum(source.length for _, source in elsewhere) / 1e6
            found.notes.append(
                f"read where they lie, a part at a time: {len(elsewhere)} rollout dumps,"
                f" {size:.0f} MB"
            )
        if left:
            names = name_some([str(each.name) for each in left])
            found.notes.append(f"not brought here, larger than {most} bytes in all: {names}")
        yield found
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def brought(path: str, told: Told | None = None) -> Iterator[LocalRun]:
    """A run where it can be read: a local path as it is, any other for as long as the block lasts.

    Raises:
        GrpodoctorError: as `fetch_run` does.
    """
    if not is_remote(path):
        yield LocalRun(Path(path))
        return
    with fetch_run(path, told=told) as found:
        yield found


def list_files(store: Any, root: str, url: str) -> list[RemoteFile]:
    """The files under a root that may be logs or dumps, the nearest first."""
    about = store.info(root)
    if about.get("type") == "file" or url.lower().startswith("http"):
        return [RemoteFile(root, _name_below(root, ""), int(about.get("size") or 0))]
    files: list[RemoteFile] = []
    base = root.rstrip("/") + "/"
    for _, _, here in store.walk(root, maxdepth=_DEEPEST, detail=True):
        for each in here.values():
            path = str(each["name"])
            name = _name_below(path, base)
            if name.suffix.lower() not in _WEIGHTS and name.parts and path != base:
                files.append(RemoteFile(path, name, int(each.get("size") or 0)))
        if len(files) > MOST_FILES:
            break
    return files[:MOST_FILES]


def _name_below(path: str, base: str) -> PurePosixPath:
    """A name that stays within the directory that it is put into."""
    below = path.removeprefix(base) if base else path.rstrip("/").rsplit("/", 1)[-1]
    below = below.partition("?")[0]
    parts = [part for part in below.split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*("".join(c for c in part if c.isprintable())[:200] for part in parts))


def _dumps_among(store: Any, files: list[RemoteFile], home: Path, url: str) -> list[Dump]:
    """Rollout dumps that need not be copied: of a store that gives parts of files.

    A run of our own recorder is copied whole: its steps are compared with its rollouts.
    """
    if url.lower().startswith("http") or any(each.name.name == STEPS for each in files):
        return []

    def look(file: RemoteFile) -> Dump | None:
        source = DumpFile(home / plain_name(Path(file.name)), store.unstrip_protocol(file.path),
                        file.size)  # fmt: skip
        form = format_of_file(source)
        return None if form is None or form.skip_reason(source.path) else (form, source)

    large = [each for each in files if each.size > COPIED and may_be_dump(Path(each.name))]
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return [found for found in threads.map(look, large) if found is not None]


def _within(files: list[RemoteFile], most: int) -> tuple[list[RemoteFile], list[RemoteFile]]:
    """What is brought and what is not; small files go first, for logs are smaller than dumps."""
    chosen, left, total = list[RemoteFile](), list[RemoteFile](), 0
    for file in sorted(files, key=lambda each: each.size):
        total += file.size
        (chosen if total <= most else left).append(file)
    return chosen, left


def _bring(store: Any, files: list[RemoteFile], home: Path, most: int, told: Told | None) -> None:
    total, here = sum(each.size for each in files), [0]

    def bring(file: RemoteFile) -> None:
        target = home / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        # A store that does not say how large a file is must not fill the disk.
        room = file.size or most
        with store.open(file.path, "rb", block_size=BLOCK) as source, target.open("wb") as copy:
            while room > 0 and (block := source.read(min(BLOCK, room))):
                copy.write(block)
                room -= len(block)
                here[0] += len(block)
                if told is not None:
                    told(here[0], total)

    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        for _ in threads.map(bring, files):
            pass
