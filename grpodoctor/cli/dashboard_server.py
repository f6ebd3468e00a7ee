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
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.support.lasting_output import outlive_terminal
from grpodoctor.support.programs import program

_START_SECONDS = 60.0
_NO_MESSAGE = "1e15"
"""Bytes that no message has."""
_SHARED_MODULES = (
    "pandas",
    "plotly.graph_objects",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
)
_REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0;url={url}">'


@dataclass(frozen=True, slots=True)
class Address:
    """Where the dashboard is."""

    host: str
    port: int | None
    """None until the server listens on the first free port."""
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


def check_address(host: str, port: int | None) -> None:
    """Check that this machine can listen on an address; any port does if None is given.

    Raises:
        ConfigError: if the port is taken, or the host is not an address of this machine.
    """
    try:
        _bind(host, port or 0)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise ConfigError(
                f"cannot listen on {host[:100]}: {error.strerror or error}",
                where="--host",
                remedy="pass an address of this machine, such as 127.0.0.1",
            ) from None
        why = "is in use" if error.errno == errno.EADDRINUSE else "needs more rights"
        raise _port_error(port, why) from None


def _port_error(port: int | None, why: str) -> ConfigError:
    return ConfigError(
        f"port {port} {why}" if port else f"the port in Streamlit's settings {why}",
        where="--port",
        remedy="pass another port",
    )


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
        address: where to listen; on the first free port from Streamlit's 8501 if it has none.
        stack: keeps the file that the browser opens.
        open_browser: whether to open a browser once the address was printed.
    """
    from streamlit.web import cli

    _import_before_threads()
    # Streamlit prints before it stops. A closed pipe would end its signal handler, and not it.
    outlive_terminal()
    script = program("app", "main.py")
    threading.Thread(
        target=_announce, args=(address, stack if open_browser else None), daemon=True
    ).start()
    # The settings are no argument of a process, where other users of the machine could read the
    # token: Streamlit runs in this process.
    options = [
        ("server.address", address.host),
        # Without a port, Streamlit takes the first one that is free when it listens.
        *([("server.port", address.port)] if address.port else []),
        ("server.headless", "true"),
        ("browser.gatherUsageStats", "false"),
        # Streamlit lets the browser keep large messages and sends their hash next time. Where a
        # fragment refreshes meanwhile, the browser may have dropped one, and the page stops
        # ("Cached ForwardMsg MISS").
        ("global.minCachedMessageSize", _NO_MESSAGE),
        # No other name leads here, so a page of another site cannot reach it under its own.
        *(("server.allowedHosts", host) for host in address.local_names),
    ]
    flags = [f"--{name}={value}" for name, value in options]
    try:
        cli.main(
            ["run", str(script), *flags, "--", settings.model_dump_json()], standalone_mode=False
        )
    except SystemExit as end:
        if end.code:  # another program took the port since it was checked
            raise _port_error(address.port, "is in use") from None


def _import_before_threads() -> None:
    """Import what pages and background readers import when they first need it.

    Two threads that import packages which import each other, as pandas and PyArrow do, can see one
    of them half imported.
    """
    for module in _SHARED_MODULES:
        import_module(module)


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


def _announce(wanted: Address, stack: ExitStack | None) -> None:
    """Print the address once the server answers.

    Args:
        wanted: where the server listens; its port may still be unknown.
        stack: keeps the file that a browser opens; None to open none.
    """
    deadline = time.monotonic() + _START_SECONDS
    address = replace(wanted, port=_own_port(deadline))
    if not _answers(address, deadline):
        print(f"warning: {address.origin} does not answer yet", file=sys.stderr, flush=True)
    print(f"grpodoctor dashboard: {address.url}", flush=True)
    print("Ctrl-C stops it; the runs continue", flush=True)
    if stack is not None:
        page = _redirect_page(_local_url(address) if address.is_wildcard else address.url)
        stack.callback(page.unlink, missing_ok=True)
        with suppress(webbrowser.Error):
            webbrowser.open(page.as_uri())


def _own_port(deadline: float) -> int:
    """The port on which this process listens.

    Another program's server may answer on the port that this one asked for, so an answer alone does
    not show that this one has started.
    """
    from streamlit import config
    from streamlit.runtime import Runtime
    from streamlit.runtime.runtime import RuntimeState

    while time.monotonic() < deadline:
        if Runtime.exists() and Runtime.instance().state is not RuntimeState.INITIAL:
            break
        time.sleep(0.05)
    return int(config.get_option("server.port"))


def _answers(address: Address, deadline: float) -> bool:
    """Whether the server answers before the time is up."""
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() < deadline:
        try:
            opener.open(f"{address.origin}/_stcore/health", timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False
