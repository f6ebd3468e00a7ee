"""The token: who may see the dashboard, and the message for everyone else."""

from __future__ import annotations

import hmac

import streamlit as st

_ADMITTED = "admitted"


def is_admitted(token: str) -> bool:
    """Whether the address has, or had, the token.

    Args:
        token: of this start of the dashboard.
    """
    given = st.query_params.get("token", "")
    if hmac.compare_digest(given.encode(), token.encode()):
        st.session_state[_ADMITTED] = True
    return bool(st.session_state.get(_ADMITTED))


def refuse() -> None:
    """Say which address to open instead of one that lacks the token or has an old one."""
    if not st.query_params.get("token"):
        st.error("This address lacks the token of the dashboard.", icon=":material/lock:")
        st.markdown("Open the address that `grpodoctor dashboard` printed; it ends in `?token=…`.")
        return
    st.error(
        "The token in this address is not valid: each start of the dashboard makes a new token.",
        icon=":material/lock:",
    )
    st.markdown(
        "Open the address that `grpodoctor dashboard` printed when it was last started. To return "
        "to this place, replace only the value of `token` in the address of this page."
    )
