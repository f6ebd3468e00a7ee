"""The help of a command: lines that fit any width, short types, one notation for usage."""

from __future__ import annotations

from typing import Any


def reflowed(text: str) -> str:
    """A docstring as paragraphs of one line each, which the terminal wraps at its own width."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def describe(parameter: Any) -> None:
    """Change how the help shows a parameter.

    A flag has no type. The values of a choice are part of the text, since a long type leaves the
    text of every option a narrow column. An argument is `NAME` if it is required and `[NAME]` if
    not, with three dots if it takes several values.

    Args:
        parameter: an option or an argument as typer describes it.
    """
    if getattr(parameter, "is_flag", False):
        parameter.display_type_rich = _no_type
    elif hasattr(parameter, "display_type"):
        _shorten_type(parameter)
    if parameter.param_type_name != "argument":
        return
    name = parameter.metavar = (parameter.metavar or parameter.name).upper()
    usage = name if parameter.required else f"[{name}]"
    usage += "..." if parameter.nargs != 1 else ""
    parameter.get_usage_pieces = lambda ctx: [usage]  # noqa: ARG005 - typer's signature


def without_negative_flags(parameters: list[Any]) -> None:
    """Name `--no-flag` in the text of `--flag`, since a separate column would be cut.

    The command line is not parsed any more when its help is shown.
    """
    for parameter in parameters:
        if negative := getattr(parameter, "secondary_opts", None):
            text, bracket, default = (parameter.help or "").partition("\\[")
            parameter.help = f"{text.strip()} {negative[0]} switches it off. {bracket}{default}"
            parameter.secondary_opts = []


def _shorten_type(parameter: Any) -> None:
    """Show `<choice>`, `<text>` or a number in place of the names that Python has for them."""
    display = parameter.display_type

    def shortened(ctx: Any) -> str:
        return _short_type(display(ctx) or "")

    parameter.display_type_rich = shortened
    parameter._get_number_range_help_str = _no_range  # noqa: SLF001 - typer has no public name
    values = _choices(display(None))
    if values and not all(value in (parameter.help or "") for value in values):
        text, bracket, default = (parameter.help or "").partition("\\[")
        listed = f"{text.strip().rstrip('.')}: {', '.join(values)}."
        parameter.help = f"{listed} {bracket}{default}" if bracket else listed


def _no_range() -> None:
    """The range of a number, which its error names."""


def _short_type(shown: str) -> str:
    if _choices(shown):
        return "<choice>"
    return _TYPES.get(shown.strip("<>").removesuffix(" range").removeprefix("list["), shown)


def _choices(shown: str) -> list[str]:
    """The values of `<one|two|three>`; none for another type."""
    return shown.strip("<>[]").split("|") if "|" in shown else []


_TYPES = {
    **dict.fromkeys(("str", "str]"), "<text>"),
    **dict.fromkeys(("int", "int]"), "<int>"),
    **dict.fromkeys(("float", "float]"), "<float>"),
    **dict.fromkeys(("path", "path]", "Path]"), "<path>"),
}
"""What a type is called in the help."""


def _no_type(ctx: Any) -> None:
    """The type of a flag, which takes no value."""
