"""JSON over HTTP with bounded sizes and times, using only the standard library."""

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

_MAX_BYTES = 128 << 20
"""Largest answer: that of a million tokens. Dozens may arrive at once."""
_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0
_TRANSIENT = frozenset({429, 502, 503, 504})
"""Statuses worth another attempt."""
_CONNECT_SECONDS = 5.0


class StatusError(Exception):
    """The server answered with an error status.

    Args:
        status: HTTP status.
        body: the start of the answer.
    """

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status, self.body = status, body


class NotJsonError(RefusalError):
    """The server answered successfully, but not with JSON."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, which would send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse the redirect."""


class JsonClient:
    """A client of one server.

    Args:
        url: the server's address; its path is a prefix of every request's path.
        key: sent as a bearer token if not empty; it appears in no message.
        timeout: seconds of silence in an answer.

    Raises:
        RefusalError: if the address is invalid.
    """

    def __init__(self, url: str, key: str = "", timeout: float = 600.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise RefusalError(
                f"{url[:80]!r} is not the address of a server", "write it as http://HOST:PORT"
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # No proxy: the server is expected in the local network.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def wait(self, path: str, seconds: float) -> None:
        """Wait until the server answers.

        Raises:
            RefusalError: if it does not answer in time.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                self._once(path, None, _CONNECT_SECONDS)
            except StatusError as error:
                if error.status not in _TRANSIENT:
                    return
                reason = str(error)
            except (OSError, http.client.HTTPException) as error:
                reason = _reason(error)
            else:
                return
            if time.monotonic() >= until:
                raise RefusalError(
                    f"no server answers at {self.url} within {seconds:g} s: {reason}",
                    "start it, or wait longer with wait=SECONDS",
                )
            time.sleep(_PAUSE_SECONDS)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a GET, or a POST if there is a body; transient failures are retried.

        Raises:
            StatusError: if the server answers with an error status.
            RefusalError: if it is silent or gone, or does not answer with JSON.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._once(path, body, self._timeout)
            except StatusError as error:
                if error.status not in _TRANSIENT or attempt == _ATTEMPTS:
                    raise
            except TimeoutError as error:
                raise RefusalError(
                    f"{self.url} was silent for {self._timeout:g} s after {path}",
                    "read its log; raise request_timeout= if it is only slow",
                ) from error
            except (OSError, http.client.HTTPException) as error:
                if attempt == _ATTEMPTS:
                    raise RefusalError(
                        f"{self.url} no longer answers {path}: {_reason(error)}",
                        "read its log, restart it, and run the probe again: finished results are "
                        "kept",
                    ) from error
            time.sleep(_PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def find(self, *paths: str) -> Any:
        """The answer of the first path that the server has; None if it has none of them.

        Some servers answer unknown paths with an HTML page.
        """
        for path in paths:
            try:
                return self.ask(path)
            except (StatusError, NotJsonError):
                continue
        return None

    def _once(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        # The constructor checked the scheme.
        request = urllib.request.Request(self.url + path, data, self._headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                text = answer.read(_MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise StatusError(error.code, _clean(error.read(2000))) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TimeoutError from error
            raise
        if len(text) > _MAX_BYTES:
            raise RefusalError(f"{self.url} answers {path} with more than {_MAX_BYTES} bytes")
        return self._parsed(path, text)

    def _parsed(self, path: str, text: bytes) -> Any:
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotJsonError(
                f"{self.url} does not answer {path} with JSON: {_clean(text[:200])!r}",
                "check that it is a completions server",
            ) from error


def _reason(error: Exception) -> str:
    return _clean(str(getattr(error, "reason", "") or error).encode()) or type(error).__name__


def _clean(answer: bytes) -> str:
    """A server's text on one line and without control characters."""
    text = " ".join(answer.decode("utf-8", "replace").split())
    return "".join(letter for letter in text if letter.isprintable())[:300]
