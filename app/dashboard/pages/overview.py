"""The page Overview: the diagnosis, the findings, the vitals and the charts of a run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from grpodoctor.monitor.chart_specs import CHARTED_METRICS
from grpodoctor.monitor.crash_report import CrashReport
from grpodoctor.monitor.dashboard.config_differences import run_settings
from grpodoctor.monitor.dashboard.run_summary import cost_text
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.downsampled_series import LOGGED
from grpodoctor.monitor.vitals import Vital, format_reading
from grpodoctor.report.dashboard.response_rows import response_columns, responses_of_steps
from grpodoctor.report.figures import ThemeName
from grpodoctor.report.run.charts import linked_figure
from grpodoctor.report.run.coverage_view import coverage_sentence, full_coverage
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.report.run.panels import Panel, metric_label, metric_panels, panels
from grpodoctor.report.run.phrases import (
    CHARTS_LEGEND,
    damage_line,
    defect_line,
    earlier_run_lines,
    facts_line,
    finding_period,
    finding_periods,
)
from grpodoctor.report.run.selection import selected_steps, typed_steps
from grpodoctor.report.run.smoothing import with_moving_means
from grpodoctor.report.run.time_axis import time_labels
from grpodoctor.report.run.view import VERDICT_TONES
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import code_span, plain, unlinked

from .. import url_state
from ..blocks import PLOT_CONFIG, badge_text, prose, show_blocks
from ..charts import follow_clicks
from ..context import PageContext
from ..sections import section

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_VITALS = 6
_MOST_METRICS = 12
_SEPARATOR = ";"
_MOST_RESPONSES = 20
_CHARTS = "charts"
_SELECTED = "selected"
_SELECT = "Select steps"
_DRAG_PARAMS = {_SELECT: "steps", "Zoom": "zoom"}
"""What dragging over a chart does, and the query parameter that keeps it. Streamlit redraws
a chart when its data grows, so a zoom that only the browser knew would be lost."""
_UNZOOM = {"zoom": ""}
_WINDOWS = (0, 10, 50, 200)
"""Steps of the moving means; 0 for none."""
_TIME = "time"
_VITAL_WIDTH = 176
"""Pixels of a vital sign: six fit into one row of a wide window, three of a narrow one."""
_ZOOM_MARGIN = 0.5
"""Steps on either side of the zoomed ones, so that a single step has a width."""
_Form = tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[str, ...], int, bool]
"""Selected and shown steps, further metrics, steps of the moving means, and times on the axes."""
_CONFIG = {**PLOT_CONFIG, "displayModeBar": False}
_LONGEST_SETTING = 2000


def page(context: PageContext) -> None:
    """Draw the page."""
    context.live(_draw)


def _draw(context: PageContext) -> None:
    with section():
        _diagnosis(context)
    with section():
        _vitals(context)
    with section("Findings"):
        _findings(context)
    with section("Charts"):
        _charts(context)
    with section():
        _rollouts(context)
    with section("Coverage"), st.expander(coverage_sentence(context.report.diagnosis.coverage)):
        show_blocks(full_coverage(context.report))
    with section():
        _settings(context)
        _about_the_log(context)


def _diagnosis(context: PageContext) -> None:
    report = context.report
    verdict = report.diagnosis.verdict
    tone = VERDICT_TONES[verdict.kind]
    with st.container(border=True):
        st.markdown(f"### {badge_text(verdict.kind, tone)} {unlinked(verdict.text)}")
        st.caption(unlinked(facts_line(report), limit=300))
        steps = first_steps(report)
        copied = [plain(step.commented, limit=_LONGEST_SETTING) for step in steps if step.copyable]
        for step in steps:
            if not step.copyable:
                st.markdown(prose(step.text))
        if copied:
            st.code("\n".join(copied), language=None, wrap_lines=True)
    if report.crash:
        _crash(report.crash)
    for line in (damage_line(report),) if report.damage_total else ():
        st.warning(unlinked(line, limit=400))
    for line in earlier_run_lines(report):
        st.info(unlinked(line, limit=400))
    for defect in report.defects:
        st.warning(unlinked(defect_line(defect), limit=400))


def _crash(crash: CrashReport) -> None:
    """The error with which the log ends, and the settings that prevent it."""
    st.warning(unlinked(crash.line, limit=400))
    lines = [line.commented_line for line in crash.remedy.settings] if crash.remedy else []
    if lines:
        st.code("\n".join(lines), language=None, wrap_lines=True)


def _vitals(context: PageContext) -> None:
    known = [vital for vital in context.data.vitals if not vital.why_not][:_MOST_VITALS]
    if not known:
        return
    with st.container(horizontal=True):
        for vital in known:
            _vital(vital)


def _vital(vital: Vital) -> None:
    start = format_reading(vital.metric, vital.start)
    started = f"started at {start}" if vital.start is not None else None
    st.metric(
        vital.label,
        format_reading(vital.metric, vital.now),
        delta=started,
        delta_color="off",
        delta_arrow="off",
        border=True,
        chart_data=list(vital.history),
        chart_type="line",
        help=f"`{vital.metric}`: the latest readings",
        width=_VITAL_WIDTH,
    )


def _findings(context: PageContext) -> None:
    problems = context.report.diagnosis.problems
    if not problems:
        st.markdown("No rule found a fault.")
        return
    for number, problem in enumerate(problems):
        _problem(context, problem, number)


def _problem(context: PageContext, problem: Problem, number: int) -> None:
    cause = problem.cause
    with st.container(border=True):
        text, button = st.columns([8, 1], vertical_alignment="center")
        with text:
            periods = finding_periods(cause, context.report.findings)
            cost = "cost so far" if cause.active else "cost"
            st.markdown(
                f"{badge_text(cause.severity, cause.severity)} {code_span(cause.code)} "
                f"**{unlinked(cause.name)}** :gray[{periods} · "
                f"{cost}: {cost_text(problem.cost)}]  \n{unlinked(cause.summary)}"
            )
        with button:
            _open_button(context, cause.code, cause.onset_step, number)
        if problem.symptoms:
            with st.expander(f"Explains {count_of(len(problem.symptoms), 'further finding')}"):
                for place, symptom in enumerate(problem.symptoms):
                    _symptom(context, symptom, number, place)


def _symptom(context: PageContext, symptom: Symptom, number: int, place: int) -> None:
    finding = symptom.finding
    text, button = st.columns([8, 1], vertical_alignment="center")
    with text:
        because = f"  \n:gray[{unlinked(symptom.because)}]" if symptom.because else ""
        st.markdown(
            f"{badge_text(finding.severity, finding.severity)} {code_span(finding.code)} "
            f"**{unlinked(finding.name)}** :gray[{finding_period(finding)}]  \n"
            f"{unlinked(finding.summary)}{because}"
        )
    with button:
        _open_button(context, finding.code, finding.onset_step, number, place)


def _open_button(context: PageContext, code: str, onset: int, *place: int) -> None:
    key = "-".join(map(str, ("open", code, onset, *place)))
    if st.button("Open", key=key, help=f"Evidence and remedies of {code}"):
        context.go("finding", finding=f"{code}-{onset}")


def _charts(context: PageContext) -> None:
    if st.session_state.pop(_SELECTED, False):
        st.rerun()  # the bar above the page shows the interval as well
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        drag = st.segmented_control(
            "Dragging in a chart",
            _DRAG_PARAMS,
            default=_SELECT,
            key="drag",
            label_visibility="collapsed",
            required=True,
            help="Drag over a chart to select steps for all charts and lists, or to zoom. Click "
            "a point to select its step, a mark to open its finding, and a point of the worst "
            "response to open that response.",
        )
        _type_steps(_DRAG_PARAMS[drag or _SELECT])
        if context.zoom is not None:
            first, last = context.zoom
            label = f"Zoomed to steps {first} to {last}"
            st.button(label, icon=":material/zoom_out:", on_click=url_state.change, kwargs=_UNZOOM)
        window = _choose_smoothing(context)
        by_time = _choose_axis(context)
    chosen = _choose_metrics(context)
    key = (context.run.key, context.revision)
    form = (context.steps, context.zoom, chosen, window, by_time)
    shown, figure = _drawn(key, context.theme, form, context)
    if not shown:
        st.markdown("None of the charted metrics is logged.")
        return
    st.caption(CHARTS_LEGEND)
    st.plotly_chart(
        figure,
        theme=None,
        key=_CHARTS,
        config=_CONFIG,
        on_select=partial(_take_selection, _DRAG_PARAMS[drag or _SELECT]),
        selection_mode="box",
        alt="The vital metrics over the steps. The charts in words follow.",
    )
    follow_clicks(context, _CHARTS)
    with st.expander("The charts in words"):
        lines = [f"- **{panel.title}**: {unlinked(panel.description)}" for panel in shown]
        st.markdown("\n".join(lines))


def _type_steps(param: str) -> None:
    """What dragging does, for those who use the keyboard."""
    key = f"typed-{param}"
    text = st.text_input(
        "First and last step to select or to zoom to",
        key=key,
        placeholder="Steps, such as 100-200",
        label_visibility="collapsed",
        width=170,
        on_change=_take_typed,
        args=(param, key),
    )
    if text and typed_steps(text) is None:
        st.caption("Write two steps, such as 100-200.")


def _take_typed(param: str, key: str) -> None:
    steps = typed_steps(st.session_state[key])
    if steps is not None:
        url_state.change(**{param: f"{steps[0]}-{steps[1]}"})
        st.session_state[_SELECTED] = True


def _choose_smoothing(context: PageContext) -> int:
    """Number of steps of the moving means; 0 for none."""
    given = context.params.get("smooth", "")
    chosen = st.selectbox(
        "Smoothing",
        _WINDOWS,
        index=_WINDOWS.index(int(given)) if given in map(str, _WINDOWS) else 0,
        format_func=lambda steps: f"Mean of {steps} steps" if steps else "Not smoothed",
        key="smoothing",
        label_visibility="collapsed",
        width=180,
        on_change=lambda: url_state.change(smooth=str(st.session_state["smoothing"] or "")),
    )
    return int(chosen or 0)


def _choose_axis(context: PageContext) -> bool:
    """Whether the step axes show times."""
    if len(context.view.metrics.times()) < 2:
        return False
    return st.toggle(
        "Show times",
        value=context.params.get("axis") == _TIME,
        key="axis-of-time",
        help="Label the steps with the time (UTC) at which they ended",
        on_change=lambda: url_state.change(axis=_TIME if st.session_state["axis-of-time"] else ""),
    )


def _choose_metrics(context: PageContext) -> tuple[str, ...]:
    """The metrics that the reader wants to see besides the usual charts."""
    known = [name for name in context.view.metrics.metrics if name not in CHARTED_METRICS]
    known.sort(key=lambda name: name.startswith(LOGGED))
    wanted = context.params.get("metrics", "").split(_SEPARATOR)
    if not known:
        return ()
    return tuple(
        st.multiselect(
            "Further metrics",
            known,
            default=[name for name in wanted if name in known],
            key=f"further-metrics-{context.run.key}",
            max_selections=_MOST_METRICS,
            placeholder=f"Add charts: {count_of(len(known), 'further metric')}",
            format_func=metric_label,
            label_visibility="collapsed",
            on_change=_take_metrics,
            args=(f"further-metrics-{context.run.key}",),
        )
    )


def _take_metrics(widget: str) -> None:
    url_state.change(metrics=_SEPARATOR.join(st.session_state[widget]))


@st.cache_resource(show_spinner=False, max_entries=16)
def _drawn(
    run: tuple[str, int],
    theme: ThemeName,
    form: _Form,
    _context: PageContext,
) -> tuple[tuple[Panel, ...], Figure]:
    """The charts and their figure; drawn again only if something has changed."""
    del run
    steps, zoom, metrics, window, by_time = form
    further = _context.view.metrics
    shown = panels(_context.data)
    all_steps = shown[0].steps if shown else None
    shown += metric_panels(_context.data, further, metrics, all_steps)
    if window:
        shown = with_moving_means(shown, (_context.data.series, further), window)
    axis = zoom or (shown[0].steps if shown else (0, 0))
    times = time_labels(further.times(), axis) if by_time else None
    figure = linked_figure(shown, columns=2, theme=theme, selected=steps, times=times)
    if zoom is not None:
        figure.update_xaxes(range=(zoom[0] - _ZOOM_MARGIN, zoom[1] + _ZOOM_MARGIN))
    return shown, figure.update_layout(dragmode="select", selectdirection="h")


def _take_selection(param: str) -> None:
    """Take the interval that the reader selected, into all charts and lists."""
    steps = selected_steps(st.session_state[_CHARTS]["selection"])
    if steps is not None:
        url_state.change(**{param: f"{steps[0]}-{steps[1]}"})
        st.session_state[_SELECTED] = True


def _rollouts(context: PageContext) -> None:
    """The rollouts of the selected steps, briefly; the page Rollouts shows them in full."""
    if context.steps is None:
        return
    first, last = context.steps
    responses = responses_of_steps(context.data.responses, first, last, _MOST_RESPONSES)
    st.subheader(f"Rollouts of steps {first} to {last}")
    if not responses:
        st.markdown("No rollouts of these steps are on disk.")
        return
    st.dataframe(
        response_columns(responses),
        hide_index=True,
        alt="Rollouts of the selected steps with reward, length and text.",
        column_config={"Response": st.column_config.TextColumn(width="large")},
    )
    if st.button("Open in Rollouts"):
        context.go("rollouts")


def _settings(context: PageContext) -> None:
    settings = run_settings(context.view)
    with st.expander(f"Settings of the run ({len(settings)})"):
        st.dataframe(
            {
                "Setting": [plain(name, limit=_LONGEST_SETTING) for name in settings],
                "Value": [plain(value, limit=_LONGEST_SETTING) for value in settings.values()],
            },
            hide_index=True,
            alt="The settings of the run with their values.",
        )


def _about_the_log(context: PageContext) -> None:
    report = context.report
    if not report.notes and not report.unmapped:
        return
    with st.expander("How the log was read"):
        lines = [f"- {unlinked(note, limit=400)}" for note in report.notes]
        st.markdown("\n".join(lines))
        if report.unmapped:
            keys = " ".join(code_span(key, limit=100) for key in report.unmapped[:100])
            st.markdown(f"Unrecognized keys: {keys}")
