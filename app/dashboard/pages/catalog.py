"""The page Rules and recipes: what each rule, remedy, recipe and metric is."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from grpodoctor.report.dashboard.catalog_entries import (
    CatalogEntry,
    Kind,
    catalog,
    entry_markdown,
    names_of,
    search,
)

from .. import url_state
from ..blocks import own_markdown
from ..context import PageContext
from ..sections import empty, section

_LABELS: dict[Kind, str] = {
    "rule": "Rules",
    "remedy": "Remedies",
    "recipe": "Recipes",
    "metric": "Metrics",
}
_ID_HEADS: dict[Kind, str] = {
    "rule": "Code",
    "remedy": "Remedy",
    "recipe": "Recipe",
    "metric": "Metric",
}
_LIST_PIXELS = 560


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Rules and recipes")
    wanted = context.params.get("rule", "")
    chosen = next((entry for entry in catalog() if entry.id == wanted), None)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Kind",
            get_args(Kind),
            default=chosen.kind if chosen else "rule",
            format_func=lambda each: _LABELS[each],
            key="catalog-kind",
            label_visibility="collapsed",
            required=True,
        )
        text = st.text_input(
            "Search",
            key="catalog-search",
            placeholder="A symptom, a code, or the name of a setting or log key in your framework",
            label_visibility="collapsed",
        )
    found = search(catalog(), text, kind or "rule")
    left, right = st.columns([5, 6], gap="medium")
    with left, section():
        picked = _list(found, kind or "rule")
    with right, section():
        shown = picked or (chosen if chosen in found else next(iter(found), None))
        if shown is not None:
            _entry(context, shown)


def _list(entries: list[CatalogEntry], kind: Kind) -> CatalogEntry | None:
    """List entries; return the one that was selected."""
    st.caption(f"{len(entries)} of {sum(entry.kind == kind for entry in catalog())}")
    if not entries:
        empty("Nothing matches all words of the search.", ":material/search_off:")
        return None
    event = st.dataframe(
        {
            _ID_HEADS[kind]: [entry.id for entry in entries],
            "Name": [entry.name for entry in entries],
            "Summary": [entry.summary for entry in entries],
        },
        hide_index=True,
        height=_LIST_PIXELS,
        key=f"catalog-{kind}",
        on_select="rerun",
        selection_mode="single-row",
        alt=f"{_LABELS[kind]} that match the search.",
        column_config={
            _ID_HEADS[kind]: st.column_config.TextColumn(pinned=True),
            "Summary": st.column_config.TextColumn(width="large"),
        },
    )
    rows = event["selection"]["rows"]
    if not rows or rows[0] >= len(entries):
        return None
    url_state.change(rule=entries[rows[0]].id)
    return entries[rows[0]]


def _entry(context: PageContext, entry: CatalogEntry) -> None:
    st.subheader(entry.id if entry.kind != "rule" else f"{entry.id} {entry.name}")
    if entry.kind == "remedy":
        st.markdown(own_markdown(entry.summary))
    names = names_of(entry)
    if names:
        frameworks = [each.framework for each in names]
        own = context.framework
        framework = st.selectbox(
            "In the framework",
            frameworks,
            index=frameworks.index(own) if own in frameworks else 0,
            key=f"catalog-framework-{entry.id}",
        )
        lines = next((each.names for each in names if each.framework == framework), ())
        st.code("\n".join(lines), language=None, wrap_lines=True)
    st.markdown(own_markdown(entry_markdown(entry)))
