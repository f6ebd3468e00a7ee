"""Dashboards that start at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.app.conftest import Server, start, stop


@pytest.mark.slow
def test_each_of_three_gets_a_port_of_its_own(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(3) as threads:
        servers: list[Server] = list(threads.map(start, folders))
    try:
        assert len({server.origin for server in servers}) == 3
        assert [server.process.poll() for server in servers] == [None] * 3
    finally:
        for server in servers:
            stop(server)
