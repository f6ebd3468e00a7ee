"""The page Finding: evidence, sequences, remedies and the rule's page of one finding."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from grpodoctor.monitor.advice import usable
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.sample_responses import SampleResponse
from grpodoctor.report.dashboard.catalog_entries import rule_markdown
from grpodoctor.report.dashboard.finding_choice import chosen_finding, parts_of
from grpodoctor.report.run.finding_view import (
    anchor_of,
    finding_key,
    problem_card,
    symptom_card,
)
from grpodoctor.report.run.panels import metric_panels, panels
from grpodoctor.report.run.phrases import finding_period
from grpodoctor.report.trial_table import remedy_trials
from grpodoctor.report.view import Card
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.rules.lead_times import lead_time_of
from grpodoctor.support.safe_text import code_span, plain, unlinked
from grpodoctor.trials.registry import all_trials

from .. import url_state
from ..blocks import (
    badge_text,
    own_markdown,
    show_blocks,
    show_references,
)
from ..charts import show_panels
from ..context import PageContext
from ..sections import empty, section

_APPLICABILITY = (
    "safe: reversible on a live run · unsafe: changes what is optimized · manual: restart or check"
)
_MOST_CHARTS = 4
_MOST_SEQUENCES = 12
_ID_LETTERS = 80
_PROMPT_LETTERS, _TEXT_LETTERS = 2000, 6000


def page(context: PageContext) -> None:
    """Draw the page."""
    context.live(_draw)


def _draw(context: PageContext) -> None:
    findings = context.report.findings
    if not findings:
        empty("No rule found a fault in this run.", ":material/check_circle:")
        return
    with section():
        chosen = _choose(context, findings)
    if chosen is None:
        empty("This run has no such finding (any more). Choose another one above.")
        return
    with section():
        _evidence(context, chosen)
    with section("Remedies", _APPLICABILITY):
        _remedies(context, chosen)
    with section("Charts behind it"):
        _charts(context, chosen)
    with section("Sequences behind it"):
        _sequences(context, chosen)
    with section(f"The rule {chosen.code}"):
        _rule(chosen)


def _choose(context: PageContext, findings: Sequence[Finding]) -> Finding | None:
    """Let the reader choose a finding; returns the one that the address names, or the first."""
    keys = [finding_key(finding) for finding in findings]
    chosen = chosen_finding(findings, context.params.get("finding", ""))
    labels = {
        finding_key(each): f"{each.severity} · {each.code} {each.name} · {finding_period(each)}"
        for each in findings
    }
    widget = f"finding-choice-{finding_key(chosen) if chosen else ''}"
    st.selectbox(
        "Finding",
        keys,
        index=keys.index(finding_key(chosen)) if chosen else None,
        format_func=lambda key: labels.get(key, key),
        key=widget,
        label_visibility="collapsed",
        on_change=_take,
        args=(widget,),
    )
    return chosen


def _take(widget: str) -> None:
    url_state.change(finding=st.session_state[widget])


def _evidence(context: PageContext, finding: Finding) -> None:
    problem, symptom = parts_of(context.report.diagnosis, finding)
    card = _card(context, problem, symptom)
    with st.container(border=True):
        resolved = f" {badge_text('resolved', 'good')}" if card.resolved else ""
        st.markdown(
            f"### {badge_text(card.badge, card.tone)} {unlinked(card.code)} "
            f"{unlinked(card.title)}{resolved}"
        )
        st.caption(unlinked(card.note))
        show_blocks(card.body)
        lead = lead_time_of(finding.code)
        if lead is not None:
            st.caption(f"Lead time of the rule: {own_markdown(lead.sentence)}")


def _card(context: PageContext, problem: Problem, symptom: Symptom | None) -> Card:
    if symptom is None:
        return problem_card(problem, context.report)
    return symptom_card(symptom, problem, context.report)


def _remedies(context: PageContext, finding: Finding) -> None:
    problem, symptom = parts_of(context.report.diagnosis, finding)
    card = _card(context, problem, symptom)
    if not card.advice:
        st.markdown("This rule has no remedy: its finding explains others or needs a manual check.")
    show_blocks(card.advice)
    named = usable(finding.remedies, context.report.advice)
    _trials([advice.id for advice in named])
    for advice in named:
        if advice.alternatives:
            others = ", ".join(f"`{each}`" for each in advice.alternatives)
            st.markdown(f"Alternatives to `{advice.id}`: {others}")


def _trials(remedies: Sequence[str]) -> None:
    """The trials that test the remedies, each with its command."""
    if remedies:
        with st.expander("Trials of these remedies"):
            st.markdown("\n".join(f"- `{each}`: {_trials_of(each)}" for each in remedies))


def _trials_of(remedy: str) -> str:
    """What published trials show about a remedy, and the commands that repeat them."""
    names = [trial.name for trial in all_trials().values()
             if any(treated.remedy == remedy for treated in trial.remedies)]  # fmt: skip
    results = [own_markdown(sentence) for sentence in remedy_trials(remedy)]
    commands = [f"`grpodoctor trial {name}`" for name in names]
    return " ".join([*results, *commands]) or "no trial yet."


def _charts(context: PageContext, finding: Finding) -> None:
    if rule_of(finding.code).reads_config:
        st.markdown("This finding rests on settings, which have no chart.")
        return
    if not finding.evidence:
        st.markdown("This finding names no metric, so no chart belongs to it.")
        return
    anchor = anchor_of(finding)
    shown = [
        panel
        for panel in panels(context.data)
        if any(onset.anchor == anchor and onset.value is not None for onset in panel.onsets)
    ]
    metrics = tuple(dict.fromkeys(each.metric for each in finding.evidence))
    shown = (shown or [*metric_panels(context.data, context.view.metrics, metrics)])[:_MOST_CHARTS]
    if not shown:
        names = ", ".join(code_span(metric, limit=_ID_LETTERS) for metric in metrics)
        st.markdown(f"The run has no readings to draw of the metrics in the evidence: {names}.")
        return
    show_panels(context, shown, columns=max(2, len(shown)), key="finding", clickable=True)


def _sequences(context: PageContext, finding: Finding) -> None:
    named = [evidence for evidence in finding.evidence if evidence.where][:_MOST_SEQUENCES]
    responses = [
        response
        for response in _responses(context.run.key, finding.evidence, context)
        if response.reason.startswith(f"{finding.code}:")
    ]
    if not named:
        st.markdown(
            "This finding names no sequences."
            if not finding.evidence or rule_of(finding.code).reads_config
            else "The evidence of this finding is about whole steps, not about single sequences."
        )
        return
    for number, evidence in enumerate(named):
        _sequence(context, evidence, responses, number)


@st.cache_data(show_spinner=False, max_entries=64)
def _responses(
    run: str, evidence: tuple[Evidence, ...], _context: PageContext
) -> tuple[SampleResponse, ...]:
    """The responses that findings cite; read again only if the evidence is another."""
    del run, evidence
    return _context.data.sample_responses()


def _sequence(
    context: PageContext, evidence: Evidence, responses: Sequence[SampleResponse], number: int
) -> None:
    where = plain(evidence.where or "", limit=_ID_LETTERS)
    response = next((each for each in responses if each.sequence_id == evidence.where), None)
    with st.expander(f"{where} · step {evidence.step} · {evidence.metric}".replace("[", r"\[")):
        if response is None:
            st.markdown("The response is not on disk: the recorder kept none, or not this one.")
            return
        st.caption(unlinked(f"{response.facts} · {response.reason}"))
        st.text("Prompt")
        st.code(
            plain(response.prompt, limit=_PROMPT_LETTERS, lines=True),
            language=None,
            wrap_lines=True,
        )
        st.text("Response")
        st.code(
            plain(response.text, limit=_TEXT_LETTERS, lines=True), language=None, wrap_lines=True
        )
        if st.button("Open in Rollouts", key=f"sequence-{number}"):
            context.go("rollouts", sequence=evidence.where or "", step=str(evidence.step))


def _rule(finding: Finding) -> None:
    rule = rule_of(finding.code)
    with st.expander("What it sees, why it matters, when it is wrong"):
        st.markdown(own_markdown(rule_markdown(rule)))
    show_references(finding.references)
