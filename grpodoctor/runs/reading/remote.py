"""Runs in remote stores: `s3://`, `gs://`, `hf://` and `https://`, through fsspec.

Logs are downloaded to a temporary directory, within limits on files, bytes and time, and read there
like any other run. Rollout dumps, which may be larger than any disk, are not downloaded: parts of
them are requested from the store when they are read.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
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
from grpodoctor.support.files.packed_files import plain_name
from grpodoctor.support.files.remote_stores import BLOCK, is_remote, store_of, translated_errors
from grpodoctor.support.progress import NoProgress, Progress

MAX_BYTES = 8 * 1024**3
"""Bytes downloaded at most; the largest files beyond it are left out and named."""

COPIED = 256 * 1024
"""Files up to this size are downloaded without checking what they are: it is one request anyway."""

MAX_FILES = 20_000
_MAX_DEPTH = 6
_CONNECTIONS = 8

_WEIGHTS = {".safetensors", ".bin", ".ckpt", ".gguf", ".onnx", ".distcp", ".pth", ".h5"}
"""Suffixes of model weights, which are large and no logs."""

Dump = tuple[DumpFormat, DumpFile]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in a store."""

    path: str
    """Path in the store."""
    name: PurePosixPath
    """Path relative to the requested directory."""
    size: int
    """In bytes; 0 if the store does not report it."""


@dataclass
class LocalRun:
    """A run that can be read locally."""

    path: Path
    """The run, or the temporary directory with its copy."""
    notes: list[str] = field(default_factory=list)
    """Files that were not downloaded, and why."""
    remote_dumps: tuple[Dump, ...] = ()
    """Rollout dumps that are read from the store."""


@contextmanager
def fetch_run(
    url: str, *, max_bytes: int = MAX_BYTES, progress: Progress | None = None
) -> Iterator[LocalRun]:
    """Download a run for the duration of the block.

    Args:
        url: address of a log or of a directory.
        max_bytes: bytes downloaded at most.
        progress: receives the bytes downloaded so far, from several threads.

    Raises:
        RunError: if the store is unknown, there is nothing, or access is denied.
        MissingExtraError: if the packages for the store are not installed.
    """
    with translated_errors(url):
        store, root = store_of(url)
        files = list_files(store, root, url)
    if not files:
        raise RunError(
            "no file exists at this address", where=url[:200], remedy="check the address"
        )
    home = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
    try:
        with translated_errors(url):
            dumps = _remote_dumps(store, files, home, url)
        dump_paths = {str(source.path) for _, source in dumps}
        others = [file for file in files if str(home / file.name) not in dump_paths]
        chosen, left_out = _within(others, max_bytes)
        with translated_errors(url):
            _download(store, chosen, home, max_bytes, progress or NoProgress())
        is_file = len(files) == 1 and files[0].path.rstrip("/") == root.rstrip("/")
        run = LocalRun(home / chosen[0].name if is_file and chosen else home)
        run.remote_dumps = tuple(dumps)
        run.notes = _notes(dumps, left_out, max_bytes)
        yield run
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _notes(dumps: list[Dump], left_out: list[RemoteFile], max_bytes: int) -> list[str]:
    notes = []
    if dumps:
        size = sum(source.length for _, source in dumps) / 1e6
        notes.append(
            f"read from the store, not downloaded: {len(dumps)} rollout dumps, {size:.0f} MB"
        )
    if left_out:
        names = name_some([str(file.name) for file in left_out])
        notes.append(f"not downloaded, larger than {max_bytes} bytes in total: {names}")
    return notes


@contextmanager
def local_run(path: str, progress: Progress | None = None) -> Iterator[LocalRun]:
    """Yield a run that can be read: a local path unchanged, a remote run for the block's duration.

    Raises:
        GrpodoctorError: as `fetch_run` does.
    """
    if not is_remote(path):
        yield LocalRun(Path(path))
        return
    with fetch_run(path, progress=progress) as run:
        yield run


def list_files(store: Any, root: str, url: str) -> list[RemoteFile]:
    """List the files below a root that may be logs or dumps, level by level."""
    info = store.info(root)
    if info.get("type") == "file" or url.lower().startswith("http"):
        return [RemoteFile(root, _name_below(root, ""), int(info.get("size") or 0))]
    files: list[RemoteFile] = []
    base = root.rstrip("/") + "/"
    for _, _, entries in store.walk(root, maxdepth=_MAX_DEPTH, detail=True):
        for entry in entries.values():
            path = str(entry["name"])
            name = _name_below(path, base)
            if name.suffix.lower() not in _WEIGHTS and name.parts and path != base:
                files.append(RemoteFile(path, name, int(entry.get("size") or 0)))
        if len(files) > MAX_FILES:
            break
    return files[:MAX_FILES]


def _name_below(path: str, base: str) -> PurePosixPath:
    """The relative path of a file, which cannot leave the directory that it is written to."""
    relative = path.removeprefix(base) if base else path.rstrip("/").rsplit("/", 1)[-1]
    relative = relative.partition("?")[0]
    parts = [part for part in relative.split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*("".join(c for c in part if c.isprintable())[:200] for part in parts))


def _remote_dumps(store: Any, files: list[RemoteFile], home: Path, url: str) -> list[Dump]:
    """Rollout dumps that can be read in parts from the store.

    A run of the own recorder is downloaded whole, since its steps are checked against its rollouts.
    """
    if url.lower().startswith("http") or any(file.name.name == STEPS for file in files):
        return []

    def detect(file: RemoteFile) -> Dump | None:
        source = DumpFile(home / plain_name(Path(file.name)), store.unstrip_protocol(file.path),
                        file.size)  # fmt: skip
        form = format_of_file(source)
        return None if form is None or form.skip_reason(source.path) else (form, source)

    large = [file for file in files if file.size > COPIED and may_be_dump(Path(file.name))]
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        return [dump for dump in threads.map(detect, large) if dump is not None]


def _within(files: list[RemoteFile], limit: int) -> tuple[list[RemoteFile], list[RemoteFile]]:
    """The files to download and those left out; small files first, since logs are small."""
    chosen, left_out, total = list[RemoteFile](), list[RemoteFile](), 0
    for file in sorted(files, key=lambda file: file.size):
        total += file.size
        (chosen if total <= limit else left_out).append(file)
    return chosen, left_out


def _download(
    store: Any, files: list[RemoteFile], home: Path, max_bytes: int, progress: Progress
) -> None:
    total, completed = sum(file.size for file in files), 0
    lock = threading.Lock()

    def report(size: int) -> None:
        nonlocal completed
        with lock:
            completed += size
            progress.update(completed, total=total)

    def download(file: RemoteFile) -> None:
        target = home / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        # A store that reports no size must not fill the disk.
        remaining = file.size or max_bytes
        with store.open(file.path, "rb", block_size=BLOCK) as source, target.open("wb") as copy:
            while remaining > 0 and (block := source.read(min(BLOCK, remaining))):
                copy.write(block)
                remaining -= len(block)
                report(len(block))

    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        for _ in threads.map(download, files):
            pass
