"""One page of a real browser, with the errors that occur on it."""

import re
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import TimeoutError as WaitedTooLong

WIDTH, HEIGHT = 1280, 900
SECONDS = 300_000
"""Milliseconds to wait for the browser; the machine runs other tests as well."""

_PROBES = re.compile(r"/_stcore/(health|host-config)")
"""Streamlit's client looks for its server below the page's path first, and gets a 404 there."""


class Browser:
    """One browser page, with the errors that occurred on it."""

    def __init__(self, context: Any, scheme: str = "light") -> None:
        """Open a page.

        Args:
            context: the browser, or a context of it, whose pages share what they have loaded.
            scheme: `light` or `dark`.
        """
        self.page = context.new_page()
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        self.page.emulate_media(color_scheme=scheme)
        self.complaints: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        is_probe = _PROBES.search(message.location.get("url", ""))
        if message.type == "error" and not is_probe:
            self.complaints.append(f"{message.text} {message.location}")

    def _on_dialog(self, dialog: Any) -> None:
        self.complaints.append(f"a script of a run opened a dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:", "ws://127.0.0.1:")):
            self.complaints.append(f"the page loads {request.url}")

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.get_by_test_id("stMainBlockContainer").wait_for(timeout=SECONDS)
        self.settle()

    def go(self, title: str) -> None:
        """Click a page in the navigation, and wait until the address is that of the page."""
        name = self.page.get_by_text(title, exact=True)
        link = self.page.get_by_test_id("stTopNavLink").filter(has=name)
        path = urlsplit(link.get_attribute("href") or "").path
        link.click()
        try:
            self.page.wait_for_url(lambda url: _is_restored(url, path), timeout=SECONDS)
        except WaitedTooLong as error:
            raise AssertionError(self._state(f"the click on {title} led nowhere")) from error
        self.settle()

    def settle(self) -> None:
        """Wait until the script has run."""
        running = self.page.get_by_test_id("stStatusWidgetRunningIcon")
        self.page.wait_for_timeout(500)
        running.wait_for(state="hidden", timeout=SECONDS)

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until the page has the text."""
        found = self.page.get_by_text(text).filter(visible=True).first
        try:
            found.wait_for(timeout=SECONDS)
        except WaitedTooLong as error:
            raise AssertionError(self._state(f"the page lacks {text!r}")) from error

    def _state(self, defect: str) -> str:
        """A defect with all that explains it."""
        shown = self.page.inner_text("body")[:3000]
        return f"{defect}: {self.page.url} {self.complaints}\n{shown}"

    def draws(self) -> None:
        """Wait until a chart is drawn."""
        self.page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=SECONDS)

    def check(self) -> None:
        """Assert that the page has no exception, no defect, and no complaint of the browser."""
        assert self.page.get_by_test_id("stException").count() == 0
        assert self.page.get_by_text("This section cannot be shown").all_inner_texts() == []
        assert self.complaints == []
        assert self.page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def _is_restored(url: str, path: str) -> bool:
    """Whether the address is that of a page, with the place that the page puts back into it."""
    parts = urlsplit(url)
    return parts.path.strip("/") == path.strip("/") and bool(parts.query)
