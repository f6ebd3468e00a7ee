"""Starts Streamlit on the dashboard's pages, and a browser on its address."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.support.lasting_output import outlive_terminal
from grpodoctor.support.programs import program

_PORTS_TRIED = 100
_START_SECONDS = 60.0
_REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0;url={url}">'


@dataclass(frozen=True, slots=True)
class Address:
    """Where the dashboard is."""

    host: str
    port: int
    token: str

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def local_names(self) -> tuple[str, ...]:
        """The names under which a browser may call it; empty if others may reach it."""
        return ("localhost", "127.0.0.1", self.host) if self.is_local else ()

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens on all addresses of the machine."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_unspecified
        return False

    @property
    def origin(self) -> str:
        """The address without the token, as a browser on this machine reaches it."""
        host = "127.0.0.1" if self.is_wildcard else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def url(self) -> str:
        """The address that shows the dashboard."""
        host = socket.gethostname() if self.is_wildcard else ""
        origin = f"http://{host}:{self.port}" if host else self.origin
        return f"{origin}/?token={quote(self.token)}"


def free_port(host: str, wanted: int | None, first: int) -> int:
    """The wanted port, or the first free one.

    Raises:
        ConfigError: if the wanted port is taken, no port is free, or the host is not an address of
            this machine.
    """
    candidates = range(first, first + _PORTS_TRIED) if wanted is None else (wanted,)
    for port in candidates:
        try:
            _bind(host, port)
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise ConfigError(
                    f"cannot listen on {host[:100]}: {error.strerror or error}",
                    where="--host",
                    remedy="pass an address of this machine, such as 127.0.0.1",
                ) from None
            why = "is in use" if error.errno == errno.EADDRINUSE else "needs more rights"
        else:
            return port
    if wanted is None:
        raise ConfigError(f"no port from {first} to {candidates[-1]} is free", where="--port")
    raise ConfigError(f"port {wanted} {why}", where="--port", remedy="pass another port")


def _bind(host: str, port: int) -> None:
    """Listen on the port for a moment.

    Raises:
        OSError: if that is not possible.
    """
    kind, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def serve(
    settings: DashboardSettings, address: Address, stack: ExitStack, *, open_browser: bool
) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM; the address is printed once it answers.

    Args:
        settings: for the pages.
        address: where to listen.
        stack: keeps the file that the browser opens.
        open_browser: whether to open a browser once the address was printed.
    """
    from streamlit.web import cli

    # Streamlit prints before it stops. A closed pipe would end its signal handler, and not it.
    outlive_terminal()
    script = program("app", "main.py")
    page: Path | None = None
    if open_browser:
        page = _redirect_page(address.url if not address.is_wildcard else _local_url(address))
        stack.callback(page.unlink, missing_ok=True)
    threading.Thread(target=_announce, args=(address, page), daemon=True).start()
    # The settings are no argument of a process, where other users of the machine could read the
    # token: Streamlit runs in this process.
    options = [
        ("server.address", address.host),
        ("server.port", address.port),
        ("server.headless", "true"),
        ("browser.gatherUsageStats", "false"),
        # No other name leads here, so a page of another site cannot reach it under its own.
        *(("server.allowedHosts", host) for host in address.local_names),
    ]
    flags = [f"--{name}={value}" for name, value in options]
    with suppress(SystemExit):
        cli.main(
            ["run", str(script), *flags, "--", settings.model_dump_json()], standalone_mode=False
        )


def _local_url(address: Address) -> str:
    return f"{address.origin}/?token={quote(address.token)}"


def _redirect_page(url: str) -> Path:
    """A file that only this user can read and that leads to the address.

    The command line of a browser is visible to all users, so it must not contain the token.
    """
    number, name = tempfile.mkstemp(prefix="grpodoctor-dashboard-", suffix=".html")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(_REDIRECT.format(url=url.replace("&", "&amp;")))
    return Path(name)


def _announce(address: Address, page: Path | None) -> None:
    """Print the address once the server answers, and open a browser if there is a page for it."""
    if not _answers(address):
        print(f"warning: {address.origin} does not answer yet", file=sys.stderr, flush=True)
    print(f"grpodoctor dashboard: {address.url}", flush=True)
    print("Ctrl-C stops it; the runs continue", flush=True)
    if page is not None:
        with suppress(webbrowser.Error):
            webbrowser.open(page.as_uri())


def _answers(address: Address) -> bool:
    """Whether the server answers before the time is up."""
    opener = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            opener.open(f"{address.origin}/_stcore/health", timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False
