"""Runs that lie elsewhere: `s3://`, `gs://`, `hf://` and `https://`, through fsspec.

What there is to read is brought into a temporary directory, within a bound on files, bytes and
time, and read there by the code that reads every other run.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from grpodoctor.errors import MissingExtraError, RunError, name_some

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)

_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 10, 60, 3

_KINDS = ("s3", "gs", "hf", "https", "http")

MOST_BYTES = 8 * 1024**3
"""Brought here at most; what goes beyond is left out and named, the largest files first."""

MOST_FILES = 20_000
_DEEPEST = 6
_BLOCK = 8 * 1024 * 1024
_AT_A_TIME = 8

_WEIGHTS = {".safetensors", ".bin", ".ckpt", ".gguf", ".onnx", ".distcp", ".pth", ".h5"}
"""Ends of the names of what checkpoints hold: large, and no log."""

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
class Fetched:
    """What was brought here."""

    path: Path
    """The run, as if it had always lain here."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


def is_remote(path: str) -> bool:
    """Whether a path is the address of another place."""
    return _URL.match(path) is not None


@contextmanager
def fetched(url: str, *, most: int = MOST_BYTES, told: Told | None = None) -> Iterator[Fetched]:
    """Bring a run here for as long as the block lasts.

    Args:
        url: of a log, or of a directory.
        most: bytes that are brought at most.
        told: is told of the progress, from several threads.

    Raises:
        RunError: if nobody knows such a place, or there is nothing, or it is not given to us.
        MissingExtraError: if the packages for such a place are not installed.
    """
    with _explained(url):
        store, root = _store_of(url)
        files = list_files(store, root, url)
    if not files:
        raise RunError("there is nothing", where=url[:200], remedy="check the address")
    chosen, left = _within(files, most)
    home = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
    try:
        with _explained(url):
            _bring(store, chosen, home, most, told)
        single = len(files) == 1 and files[0].path.rstrip("/") == root.rstrip("/")
        found = Fetched(home / chosen[0].name if single and chosen else home)
        if left:
            names = name_some([str(each.name) for each in left])
            found.notes.append(f"not brought here, larger than {most} bytes in all: {names}")
        yield found
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def brought(path: str, told: Told | None = None) -> Iterator[Fetched]:
    """A run where it can be read: a local path as it is, any other for as long as the block lasts.

    Raises:
        GrpodoctorError: as `fetched` does.
    """
    if not is_remote(path):
        yield Fetched(Path(path))
        return
    with fetched(path, told=told) as found:
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
        with store.open(file.path, "rb", block_size=_BLOCK) as source, target.open("wb") as copy:
            while room > 0 and (block := source.read(min(_BLOCK, room))):
                copy.write(block)
                room -= len(block)
                here[0] += len(block)
                if told is not None:
                    told(here[0], total)

    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        for _ in threads.map(bring, files):
            pass


def _store_of(url: str) -> tuple[Any, str]:
    match = _URL.match(url)
    kind = match[1].lower() if match else ""
    if kind not in _KINDS:
        known = ", ".join(f"{each}://" for each in _KINDS)
        raise RunError(f"{kind}:// is no place that runs are read from", where=url[:200],
                       remedy=f"use a local path or one of {known}")  # fmt: skip
    try:
        import fsspec

        return fsspec.core.url_to_fs(url, **_options(kind))  # type: ignore[no-any-return]
    except ImportError:
        raise MissingExtraError(f"reading from {kind}://", "remote") from None


def _options(kind: str) -> dict[str, Any]:
    """Bounds on waiting, as each store wants to be told; and nothing that is remembered."""
    if kind == "s3":
        waiting = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS}
        retries = {"retries": {"max_attempts": _ATTEMPTS}}
        return {"config_kwargs": {**waiting, **retries}, "skip_instance_cache": True}
    if kind.startswith("http"):
        import aiohttp

        waiting_http = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        return {"client_kwargs": {"timeout": waiting_http}, "skip_instance_cache": True}
    return {"timeout": _READ_SECONDS} if kind == "gs" else {}


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Say in one line what a store's own errors mean."""
    try:
        yield
    except FileNotFoundError:
        raise RunError(
            "no such bucket, file or directory", where=url[:200], remedy="check the address"
        ) from None
    except PermissionError as error:
        raise RunError(
            f"the store refuses: {_short(error)}",
            where=url[:200],
            remedy="check the credentials and what they may read",
        ) from error
    except _errors() as error:
        if "credentials" in str(error).lower():
            raise RunError(
                "there are no credentials for this store",
                where=url[:200],
                remedy="set them as its own tools want them, such as AWS_PROFILE",
            ) from error
        raise RunError(
            f"it cannot be read: {_short(error)}",
            where=url[:200],
            remedy="check the address and the network",
        ) from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _errors() -> tuple[type[BaseException], ...]:
    """What the packages of the stores raise beside the system's errors, of those in use."""
    named = (
        ("botocore.exceptions", "BotoCoreError"),
        ("aiohttp", "ClientError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("gcsfs.retry", "HttpError"),
        ("huggingface_hub.errors", "HfHubHTTPError"),
        ("httpx", "HTTPError"),
        ("httpx2", "HTTPError"),  # what huggingface_hub asks with, by either name
    )
    found = (getattr(sys.modules.get(module), name, None) for module, name in named)
    return (OSError, ValueError, RuntimeError, *(each for each in found if each is not None))
