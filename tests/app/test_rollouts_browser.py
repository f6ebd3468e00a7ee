"""The page Rollouts in a real browser: filters, a response token by token, and its group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grpodoctor.runs.rollouts import write_rollouts
from tests.app.conftest import Server
from tests.report.simulated import HOSTILE, record_run, rollouts

_WAIT = 60_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., Server]) -> str:
    """The address of a dashboard on one run with hostile texts."""
    run = record_run(tmp_path_factory.mktemp("runs") / "run", 41, sick_from=15)
    # Written again: the recorder drops rollouts if the machine is too slow.
    for step in (0, 20, 40):
        write_rollouts(run, rollouts(step, *[HOSTILE][: step == 20]), depth="full")
    return serve(run).url()


@pytest.fixture(scope="module")
def page(chromium: Any) -> Iterator[Any]:
    opened = chromium.new_page(viewport={"width": 1280, "height": 1400})
    opened.set_default_timeout(_WAIT)
    opened.dialogs = []
    opened.on("dialog", lambda dialog: opened.dialogs.append(dialog.message))
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    yield opened
    opened.close()


def _open(page: Any, address: str, **params: str) -> None:
    place, token = address.split("/?")
    query = "&".join([token, *(f"{name}={value}" for name, value in params.items())])
    page.goto(f"{place}/rollouts?{query}")
    page.get_by_text("24 responses").filter(visible=True).first.wait_for(timeout=_WAIT)
    page.locator('[data-test-script-state="notRunning"]').first.wait_for(timeout=_WAIT)


@pytest.mark.slow
def test_a_search_shortens_the_list(page: Any, address: str) -> None:
    _open(page, address)
    field = page.get_by_label("Text in prompt or response")
    field.fill("<SCRIPT>")
    field.press("Enter")
    page.get_by_text("1 to 8 of 8 responses").wait_for(timeout=_WAIT)
    field.fill("no such text")
    field.press("Enter")
    page.get_by_text("No response matches the filters.").wait_for(timeout=_WAIT)


def test_a_row_opens_its_response(page: Any, address: str) -> None:
    _open(page, address)
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 35 * 2.5)  # the box of the second row
    page.get_by_role("heading", name="Response", exact=True).wait_for(timeout=_WAIT)
    page.wait_for_url(re.compile("sequence=step-0%2Fseq-1"), timeout=_WAIT)


def test_tokens_have_colors_and_figures(page: Any, address: str) -> None:
    _open(page, address, sequence="step-20/seq-1", step="20")
    page.get_by_role("tab", name="Tokens").click()
    tokens = page.locator('[data-testid="stHtml"] span[title^="token "]')
    tokens.first.wait_for(timeout=_WAIT)
    assert tokens.count() == 6
    assert "|Δp|" in tokens.first.get_attribute("title")
    assert "background" in tokens.first.get_attribute("style")


def test_differences_in_a_group_are_marked(page: Any, address: str) -> None:
    _open(page, address, sequence="step-20/seq-1", step="20")
    page.get_by_role("tab", name="Group").click()
    marks = page.locator('[data-testid="stHtml"] mark')
    marks.first.wait_for(timeout=_WAIT)
    assert {mark.strip() for mark in marks.all_inner_texts()} == {"(0)", "(1)"}


@pytest.mark.slow
def test_hostile_text_runs_nothing(page: Any, address: str) -> None:
    _open(page, address, sequence="step-20/seq-1", step="20")
    page.get_by_text("<script>alert(1)</script>").filter(visible=True).first.wait_for(timeout=_WAIT)
    assert (page.dialogs, page.errors) == ([], [])
    assert page.locator("img[onerror]").count() == 0
