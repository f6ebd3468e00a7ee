"""The help of a command: lines that fit any width, flags without a type, one notation for usage."""

from __future__ import annotations

from typing import Any


def reflowed(text: str) -> str:
    """A docstring as paragraphs of one line each, which the terminal wraps at its own width."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def describe(parameter: Any) -> None:
    """Change how the help shows a parameter.

    A flag has no type. An argument is `NAME` if it is required and `[NAME]` if not, with three dots
    if it takes several values.

    Args:
        parameter: an option or an argument as typer describes it.
    """
    if getattr(parameter, "is_flag", False):
        parameter.display_type_rich = _no_type
    if parameter.param_type_name != "argument":
        return
    name = parameter.metavar = (parameter.metavar or parameter.name).upper()
    usage = name if parameter.required else f"[{name}]"
    usage += "..." if parameter.nargs != 1 else ""
    parameter.get_usage_pieces = lambda ctx: [usage]  # noqa: ARG005 - typer's signature


def _no_type(ctx: Any) -> None:
    """The type of a flag, which takes no value."""
