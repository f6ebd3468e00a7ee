"""Runs single pages of the dashboard in Streamlit's AppTest, without a browser."""

from __future__ import annotations

import json
from pathlib import Path

from streamlit.testing.v1 import AppTest

from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.monitor.dashboard.settings import DashboardSettings

_SEARCH_SECONDS = 60.0
TOKEN = "a-token"  # noqa: S105 - not a secret

_SCRIPT = """
from grpodoctor.support.programs import load_package

load_package("app", "dashboard").show_page({path!r}, [{settings!r}])
"""


def run_page(path: str, run: Path, *more_paths: Path, **params: str) -> AppTest:
    """A page of the dashboard after its first run.

    Args:
        path: the page's place in the address.
        run: the run that it shows.
        more_paths: further paths of the command line.
        params: query parameters.
    """
    paths = [str(run), *map(str, more_paths)]
    settings = json.dumps({"token": TOKEN, "paths": paths})
    test = AppTest.from_string(_SCRIPT.format(path=path, settings=settings), default_timeout=60)
    rows = RunTable(DashboardSettings.model_validate_json(settings)).refresh(_SEARCH_SECONDS)
    key = next(row.key for row in rows if row.path == run)
    for name, value in {"run": key, **params}.items():
        test.query_params[name] = value
    return test.run()


def shown_text(test: AppTest) -> str:
    """All text that the page shows."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "text", "info", "warning",
             "error")  # fmt: skip
    elements = [element.value for kind in kinds for element in getattr(test, kind)]
    return "\n".join([*elements, *(str(element.proto) for element in test.get("html"))])
