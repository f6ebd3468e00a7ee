"""JSON over HTTP with bounds on everything: for programs that may need no package but numpy."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from contract import RefusalError

_MOST_BYTES = 128 << 20
"""Of one answer: that of a million tokens. Dozens may come at once."""
_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0
_PASSING = frozenset({429, 502, 503, 504})
"""Statuses that may be others a moment later."""
_CONNECT_SECONDS = 5.0


class StatusError(Exception):
    """The server answered, but not with success.

    Args:
        status: of HTTP.
        said: the beginning of what it said.
    """

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}: {said}")
        self.status, self.said = status, said


class NotJsonError(RefusalError):
    """The server answered with success, but not in JSON."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere, with a key in its hand."""

    def redirect_request(self, *_: Any) -> None:
        """Nowhere."""


class JsonClient:
    """Speaks with one server.

    Args:
        url: its address; a path of it stands before every path asked for.
        key: sent as a bearer's token if there is one; it stands in no message.
        timeout: seconds of silence in an answer.

    Raises:
        RefusalError: if the address is none.
    """

    def __init__(self, url: str, key: str = "", timeout: float = 600.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise RefusalError(
                f"{url[:80]!r} is no address of a server", "write it as http://HOST:PORT"
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # A proxy is for what lies outside.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())

    def wait(self, path: str, seconds: float) -> None:
        """Until the server answers at all.

        Raises:
            RefusalError: if it does not in this time.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                self._once(path, None, _CONNECT_SECONDS)
            except StatusError as error:
                if error.status not in _PASSING:
                    return
                reason = str(error)
            except (OSError, http.client.HTTPException) as error:
                reason = _reason(error)
            else:
                return
            if time.monotonic() >= until:
                raise RefusalError(
                    f"no server answers at {self.url} within {seconds:g} s: {reason}",
                    "start it, or give it longer with wait=SECONDS",
                )
            time.sleep(_PAUSE_SECONDS)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a GET, or to a POST of a body, tried again where that may help.

        Raises:
            StatusError: if the server says no.
            RefusalError: if it is silent, gone, or does not speak JSON.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._once(path, body, self._timeout)
            except StatusError as error:
                if error.status not in _PASSING or attempt == _ATTEMPTS:
                    raise
            except TimeoutError as error:
                raise RefusalError(
                    f"{self.url} was silent for {self._timeout:g} s after {path}",
                    "look into its log; raise request_timeout= if it is only slow",
                ) from error
            except (OSError, http.client.HTTPException) as error:
                if attempt == _ATTEMPTS:
                    raise RefusalError(
                        f"{self.url} no longer answers {path}: {_reason(error)}",
                        "look into its log, start it again, and probe again: what is finished "
                        "is kept",
                    ) from error
            time.sleep(_PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def find(self, *paths: str) -> Any:
        """The first of some things that the server has; None if it has none of them.

        Some answer whatever they do not know with a page.
        """
        for path in paths:
            try:
                return self.ask(path)
            except (StatusError, NotJsonError):
                continue
        return None

    def _once(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        # The scheme was looked at when the client was made.
        request = urllib.request.Request(self.url + path, data, self._headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                text = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise StatusError(error.code, _clean(error.read(2000))) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TimeoutError from error
            raise
        if len(text) > _MOST_BYTES:
            raise RefusalError(f"{self.url} answers {path} with more than {_MOST_BYTES} bytes")
        return self._parsed(path, text)

    def _parsed(self, path: str, text: bytes) -> Any:
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotJsonError(
                f"{self.url} does not answer {path} in JSON: {_clean(text[:200])!r}",
                "is it a server of completions?",
            ) from error


def _reason(error: Exception) -> str:
    return _clean(str(getattr(error, "reason", "") or error).encode()) or type(error).__name__


def _clean(said: bytes) -> str:
    """Something that a server said, on one line and without control characters."""
    text = " ".join(said.decode("utf-8", "replace").split())
    return "".join(letter for letter in text if letter.isprintable())[:300]
