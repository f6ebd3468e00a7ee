"""A browser whose connection to the dashboard is lost, and comes back."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.app.browser_page import SECONDS, Browser
from tests.app.conftest import Server, start, stop
from tests.app.cut_connection import CutConnection
from tests.report.simulated import record_run

pytestmark = pytest.mark.slow  # a cut connection and a restart take half a minute each

_OF_STREAMLIT = re.compile(
    r"when disconnected from server|No response received when attempting to reach /_stcore"
    r"|Streamlit server is not responding|ERR_CONNECTION|ERR_EMPTY_RESPONSE"
)
"""What Streamlit's client and the browser log while no server answers."""


def _live_run(folder: Path, steps: int) -> tuple[Path, list[bytes]]:
    """A live run of twenty steps, and the lines of the steps that follow."""
    longer = record_run(folder / "longer", steps)
    lines = (longer / "steps.jsonl").read_bytes().splitlines(keepends=True)[20:]
    shutil.rmtree(longer)
    return record_run(folder / "live", 20, finished=False), lines


def _port(server: Server) -> int:
    return int(server.origin.rsplit(":", 1)[1])


def _own_complaints(browser: Browser) -> list[str]:
    return [each for each in browser.complaints if not _OF_STREAMLIT.search(each)]


def test_a_page_continues_at_the_same_place_after_the_connection_was_lost(
    serve: Callable[..., Server], browser: Browser, tmp_path: Path
) -> None:
    run, lines = _live_run(tmp_path, 40)
    server = serve(run)
    with CutConnection(_port(server)) as connection:
        place = urlencode({"token": server.token, "run": "live", "steps": "5-19"})
        browser.open(f"http://127.0.0.1:{connection.port}/?{place}")
        browser.sees("step 19")
        browser.go("Rollouts")
        # A script that is still being loaded when the connection is cut would be missing.
        browser.page.locator("[data-testid=stDataFrame] canvas").first.wait_for(timeout=SECONDS)
        search = browser.page.get_by_label("Text in prompt or response")
        search.fill("7*3")
        search.press("Enter")
        browser.settle()
        browser.page.wait_for_load_state("networkidle", timeout=SECONDS)
        browser.check()
        assert search.input_value() == "7*3"
        browser.page.wait_for_url(re.compile("rollouts-text="), timeout=SECONDS)
        address = browser.page.url
        assert "/rollouts?" in address
        assert "steps=5-19" in address

        connection.cut()
        browser.sees("The dashboard does not answer. This page continues at the same place")
        assert browser.page.get_by_text("internet").count() == 0
        with (run / "steps.jsonl").open("ab") as file:
            file.writelines(lines)
        connection.restore()
        browser.page.get_by_text("The dashboard does not answer").wait_for(
            state="hidden", timeout=SECONDS
        )
        browser.sees("step 39")
        assert browser.page.url == address
        browser.page.get_by_role("button", name="Steps 5 to 19").wait_for(timeout=SECONDS)
        assert search.input_value() == "7*3"
        browser.go("Overview")
        browser.draws()
        assert "steps=5-19" in browser.page.url
        assert _own_complaints(browser) == []
        browser.complaints.clear()
        browser.check()


def test_a_page_of_an_earlier_start_names_the_address_to_open(
    browser: Browser, tmp_path: Path
) -> None:
    run = record_run(tmp_path / "live", 20, finished=False)
    first = start(run)
    second = None
    try:
        browser.open(first.url(run="live", steps="5-9"))
        browser.draws()
        browser.settle()
        stop(first)
        browser.sees("If it was started again, open the address that it printed.")
        second = start(run, options=("--port", str(_port(first))))
        browser.sees("each start of the dashboard makes a new token")
        browser.sees("printed when it was last started")
        assert browser.page.get_by_test_id("stTopNavLink").filter(visible=True).count() == 0
        assert browser.page.get_by_text("step 19").filter(visible=True).count() == 0
        browser.page.goto(browser.page.url.replace(first.token, second.token))
        browser.sees("step 19")
        browser.page.get_by_role("button", name="Steps 5 to 9").wait_for(timeout=SECONDS)
        assert _own_complaints(browser) == []
        browser.complaints.clear()
        browser.check()
    finally:
        for server in (first, second):
            if server is not None and server.process.poll() is None:
                stop(server)
