"""Stores of files that lie elsewhere, through fsspec: how to ask them, what their errors mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import SEEK_SET, BufferedReader, RawIOBase
from typing import Any

from grpodoctor.errors import MissingExtraError, RunError

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)

_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 10, 60, 3

_KINDS = ("s3", "gs", "hf", "https", "http")
BLOCK = 8 * 1024 * 1024
"""Bytes that are asked for at once."""
BUFFER = 256 * 1024


def is_remote(path: str) -> bool:
    """Whether a path is the address of another place."""
    return _URL.match(path) is not None


def store_of(url: str) -> tuple[Any, str]:
    """The store that an address names, and the path in it.

    Raises:
        RunError: if nobody knows such a place.
        MissingExtraError: if the packages for such a place are not installed.
    """
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


def open_remote(url: str) -> BufferedReader:
    """A file of a store, read by ranges as it is asked for.

    Raises:
        RunError: if it cannot be read.
        MissingExtraError: if the packages for such a place are not installed.
    """
    with explained(url):
        kind = url.partition("://")[0].lower()
        store = _shared_store(kind)
        path = store._strip_protocol(url)  # noqa: SLF001 - fsspec's own way to read an address
        file = store.open(path, "rb", block_size=BLOCK)
    return BufferedReader(_Explained(file, url), BUFFER)


class _Explained(RawIOBase):
    """A store's file, whose errors while it is read are ours.

    Its own readline knows no bound, so that one is put around it that has one.
    """

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any, /) -> int:
        with explained(self._url):
            return int(self._file.readinto(buffer))

    def close(self) -> None:
        self._file.close()
        super().close()


@lru_cache(maxsize=4)
def _shared_store(kind: str) -> Any:
    """One connection for all the files of a dump."""
    return store_of(f"{kind}://")[0]


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
def explained(url: str) -> Iterator[None]:
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
