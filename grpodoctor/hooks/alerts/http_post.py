"""Posting JSON to an address that is a secret."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from grpodoctor import __version__
from grpodoctor.hooks.alerts.channel import ChannelError
from grpodoctor.support.safe_text import json_bytes

TIMEOUT_SECONDS = 10.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the alert, and perhaps a secret, to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post_json(url: str, body: object, headers: Mapping[str, str] | None = None) -> None:
    """Post JSON; the proxy variables of the environment apply.

    Args:
        url: an http or https address; it never appears in an error.
        body: the object to send.
        headers: further headers.

    Raises:
        ChannelError: if the server did not accept it.
    """
    request = _request(url, body, headers or {})
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            response.read(1024)
    except HTTPError as error:
        error.close()
        raise ChannelError(f"the server answered with HTTP status {error.code}") from None
    except URLError as error:
        raise ChannelError(f"no connection: {_reason(error.reason)}") from None
    except TimeoutError:
        raise ChannelError(f"no answer within {TIMEOUT_SECONDS:g} seconds") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ChannelError(f"no connection: {_reason(error)}") from None


def _request(url: str, body: object, headers: Mapping[str, str]) -> urllib.request.Request:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ChannelError("the address is not an http or https URL")
    fixed = {"Content-Type": "application/json", "User-Agent": f"grpodoctor/{__version__}"}
    return urllib.request.Request(  # noqa: S310 - the scheme was checked
        url, data=json_bytes(body), headers={**fixed, **headers}
    )


def _reason(error: object) -> str:
    """The operating system's reason, or the kind of error; the texts of others name the address."""
    if isinstance(error, TimeoutError):
        return "timeout"
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or type(error).__name__
