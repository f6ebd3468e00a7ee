"""The last line of the watch screen: its keys, with Ctrl-Z to suspend the program."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.widgets import Footer


def redraw_after_suspension(app: App[Any]) -> None:
    """Draw the whole screen when the shell continues the program.

    Textual draws only what has changed, and the terminal has lost the rest.
    """
    app.app_resume_signal.subscribe(app, lambda _: app.refresh(layout=True))


class KeyLine(Footer):
    """The keys that fit the line, in the order of their bindings. `?` lists all of them."""

    def __init__(self) -> None:
        super().__init__(compact=True)

    async def recompose(self) -> None:
        """Replace the keys by those of the focused widget."""
        await super().recompose()
        self.call_after_refresh(self._hide_cut_keys)

    def on_resize(self) -> None:
        """Show as many keys as the new width has room for."""
        self.call_after_refresh(self._hide_cut_keys)

    def _hide_cut_keys(self) -> None:
        for key in self.children:
            key.visible = key.virtual_region.right <= self.size.width
