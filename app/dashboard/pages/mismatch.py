"""The page Mismatch: where sampler and learner disagree, in the run and in probes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import streamlit as st

from grpodoctor.monitor.dashboard.probe_files import probe_files
from grpodoctor.monitor.dashboard.responses import token_pairs
from grpodoctor.monitor.sample_responses import RecordedResponses
from grpodoctor.probe.results.results import ProbeResult
from grpodoctor.probe.results.results_json import read_result
from grpodoctor.report.dashboard.mismatch_phrases import why_no_sequences
from grpodoctor.report.dashboard.part_figures import (
    part_heat_map,
    sequence_histogram,
    token_scatter,
)
from grpodoctor.report.dashboard.rollout_rows import rollout_columns
from grpodoctor.report.probe.charts import cell_charts, grid_charts
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.phrases import pair_text
from grpodoctor.report.probe.view import view_of
from grpodoctor.report.run.charts import linked_figure
from grpodoctor.report.run.panels import panels
from grpodoctor.runs.rollout_queries.index import RolloutIndex, RolloutQuery
from grpodoctor.support.safe_text import plain, unlinked

from ..blocks import PLOT_CONFIG, inline_text, show_blocks
from ..charts import follow_clicks, show_chart
from ..context import PageContext
from ..sections import empty, section
from .rollouts import responses_index

_PANELS = ("mismatch", "nll_gap")
_PARTS = (
    ("position", "By position in the response"),
    ("probability", "By the sampler's probability of the token"),
    ("engine", "By engine layout and precision"),
)
_METRICS = {
    "mismatch/prob_diff_mean": "Mean |Δ probability| of the sampled tokens. Empty: no tokens.",
    "mismatch/logprob_diff_mean": "Mean |Δ log-probability| of the sampled tokens, in nats. "
    "Empty: no tokens.",
}
_MOST_REASONS = 5
_WORST = 10
_SCATTER_RESPONSES = 64
_ROW_PIXELS = 35


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Mismatch")
    if context.observed is None:
        with section("Probe reports"):
            _probes(context, context.settings.paths)
        return
    run, probes = st.tabs(["This run", "Probe reports"])
    with run:
        context.live(_run)
    with probes, section():
        _probes(context, [*context.settings.paths, context.run.path])


def _run(context: PageContext) -> None:
    shown = [each for each in panels(context.data) if each.key in _PANELS]
    if shown:
        with section("Over the run"):
            figure = linked_figure(shown, columns=len(shown), theme=context.theme)
            st.plotly_chart(
                figure,
                theme=None,
                key="mismatch-panels",
                config=PLOT_CONFIG,
                alt=" ".join(f"{each.title}: {each.description}" for each in shown),
            )
            follow_clicks(context, "mismatch-panels")
            for each in shown:
                st.caption(unlinked(f"{each.title}: {each.description}"))
    has_parts = _parts(context)
    index = responses_index(context)
    if index is not None and "prob_diff_max" in index.known_columns:
        with section("By sequence"):
            _sequences(context, index)
        with section("By token"):
            _tokens(context, index)
        return
    if not (shown or has_parts):
        empty(
            "This run logs neither a mismatch nor the log-probabilities of both engines. Log the "
            "sampler's log-probabilities, or compare the engines: `grpodoctor probe`.",
            ":material/difference:",
        )
    with section("By sequence"):
        _explain_absence(context, index)


def _explain_absence(context: PageContext, index: RolloutIndex | None) -> None:
    """Say why there are no values by sequence, and which setting provides them."""
    for why in list(index.unreadable.values())[:_MOST_REASONS] if index else ():
        st.warning(unlinked(why, limit=400))
    why = why_no_sequences(
        context.view.manifest.framework,
        is_gone=context.view.state == "gone",
        is_recorded=isinstance(context.data.responses, RecordedResponses),
        has_responses=index is not None and index.table.num_rows > 0,
    )
    empty(why, ":material/difference:")


def _parts(context: PageContext) -> bool:
    """Heat maps by position, probability and engine; whether there is any."""
    has_any = False
    for kind, title in _PARTS:
        for metric, caption in _METRICS.items():
            parts = context.data.series.parts(metric, kind)
            chart = part_heat_map(title, parts, kind, context.theme)
            if chart is not None:
                has_any = True
                with section(title, caption):
                    show_chart(chart, f"mismatch-{kind}")
                break
    return has_any


def _sequences(context: PageContext, index: RolloutIndex) -> None:
    query = RolloutQuery(steps=context.steps, order="prob_diff_max", is_descending=True)
    selected = index.select(query)
    chart = sequence_histogram(selected.column("prob_diff_max").to_pylist(), context.theme)
    if chart is not None:
        show_chart(chart, "mismatch-sequences")
    worst = selected.slice(0, _WORST).to_pylist()
    st.markdown("**Worst sequences**")
    st.caption("Select a row to read the response token by token.")
    event = st.dataframe(
        rollout_columns(worst, index.in_full(worst, with_tokens=False), index.known_columns),
        hide_index=True,
        height=_ROW_PIXELS * (len(worst) + 1) + 3,
        key="mismatch-worst",
        on_select="rerun",
        selection_mode="single-row",
        alt="The responses with the largest probability difference.",
    )
    rows = event.selection.rows
    if rows and rows[0] < len(worst):
        chosen = worst[rows[0]]
        context.go("rollouts", sequence=chosen["sequence_id"], step=str(chosen["step"]))


def _tokens(context: PageContext, index: RolloutIndex) -> None:
    """Log-probabilities of the worst responses' tokens in both engines."""
    query = RolloutQuery(steps=context.steps, order="prob_diff_max", is_descending=True)
    worst = index.page(query, 0, _SCATTER_RESPONSES).figures
    chart = token_scatter(token_pairs(index.in_full(worst)), context.theme)
    if chart is None:
        st.markdown(
            "The log-probabilities of single tokens were not recorded. Record them with "
            "`record.depth=worst` or `full`."
        )
        return
    st.caption(f"The tokens of the {len(worst)} worst responses.")
    show_chart(chart, "mismatch-tokens")


