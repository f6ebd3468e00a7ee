"""The reader's place, kept in the query parameters, so that every address is a deep link."""

from __future__ import annotations

import re
from collections.abc import Mapping

import streamlit as st

_NAMES = (
    "run",
    "finding",
    "step",
    "steps",
    "zoom",
    "sequence",
    "framework",
    "runs",
    "align",
    "rule",
    "metrics",
    "smooth",
    "axis",
)
"""Query parameters of the pages; others are left alone."""
_SAVED = "saved_place"
_INTERVAL = re.compile(r"(\d{1,12})-(\d{1,12})")


def restore() -> None:
    """Put the reader's place back into the address after the navigation has cleared it."""
    if not any(name in st.query_params for name in (*_NAMES, "token")):
        st.query_params.from_dict(st.session_state.get(_SAVED, {}))


def save(token: str) -> None:
    """Remember the place, and keep the token in the address, so that a reload is admitted."""
    if st.query_params.get("token") != token:
        st.query_params["token"] = token
    st.session_state[_SAVED] = dict(st.query_params)


def params() -> dict[str, str]:
    """The parameters of the current address."""
    return {name: st.query_params[name] for name in _NAMES if name in st.query_params}


def change(**changes: str) -> None:
    """Change parameters of the address in place; an empty value removes one."""
    st.query_params.from_dict(changed(changes))


def changed(changes: Mapping[str, str]) -> dict[str, str]:
    """All parameters of the address with changes; an empty value removes one."""
    merged = {**dict(st.query_params), **changes}
    return {name: value for name, value in merged.items() if value}


def interval_of(text: str) -> tuple[int, int] | None:
    """The interval of steps that a parameter such as `100-200` names."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    return (first, last) if first <= last else None
