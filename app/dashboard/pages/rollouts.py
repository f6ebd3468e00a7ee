"""The page Rollouts: find responses, read one token by token, and compare a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from grpodoctor.monitor.dashboard.responses import index_of, marked_differences, token_figures
from grpodoctor.monitor.sample_responses import ResponseSource
from grpodoctor.report.dashboard.rollout_rows import (
    ORDERS,
    page_phrase,
    rollout_columns,
    rollout_facts,
)
from grpodoctor.report.dashboard.token_view import (
    COLORINGS,
    MOST_TOKENS,
    colored_tokens,
    marked_passages,
    token_texts,
)
from grpodoctor.runs.rollout_queries.figures import Rollout
from grpodoctor.runs.rollout_queries.index import Bounds, RolloutIndex, RolloutQuery
from grpodoctor.support.safe_text import code_span, plain, unlinked

from .. import url_state
from ..context import PageContext
from ..sections import empty, section

_PAGE_SIZE = 50
_ANSWERS: Mapping[str, bool | None] = {"All": None, "Yes": True, "No": False}
_BOUNDED = ("reward", "length", "advantage", "prob_diff_max")
_MOST_GROUP = 8
_LONGEST_TEXT = 20_000
_ROW_PIXELS = 35


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Rollouts")
    context.live(_draw)


def _draw(context: PageContext) -> None:
    index = responses_index(context)
    if index is None or not index.table.num_rows:
        _explain_absence(context, index)
        return
    with section():
        _list(context, index)
    chosen = _chosen(context, index)
    if chosen is not None:
        with section():
            _response(context, index, chosen)


def responses_index(context: PageContext) -> RolloutIndex | None:
    """The run's responses, with those that were written since the last look."""
    source = context.data.responses
    index = _index(context.run.key, _identity(source), source)
    if index is not None:
        index.refresh()
    return index


@st.cache_resource(show_spinner="Reading the figures of the responses …", max_entries=4)
def _index(_key: str, identity: str, _source: ResponseSource | None) -> RolloutIndex | None:
    del identity  # part of the cache's key: another source needs another index
    return index_of(_source)


def _identity(source: ResponseSource | None) -> str:
    return f"{type(source).__name__} {getattr(source, 'directory', '') or id(source)}"


def _explain_absence(context: PageContext, index: RolloutIndex | None) -> None:
    for why in list(index.unreadable.values())[:5] if index else ():
        st.warning(unlinked(why, limit=400))
    if context.view.state == "gone":
        empty("The files with the responses have vanished.", ":material/forum:")
        return
    empty(
        "This run has no responses on disk. The recorder writes them unless its depth is `off`. "
        "For a run of another framework, open the folder that contains its rollout dumps.",
        ":material/forum:",
    )


# The list


