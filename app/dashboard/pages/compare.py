"""The page Compare: two or more runs, their settings, and the point where they diverge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import streamlit as st

from grpodoctor.monitor.dashboard.config_differences import config_differences
from grpodoctor.monitor.dashboard.divergence import Axis, Divergence, divergences
from grpodoctor.monitor.dashboard.observed_run import RunView
from grpodoctor.report.dashboard.comparison_figure import (
    MOST_RUNS,
    comparable_metrics,
    comparison_figure,
)
from grpodoctor.report.dashboard.comparison_phrases import (
    TEST_IN_WORDS,
    config_table,
    divergence_sentence,
    divergence_table,
)
from grpodoctor.report.run.view import VERDICT_TONES
from grpodoctor.support.safe_text import unlinked

from .. import url_state
from ..blocks import PLOT_CONFIG, badge_text, show_blocks
from ..context import PageContext
from ..sections import await_search, empty, section

_SEPARATOR = ";"
_SEARCH_SECONDS = 2.0
_OPEN_SECONDS = 1.0
_REFRESH_SECONDS = 5.0
_AXIS_LABELS: dict[Axis, str] = {"step": "By step", "tokens": "By generated tokens"}


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Compare")
    context.table.refresh(_SEARCH_SECONDS)
    if not context.table.is_searched:
        await_search(context.table)  # a link names runs that are not known before
        return
    with section():
        keys = _choose(context)
        if len(keys) < 2:
            empty("Choose at least two runs.", ":material/compare_arrows:")
            return
        axis: Axis = st.segmented_control(
            "Align",
            get_args(Axis),
            default="tokens" if context.params.get("align") == "tokens" else "step",
            format_func=lambda each: _AXIS_LABELS[each],
            key="align",
            label_visibility="collapsed",
            required=True,
        ) or "step"  # fmt: skip

        @st.fragment(run_every=_REFRESH_SECONDS)
        def part() -> None:
            _draw(context, keys, axis)

        part()


def _choose(context: PageContext) -> list[str]:
    """The chosen runs. The others are compared with the first one."""
    known = [row.key for row in context.table.rows]
    wanted = context.params.get("runs", context.params.get("run", "")).split(_SEPARATOR)
    chosen = st.multiselect(
        "Runs",
        known,
        default=[key for key in wanted if key in known],
        key="compared-runs",
        max_selections=MOST_RUNS,
        placeholder="Choose the run to compare with, then the others",
        label_visibility="collapsed",
    )
    url_state.change(runs=_SEPARATOR.join(chosen))
    return chosen


def _draw(context: PageContext, keys: Sequence[str], axis: Axis) -> None:
    views = {}
    for key in keys:
        with section():
            views[key] = _opened(context, key)
    ready = {key: view for key, view in views.items() if view.data is not None}
    if len(ready) < 2:
        empty("The comparison begins as soon as two of the runs have steps.")
        return
    with section("Settings that differ"):
        _settings(ready)
    with section("Verdicts"):
        _verdicts(ready)
    compared = _compared(ready, axis)
    with section("Where they diverge"):
        _divergences(ready, compared, axis)
    with section("Charts"):
        _charts(context, ready, compared, axis)


def _opened(context: PageContext, key: str) -> RunView:
    view = context.opened(key).refresh(_OPEN_SECONDS)
    if view.message:
        st.error(f"{unlinked(key, limit=100)}: {unlinked(view.message, limit=300)}")
    return view


def _verdicts(views: dict[str, RunView]) -> None:
    for key, view in views.items():
        if view.data is not None:
            verdict = view.data.report.diagnosis.verdict
            tone = VERDICT_TONES[verdict.kind]
            name = f"**{unlinked(key, limit=100)}**"
            st.markdown(f"{badge_text(verdict.kind, tone)} {name} {unlinked(verdict.text)}")


def _settings(views: dict[str, RunView]) -> None:
    differences = config_differences(list(views.values()))
    if differences:
        show_blocks([config_table(differences, list(views))])
    else:
        st.markdown("The recorded settings are equal.")


def _compared(views: dict[str, RunView], axis: Axis) -> dict[str, tuple[Divergence, ...]]:
    """The comparison of each run with the first, by key."""
    (_, first), *others = views.items()
    return {key: divergences(first.means, view.means, axis) for key, view in others}


def _divergences(
    views: dict[str, RunView], compared: dict[str, tuple[Divergence, ...]], axis: Axis
) -> None:
    first = next(iter(views))
    for key, parts in compared.items():
        sentence = unlinked(divergence_sentence(parts, axis))
        st.markdown(
            f"**{unlinked(key, limit=100)}** against **{unlinked(first, limit=100)}**: {sentence}"
        )
        if parts:
            with st.expander("All metrics"):
                show_blocks([divergence_table(parts, axis)])
    st.caption(TEST_IN_WORDS)


def _charts(
    context: PageContext,
    views: dict[str, RunView],
    compared: dict[str, tuple[Divergence, ...]],
    axis: Axis,
) -> None:
    means = {key: view.means for key, view in views.items()}
    metrics = comparable_metrics(list(means.values()))
    if not metrics:
        st.markdown("The runs have no metric in common.")
        return
    if axis == "tokens" and not any(each.has_tokens for each in means.values()):
        st.markdown(
            "None of these runs records how many tokens were generated. Align them by step."
        )
        return
    diverging = [each for parts in compared.values() for each in parts]
    left, right = st.columns(2)
    for number, (title, metric) in enumerate(metrics):
        with left if number % 2 == 0 else right, section():
            st.markdown(f"**{title[:1].upper()}{title[1:]}**")
            st.plotly_chart(
                comparison_figure(metric, means, axis, context.theme, diverging),
                theme=None,
                key=f"compare-{metric}",
                config=PLOT_CONFIG,
                alt=f"{title} of the chosen runs; the table above states where they diverge.",
            )
