"""Remote file stores through fsspec: opening files and translating errors."""

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

_SCHEMES = ("s3", "gs", "hf", "https", "http")
BLOCK = 8 * 1024 * 1024
"""Bytes per request."""
BUFFER = 256 * 1024


def is_remote(path: str) -> bool:
    """Whether a path is a URL."""
    return _URL.match(path) is not None


def store_of(url: str) -> tuple[Any, str]:
    """Return the fsspec store of a URL, and the path inside it.

    Raises:
        RunError: if the scheme is not supported.
        MissingExtraError: if the packages for the scheme are not installed.
    """
    match = _URL.match(url)
    scheme = match[1].lower() if match else ""
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise RunError(f"runs cannot be read from {scheme}://", where=url[:200],
                       remedy=f"use a local path or one of {known}")  # fmt: skip
    try:
        import fsspec

        return fsspec.core.url_to_fs(url, **_options(scheme))  # type: ignore[no-any-return]
    except ImportError:
        raise MissingExtraError(f"reading from {scheme}://", "remote") from None


def open_remote(url: str) -> BufferedReader:
    """Open a file of a store; its content is requested in ranges as it is read.

    Raises:
        RunError: if it cannot be read.
        MissingExtraError: if the packages for the scheme are not installed.
    """
    with translated_errors(url):
        scheme = url.partition("://")[0].lower()
        store = _shared_store(scheme)
        path = store._strip_protocol(url)  # noqa: SLF001 - fsspec's own parser of a URL
        file = store.open(path, "rb", block_size=BLOCK)
    return BufferedReader(_TranslatingFile(file, url), BUFFER)


class _TranslatingFile(RawIOBase):
    """A file of a store whose errors are translated.

    The readline of the store's file has no limit, so it is wrapped by a reader that has one.
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
        with translated_errors(self._url):
            return int(self._file.readinto(buffer))

    def close(self) -> None:
        self._file.close()
        super().close()


@lru_cache(maxsize=4)
def _shared_store(scheme: str) -> Any:
    """One connection for all files of a dump."""
    return store_of(f"{scheme}://")[0]


def _options(scheme: str) -> dict[str, Any]:
    """Time limits in each store's own parameters, and no caching of directory listings."""
    if scheme == "s3":
        timeouts = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS}
        retries = {"retries": {"max_attempts": _ATTEMPTS}}
        return {"config_kwargs": {**timeouts, **retries}, "skip_instance_cache": True}
    if scheme.startswith("http"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        return {"client_kwargs": {"timeout": timeout}, "skip_instance_cache": True}
    return {"timeout": _READ_SECONDS} if scheme == "gs" else {}


@contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Turn a store's errors into one-line errors of this package.

    Raises:
        RunError: for every error of the store.
    """
    try:
        yield
    except FileNotFoundError:
        raise RunError(
            "no such bucket, file or directory", where=url[:200], remedy="check the address"
        ) from None
    except PermissionError as error:
        raise RunError(
            f"the store denies access: {_short(error)}",
            where=url[:200],
            remedy="check the credentials and their permissions",
        ) from error
    except _store_errors() as error:
        if "credentials" in str(error).lower():
            raise RunError(
                "no credentials for this store",
                where=url[:200],
                remedy="set them as the store's own tools require, such as AWS_PROFILE",
            ) from error
        raise RunError(
            f"the address cannot be read: {_short(error)}",
            where=url[:200],
            remedy="check the address and the network",
        ) from error


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _store_errors() -> tuple[type[BaseException], ...]:
    """The error classes of the stores in use, in addition to the system's own."""
    named = (
        ("botocore.exceptions", "BotoCoreError"),
        ("aiohttp", "ClientError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("gcsfs.retry", "HttpError"),
        ("huggingface_hub.errors", "HfHubHTTPError"),
        ("httpx", "HTTPError"),
        ("httpx2", "HTTPError"),  # the client of huggingface_hub, under either name
    )
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in named)
    return (OSError, ValueError, RuntimeError, *(kind for kind in loaded if kind is not None))
