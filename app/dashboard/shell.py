"""The frame of all pages: the token, the navigation, the bar with the run and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import streamlit as st
from pydantic import ValidationError

from grpodoctor.frameworks.registry import configurable_frameworks
from grpodoctor.monitor.dashboard.probe_files import probe_files
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.report.dashboard.phrases import state_phrase
from grpodoctor.support.safe_text import unlinked

from . import url_state
from .admission import is_admitted, refuse
from .connection import CONNECTION_KEY, explain_lost_connection
from .context import AWAITS_SEARCH, PageContext, Theme, observed_run, run_table
from .registry import PAGES, PageEntry, page_entry
from .sections import await_search, empty, section

_ICON = Path(__file__).with_name("icon.svg")
_STYLE = f"""<style>
[data-testid="stTopNavLink"]:focus-visible {{
    outline: 2px solid currentColor; outline-offset: 1px;
}}
.st-key-{CONNECTION_KEY} {{ position: absolute; }}
</style>"""
"""Streamlit shows the focus of these links only by a faint background. What explains a lost
connection takes no space."""
_ARRIVED = "arrived"
_DEEP_LINKS = {
    "finding": "finding",
    "sequence": "rollouts",
    "runs": "compare",
    "rule": "catalog",
    "run": "overview",
}
"""The page that shows what a query parameter names, the most specific parameter first."""
_SEARCH_SECONDS = 2.0


def show(arguments: Sequence[str]) -> None:
    """Draw the page that the address names.

    Args:
        arguments: the settings of the dashboard, as JSON.
    """
    st.set_page_config("grpodoctor", page_icon=str(_ICON), layout="wide")
    st.html(_STYLE)
    explain_lost_connection()  # first: a half-drawn page has the message too
    settings = _settings(arguments)
    if settings is None:
        return
    if not is_admitted(settings.token):
        # A page that a former dashboard drew still shows its links.
        st.navigation(list(_pages(settings, arguments[0]).values()), position="hidden")
        refuse()
        return
    url_state.restore()
    url_state.save(settings.token)  # a click may end this drawing before the page is complete
    pages = _pages(settings, arguments[0])
    _follow_deep_link(pages, arguments[0])
    st.navigation(list(pages.values()), position="top").run()
    url_state.save(settings.token)


def _pages(settings: DashboardSettings, settings_json: str) -> dict[str, st.Page]:
    """The pages by their place in the address; other pages lead to them."""
    pages = {
        entry.path: st.Page(
            _drawn(entry, settings, settings_json),
            title=entry.title,
            icon=entry.icon,
            url_path=entry.path,
            default=entry.path == PAGES[0].path,
        )
        for entry in PAGES
    }
    st.session_state["pages"] = pages
    return pages


def show_page(path: str, arguments: Sequence[str]) -> None:
    """Draw one page without the navigation.

    Args:
        path: the page's place in the address.
        arguments: as for `show`.
    """
    settings = _settings(arguments)
    if settings is not None:
        _pages(settings, arguments[0])
        _drawn(page_entry(path), settings, arguments[0])()


def _settings(arguments: Sequence[str]) -> DashboardSettings | None:
    try:
        return DashboardSettings.model_validate_json(arguments[0])
    except (IndexError, ValidationError):
        st.error("Start this dashboard with: grpodoctor dashboard PATH")
        return None


def _follow_deep_link(pages: Mapping[str, st.Page], settings_json: str) -> None:
    """Take the first visitor of `/` to the page that shows what the address names.

    `/?run=…&finding=…` leads to the finding; without a name, the only run is shown, or the probe
    reports if there is no run.
    """
    if st.session_state.get(_ARRIVED) or not _is_at_root():
        return
    params = url_state.params()
    if not params and (only := _only_run(settings_json)):
        params = {"run": only}
    if not params and not run_table(settings_json).is_searched:
        st.session_state[AWAITS_SEARCH] = True  # the page Runs draws everything again after it
        return
    st.session_state[_ARRIVED] = True
    wanted = next((name for name in _DEEP_LINKS if name in params), "")
    path = _DEEP_LINKS.get(wanted, "" if params else _page_without_runs(settings_json))
    if path:
        # The links come with the next page: Streamlit loses a click that meets a change of page.
        st.navigation(list(pages.values()), position="hidden")
        st.switch_page(pages[path], query_params=url_state.changed(params))


def _page_without_runs(settings_json: str) -> str:
    """The page of the probe reports, if the paths contain nothing else."""
    table = run_table(settings_json)
    is_alone = table.is_searched and not table.rows and probe_files(table.paths)
    return next(entry.path for entry in PAGES if entry.opens_probes) if is_alone else ""


def _is_at_root() -> bool:
    return (st.context.url or "").split("?")[0].rstrip("/").count("/") <= 2


def _drawn(entry: PageEntry, settings: DashboardSettings, settings_json: str) -> Callable[[], None]:
    """The function of a page, for the navigation."""

    def draw() -> None:
        with section():
            context = _context(entry, settings, settings_json)
            if context is None:
                return
            _bar(context)
            if context.observed is not None and context.view.data is None:
                context.live(_await_steps)
                return
            entry.function()(context)

    draw.__name__ = entry.path
    return draw


def _context(
    entry: PageEntry, settings: DashboardSettings, settings_json: str
) -> PageContext | None:
    """The context of a page; None if a run has to be chosen first."""
    params, theme = url_state.params(), _theme()
    if not entry.needs_run:
        return PageContext(settings, settings_json, theme, params)
    is_searched = run_table(settings_json).is_searched  # before the rows are read
    key = params.get("run", "") or _only_run(settings_json)
    if not key and not is_searched:
        await_search(run_table(settings_json))
        return None
    if not key and entry.opens_probes and probe_files(settings.paths):
        return PageContext(settings, settings_json, theme, params)
    if not key:
        empty("Choose a run on the page Runs.", ":material/table_rows:")
        st.page_link(st.session_state["pages"]["runs"], label="Runs")
        return None
    observed = observed_run(key, settings_json)
    if params.get("run") != key:
        url_state.change(run=key)
    context = PageContext(settings, settings_json, theme, url_state.params(), observed)
    return context.refreshed()


def _only_run(settings_json: str) -> str:
    """The key of the run, if there is only one."""
    rows = run_table(settings_json).refresh(_SEARCH_SECONDS)
    return rows[0].key if len(rows) == 1 else ""


def _theme() -> Theme:
    return "dark" if st.context.theme.type == "dark" else "light"


def _bar(context: PageContext) -> None:
    """The line above each page: run, state, selected interval, framework of the remedies."""
    if context.observed is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        context.live(_choose_run)
        context.live(_show_state)
        _show_interval(context)
        st.space("stretch")
        _choose_framework(context)


def _choose_run(context: PageContext) -> None:
    if context.params.get("run", context.run.key) != context.run.key:
        st.rerun()  # the reader has just chosen another run
    keys = [row.key for row in context.table.refresh()]
    if len(keys) < 2:
        st.markdown(f"**{unlinked(context.run.key, limit=80)}**")
        return
    st.selectbox(
        "Run",
        keys,
        index=keys.index(context.run.key) if context.run.key in keys else None,
        key=f"run-{context.run.key}",
        label_visibility="collapsed",
        width=320,
        on_change=_take_run,
        args=(f"run-{context.run.key}",),
    )


def _take_run(widget: str) -> None:
    """Keep the page and forget what belongs to the other run."""
    url_state.change(
        run=st.session_state[widget], finding="", sequence="", steps="", zoom="", step=""
    )


def _show_state(context: PageContext) -> None:
    view = context.view
    text, tone = state_phrase(view)
    colors = {"good": "green", "warning": "orange", "critical": "red"}
    st.badge(text, color=colors.get(tone or "", "gray"))  # type: ignore[arg-type]
    if view.message:
        st.error(unlinked(view.message, limit=400), icon=":material/error:")


def _show_interval(context: PageContext) -> None:
    if context.steps is None:
        return
    first, last = context.steps
    label = f"Steps {first} to {last}" if last > first else f"Step {first}"
    st.button(
        label,
        icon=":material/close:",
        help="Clear the selected interval",
        on_click=context.select_steps,
        args=(None,),
    )


def _choose_framework(context: PageContext) -> None:
    names = [framework.name for framework in configurable_frameworks()]
    own = context.view.manifest.framework
    chosen = context.framework or own
    st.selectbox(
        "Settings for",
        names,
        format_func=lambda name: f"Settings: {name}",
        index=names.index(chosen) if chosen in names else None,
        key="framework-choice",
        placeholder="Settings for …",
        label_visibility="collapsed",
        help="Framework in whose settings the remedies are written",
        width=220,
        on_change=_take_framework,
    )


def _take_framework() -> None:
    url_state.change(framework=st.session_state["framework-choice"] or "")


def _await_steps(context: PageContext) -> None:
    """What a page shows until the run has steps."""
    if context.view.data is not None:
        st.rerun()
    if context.view.state == "unreadable":
        return  # the bar above says why
    empty("The run has no steps yet. This page fills as soon as it writes one.")
