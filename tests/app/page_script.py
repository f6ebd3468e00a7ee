"""Pages without a browser: Streamlit's AppTest draws one page of the dashboard."""

import time
from pathlib import Path
from secrets import token_urlsafe

from streamlit.testing.v1 import AppTest

from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.monitor.dashboard.settings import DashboardSettings

_SEARCH_SECONDS = 60.0
_SCRIPT = """
from grpodoctor.support.programs import load_package

load_package("app", "dashboard").show_page({page!r}, [{settings!r}])
"""


def page_test(page: str, *paths: Path, allow_treatment: bool = False, **params: str) -> AppTest:
    """A page that was drawn once.

    Args:
        page: its place in the address.
        *paths: paths of the command line.
        allow_treatment: as the option of the command.
        **params: query parameters of the address.
    """
    settings = DashboardSettings(
        token=token_urlsafe(), paths=tuple(paths), allow_treatment=allow_treatment
    )
    script = _SCRIPT.format(page=page, settings=settings.model_dump_json())
    test = AppTest.from_string(script, default_timeout=60)
    for name, value in params.items():
        test.query_params[name] = value
    return test.run()


def run_page(page: str, run: Path, *more_paths: Path, **params: str) -> AppTest:
    """A page about one of the runs below the paths, drawn once."""
    settings = DashboardSettings(token=token_urlsafe(), paths=(run, *more_paths))
    rows = RunTable(settings).refresh(_SEARCH_SECONDS)
    key = next(row.key for row in rows if row.path == run)
    return page_test(page, run, *more_paths, run=key, **params)


def text_of(test: AppTest) -> str:
    """Everything that a page says, by kind of element."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "text", "code", "info",
             "warning", "error")  # fmt: skip
    parts = [element.value for kind in kinds for element in test.get(kind)]
    return "\n".join([*map(str, parts), *(str(element.proto) for element in test.get("html"))])


def drawn_until(test: AppTest, expected: str, seconds: float = 60.0) -> AppTest:
    """Draw a page again until it says something: runs are examined in another process."""
    deadline = time.monotonic() + seconds
    while expected not in text_of(test) and time.monotonic() < deadline:
        time.sleep(0.2)
        test.run()
    assert expected in text_of(test), text_of(test)
    return test
