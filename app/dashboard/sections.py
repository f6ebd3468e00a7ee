"""Sections of a page: one that fails says so in its place, and the others are drawn."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from grpodoctor.errors import GrpodoctorError
from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.support.safe_text import unlinked

_LONGEST_MESSAGE = 400
_SEARCH_SECONDS = 2.0


@contextmanager
def section(title: str = "", caption: str = "") -> Iterator[None]:
    """A part of a page under its own heading.

    Args:
        title: our own text; empty for a part without a heading.
        caption: our own text, printed under the heading.
    """
    with st.container():
        if title:
            st.subheader(title)
        if caption:
            st.caption(caption)
        try:
            yield
        except GrpodoctorError as error:
            st.error(unlinked(str(error), limit=_LONGEST_MESSAGE), icon=":material/error:")
        except Exception as error:  # noqa: BLE001 - one broken section must not end the page
            traceback.print_exc(file=sys.stderr)
            what = unlinked(f"{type(error).__name__}: {error}", limit=_LONGEST_MESSAGE)
            st.error(
                f"This section cannot be shown. {what}. The rest of the page is complete; please "
                "report this defect of grpodoctor.",
                icon=":material/error:",
            )


def empty(text: str, icon: str = ":material/hourglass_empty:") -> None:
    """Say in place why there is nothing to show.

    Args:
        text: our own text; foreign parts are escaped by the caller.
        icon: a Material icon.
    """
    st.info(text, icon=icon)


def await_search(table: RunTable) -> None:
    """Draw the page again when the folders have been searched; until then, say so."""

    @st.fragment(run_every=_SEARCH_SECONDS)
    def part() -> None:
        table.refresh(_SEARCH_SECONDS)
        if table.is_searched:
            st.rerun()
        st.skeleton(height=300)
        st.caption("Searching for runs …")

    part()
