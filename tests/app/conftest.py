"""The real command with a real browser."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.app.browser_page import Browser

_ADDRESS = re.compile(r"grpodoctor dashboard: (http://\S+)/\?token=(\S+)")
_START_SECONDS = 60


@dataclass
class Server:
    """A dashboard that serves some paths."""

    process: subprocess.Popen[str]
    origin: str
    token: str

    def url(self, **params: str) -> str:
        """The address of a place."""
        return self.page("", **params)

    def page(self, path: str, **params: str) -> str:
        """The address of a page."""
        return f"{self.origin}/{path}?{urlencode({'token': self.token, **params})}"


def start(*paths: Path, options: tuple[str, ...] = (), cwd: Path | None = None) -> Server:
    """Start the real command; it takes a free port."""
    command = [sys.executable, "-m", "grpodoctor", "dashboard", *map(str, paths), "--no-browser"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=cwd, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdout is not None
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if match := _ADDRESS.search(line):
            urlopen(f"{match[1]}/_stcore/health", timeout=5).close()  # noqa: S310 - our own server
            return Server(process, match[1], match[2])
        assert line, "the command ended without an address"
    raise AssertionError("no address")


def stop(server: Server, number: int = signal.SIGINT) -> int:
    """End a dashboard as Ctrl-C does; returns its exit code."""
    os.killpg(server.process.pid, number)
    code = server.process.wait(30)
    if server.process.stdout is not None:
        server.process.stdout.close()
    return code


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Server]]:
    """Starts dashboards that end with the tests of a file."""
    with ExitStack() as stack:

        def begin(*paths: Path, options: tuple[str, ...] = ()) -> Server:
            server = start(*paths, options=options)
            stack.callback(lambda: stop(server) if server.process.poll() is None else None)
            return server

        yield begin


@pytest.fixture(scope="module")
def context(chromium: Any) -> Iterator[Any]:
    """Loads and compiles the scripts of the dashboard once for the tests of a file."""
    opened = chromium.new_context()
    yield opened
    opened.close()


@pytest.fixture
def browser(context: Any) -> Iterator[Browser]:
    """A browser page that ends with the test."""
    opened = Browser(context)
    yield opened
    opened.page.close()
