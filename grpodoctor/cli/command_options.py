"""Commands with many options: the options are the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")


def command_with(
    options: type[Options],
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function that takes its options as one object.

    Args:
        options: a dataclass; each field's annotation is that of a typer parameter.
    """
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)  # type: ignore[arg-type]  # no type for "a dataclass"
    ]

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(options(**given))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__module__ = function.__module__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate
