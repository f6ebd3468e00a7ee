"""What a page says while the dashboard does not answer."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

CONNECTION_KEY = "connection-message"
"""Name of the element."""

_MESSAGE = (
    "The dashboard does not answer. This page continues at the same place as soon as it does. "
    "Check that grpodoctor dashboard is still running. If it was started again, open the address "
    "that it printed."
)
_COMPONENT = st.components.v2.component(
    "grpodoctor_connection_message",
    js=Path(__file__).with_name("connection_message.js").read_text(encoding="utf-8"),
)


def explain_lost_connection() -> None:
    """Show on the page what to do when its connection is lost.

    Streamlit asks for the reader's internet connection instead.
    """
    _COMPONENT(key=CONNECTION_KEY, data={"message": _MESSAGE}, height=1)
