"""How lists and pages are printed as JSON."""

from __future__ import annotations


def json_text(data: object) -> str:
    """Indented JSON that is safe to print on a terminal."""
    from grpodoctor.support.safe_text import json_bytes

    return json_bytes(data, indent=True).decode()