# Probe reports


def _probes(context: PageContext, paths: Iterable[Path]) -> None:
    files = probe_files(paths)
    if not files:
        empty(
            "No `probe.json` below the paths of the command line. `grpodoctor probe` compares two "
            "engines; add its output folder to the paths of the dashboard.",
            ":material/science:",
        )
        return
    file = st.selectbox(
        "Probe report", files, format_func=lambda path: plain(str(path), limit=160),
        key="mismatch-probe",
    )  # fmt: skip
    result = read_result(file)
    view = view_of(result, context.framework)
    st.markdown(f"### {inline_text(view.diagnosis)}")
    st.caption(unlinked(view.facts, limit=400))
    for warning in view.warnings:
        st.warning(unlinked(warning, limit=400))
    _probe_charts(result)
    show_blocks(view.blocks)


def _probe_charts(result: ProbeResult) -> None:
    names = short_names(result)
    for number, chart in enumerate(grid_charts(result.cells, names)):
        st.markdown(f"**{unlinked(chart.caption)}**")
        show_chart(chart, f"probe-grid-{number}")
    compared = [cell for cell in result.cells if cell.comparison is not None]
    if not compared:
        return
    chosen = 0
    if len(compared) > 1:
        chosen = st.selectbox(
            "Pair", range(len(compared)),
            format_func=lambda at: plain(pair_text(compared[at], names), limit=160),
            key="probe-pair",
        )  # fmt: skip
    comparison = compared[chosen].comparison
    if comparison is None:
        return
    left, right = st.columns(2)
    for number, chart in enumerate(cell_charts(comparison)):
        with left if number % 2 == 0 else right:
            st.markdown(f"**{unlinked(chart.caption)}**")
            show_chart(chart, f"probe-cell-{number}")
