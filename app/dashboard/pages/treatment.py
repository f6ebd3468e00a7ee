"""The page Treatment: what was changed in the live run, why, and whether it helped."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from grpodoctor.monitor.dashboard.treatment_history import PastTreatment, past_treatments
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.report.dashboard.treatment_phrases import (
    STATE_TONES,
    journal_columns,
    settings_table,
    steps_phrase,
    window_table,
)
from grpodoctor.report.run.panels import panels
from grpodoctor.support.safe_text import code_span, unlinked

from ..blocks import badge_text, own_markdown, show_blocks
from ..charts import show_panels
from ..context import PageContext
from ..sections import empty, section

_MOST_SHOWN = 20
_MOST_CHARTS = 2


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Treatment")
    context.live(_draw)


def _draw(context: PageContext) -> None:
    if context.settings.allow_treatment:
        with section():
            _proposal(context)
    journal = context.report.treatments
    treatments = past_treatments(journal)
    if not treatments:
        empty(
            "This run has not been treated. `grpodoctor watch RUN --apply safe` applies one safe "
            "remedy at a time to a live run, and undoes it if it does not help.",
            ":material/medication:",
        )
        return
    for treatment in treatments[:_MOST_SHOWN]:
        with section(), st.container(border=True):
            _treatment(context, treatment)
    if len(treatments) > _MOST_SHOWN:
        st.caption(f"The latest {_MOST_SHOWN} of {len(treatments)} treatments are shown.")
    with section("Journal"):
        st.dataframe(
            journal_columns(journal),
            hide_index=True,
            alt="The journal of treatments, the latest line first.",
            column_config={"Change and reason": st.column_config.TextColumn(width="large")},
        )


def _proposal(context: PageContext) -> None:
    """The treatment that waits for approval, with its two buttons."""
    proposal = context.view.proposal
    if proposal is None:
        st.caption("No treatment is proposed at the moment.")
        return
    remedy = remedy_of(proposal.remedy)
    with st.container(border=True):
        badge = badge_text("proposed", "info")
        st.markdown(f"### {badge} {remedy.id} for {code_span(proposal.finding, limit=40)}")
        st.markdown(own_markdown(f"{remedy.title} ({remedy.applicability})."))
        if proposal.reason:
            st.warning(unlinked(f"{proposal.reason}.", limit=400))
        show_blocks([settings_table(proposal.before, proposal.changes)])
        st.caption(
            "After approval, the run switches the change on and off in blocks of random order. "
            "A change that does not help is undone."
        )
        with st.container(horizontal=True):
            if st.button("Approve", type="primary", key=f"approve-{proposal.id}"):
                context.run.approve(proposal.id)
                st.rerun()
            if st.button("Decline", key=f"decline-{proposal.id}"):
                context.run.decline(proposal.id)
                st.rerun()


def _treatment(context: PageContext, treatment: PastTreatment) -> None:
    badge = badge_text(treatment.state, STATE_TONES.get(treatment.state))
    reason = f" for {code_span(treatment.finding, limit=40)}" if treatment.finding else ""
    st.markdown(
        f"### {badge} {unlinked(treatment.remedy, limit=80)}{reason}\n\n"
        f":gray[{steps_phrase(treatment)}]"
    )
    if treatment.verdict:
        st.markdown(unlinked(treatment.verdict, limit=600))
    left, right = st.columns([1, 2])
    with left:
        _table("Change", settings_table(treatment.before, treatment.changes), treatment.changes)
    with right:
        if treatment.comparisons:
            st.markdown("**Blocks with the treatment off and on**")
            show_blocks([window_table(treatment)])
        elif treatment.applied_step is not None:
            st.caption(
                "The metrics with the treatment off and on are compared after each stage of blocks."
            )
    _charts(context, treatment)


def _table(title: str, table: object, content: Mapping[str, object]) -> None:
    if content:
        st.markdown(f"**{title}**")
        show_blocks([table])


def _charts(context: PageContext, treatment: PastTreatment) -> None:
    """The charts of the judged metrics, with the treatments marked."""
    judged = {comparison.metric for comparison in treatment.comparisons}
    shown = [
        panel
        for panel in panels(context.data)
        if any(line.curve.metric in judged for line in panel.lines)
    ][:_MOST_CHARTS]
    show_panels(context, shown, columns=_MOST_CHARTS, key=f"treatment-{treatment.id}")