def _list(context: PageContext, index: RolloutIndex) -> None:
    query = _query(context, index)
    count = max(1, -(-index.page(query, 0, 0).total // _PAGE_SIZE))
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    with right:
        number = int(st.number_input("Page", 1, count, 1, key="rollouts-page")) - 1
    shown = index.page(query, number, _PAGE_SIZE)
    with left:
        st.markdown(f"**{page_phrase(shown.total, number, _PAGE_SIZE)}**")
    if index.unreadable:
        st.warning(unlinked(f"Not read: {next(iter(index.unreadable.values()))}", limit=400))
    if not shown.figures:
        return
    st.session_state["rollouts-shown"] = [
        (each["sequence_id"], each["step"]) for each in shown.figures
    ]
    columns = rollout_columns(
        shown.figures, index.in_full(shown.figures, with_tokens=False), index.known_columns
    )
    st.dataframe(
        columns,
        hide_index=True,
        height=_ROW_PIXELS * (min(len(shown.figures), 10) + 1) + 3,
        key="rollouts-table",
        on_select=_choose,
        selection_mode="single-row",
        alt="The responses that match the filters; select a row to read one.",
    )


def _query(context: PageContext, index: RolloutIndex) -> RolloutQuery:
    """The filters and the order that the reader chose."""
    known = index.known_columns
    text, order, way = st.columns([3, 2, 1], vertical_alignment="bottom")
    searched = text.text_input(
        "Text in prompt or response", key="rollouts-text", max_chars=500, bind="query-params"
    )
    names = [name for name in ORDERS if name in known]
    by = order.selectbox(
        "Order", names, format_func=ORDERS.__getitem__, key="rollouts-order", bind="query-params"
    )
    is_descending = way.toggle("Descending", key="rollouts-descending", bind="query-params")
    answers: dict[str, bool | None] = dict.fromkeys(("correct", "truncated"))
    with st.expander("Filters"):
        columns = st.columns(6)
        for column, name in zip(columns, list(answers), strict=False):
            if name in known:
                answer = column.selectbox(
                    name.capitalize(), list(_ANSWERS), key=f"rollouts-{name}", bind="query-params"
                )
                answers[name] = _ANSWERS[answer]
        bounded = [name for name in _BOUNDED if name in known]
        bounds = tuple(
            (name, _bounds(column, index, name))
            for column, name in zip(columns[2:], bounded, strict=False)
        )
    return RolloutQuery(
        steps=context.steps,
        correct=answers["correct"],
        truncated=answers["truncated"],
        bounds=tuple((name, ends) for name, ends in bounds if ends != (None, None)),
        text=searched,
        order=by or "step",
        is_descending=is_descending,
    )


def _bounds(column: Any, index: RolloutIndex, name: str) -> Bounds:
    title = ORDERS[name].split(" (")[0]
    ends = index.range_of(name)
    hint = f"{ends[0]:.4g} to {ends[1]:.4g} in this run" if ends else None
    low = column.number_input(
        f"{title} from", value=None, key=f"rollouts-{name}-low", help=hint, bind="query-params"
    )
    high = column.number_input(
        f"{title} to", value=None, key=f"rollouts-{name}-high", help=hint, bind="query-params"
    )
    return low, high


def _choose() -> None:
    """Open the response whose row was selected."""
    rows = st.session_state["rollouts-table"]["selection"]["rows"]
    shown = st.session_state.get("rollouts-shown", [])
    if rows and rows[0] < len(shown):
        sequence, step = shown[rows[0]]
        url_state.change(sequence=sequence, step=str(step))


# One response


def _chosen(context: PageContext, index: RolloutIndex) -> Rollout | None:
    sequence = context.params.get("sequence", "")
    if not sequence:
        st.caption("Select a row to read its response.")
        return None
    step = context.params.get("step", "")
    found = index.find(sequence, int(step) if step.isdecimal() else None) or index.find(sequence)
    if found is None:
        steps = index.steps()
        st.info(
            f"The response {code_span(sequence, limit=100)} is not on disk. Responses of "
            f"{len(steps)} steps are, from step {steps[0]} to step {steps[-1]}."
        )
        return None
    whole = index.in_full([found])
    if not whole:
        st.warning("The file of this response can no longer be read.")
        return None
    return whole[0]


def _response(context: PageContext, index: RolloutIndex, rollout: Rollout) -> None:
    st.subheader("Response", anchor=False)
    st.markdown(code_span(rollout["sequence_id"], limit=120))
    st.caption(unlinked(rollout_facts(rollout)))
    components = rollout.get("components") or {}
    if components:
        parts = (f"{code_span(name, limit=60)} {value:.4g}" for name, value in components.items())
        st.markdown(f"Reward components: {', '.join(parts)}")
    with st.expander("Prompt", expanded=len(rollout.get("prompt") or "") < 600):
        st.text(_shown(rollout.get("prompt")))
    whole, tokens, group = st.tabs(["Response", "Tokens", "Group"])
    with whole:
        st.text(_shown(rollout.get("text")))
        if rollout.get("reference"):
            st.markdown("**Reference answer**")
            st.text(_shown(rollout["reference"]))
    with tokens:
        _tokens(context, rollout)
    with group:
        _group(index, rollout)


def _shown(text: str | None) -> str:
    return plain(text or "The text was not recorded.", limit=_LONGEST_TEXT, lines=True)


def _tokens(context: PageContext, rollout: Rollout) -> None:
    figures = token_figures(rollout, context.view.knobs)
    colorings = {each.title: each for each in COLORINGS if each.column in figures.columns}
    if not figures.ids:
        st.markdown(
            "The tokens of this response were not recorded. Record at depth `worst` or `full`."
        )
        return
    first = 0
    left, right = st.columns([2, 1])
    if len(figures.ids) > MOST_TOKENS:
        starts = list(range(0, len(figures.ids), MOST_TOKENS))
        first = right.selectbox(
            "Tokens",
            starts,
            format_func=lambda at: f"{at} to {min(at + MOST_TOKENS, len(figures.ids)) - 1}",
            key="rollouts-tokens-first",
        )
    if not colorings:
        st.markdown("No figure of these tokens was recorded.")
        return
    title = left.selectbox("Color by", list(colorings), key="rollouts-coloring")
    coloring = colorings[title]
    texts = token_texts(context.view.manifest.model, figures.ids)
    st.html(colored_tokens(figures, texts, coloring, first))
    st.caption(f"{coloring.legend} Point at a token to see its figures.")
    with st.expander("Figures as a table"):
        shown = slice(first, first + MOST_TOKENS)
        st.dataframe(
            {
                "token": [plain(text, limit=40) for text in texts[shown]],
                **{name: list(column[shown]) for name, column in figures.columns.items()},
            },
            key="rollouts-token-table",
            alt="The figures of each token that is shown above.",
        )


def _group(index: RolloutIndex, rollout: Rollout) -> None:
    members = index.group(rollout)
    others = [
        each
        for each in index.in_full(members[: _MOST_GROUP + 1], with_tokens=False)
        if each["sequence_id"] != rollout["sequence_id"]
    ][:_MOST_GROUP]
    if not others:
        st.markdown("No other response to this prompt is on disk.")
        return
    st.caption(
        f"{len(members)} responses to this prompt in step {rollout['step']}. "
        "Words that differ from the chosen response are marked."
    )
    chosen = others[0]
    if len(others) > 1:
        chosen = others[
            st.selectbox(
                "Compare with",
                range(len(others)),
                format_func=lambda at: plain(
                    f"{others[at]['sequence_id']}: {rollout_facts(others[at])}", limit=140
                ),
                key="rollouts-other",
            )
        ]
    texts = [_shown(each.get("text")) for each in (rollout, chosen)]
    for column, each, (own, other) in zip(
        st.columns(2), (rollout, chosen), (texts, texts[::-1]), strict=True
    ):
        with column:
            st.markdown(code_span(each["sequence_id"], limit=80))
            st.caption(unlinked(rollout_facts(each)))
            st.html(marked_passages(marked_differences(own, other)))
