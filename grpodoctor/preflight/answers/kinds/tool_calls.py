"""Tool calls that are answers, and the tools of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>|<answer>(.*?)</answer>", re.DOTALL)
_DECODER = json.JSONDecoder()
_SCHEMAS = ("parameters", "input_schema")
"""Keys under which a description of a tool has its schema."""
_ARGUMENTS = ("arguments", "parameters", "args")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the prompt offers."""

    name: str
    arguments: frozenset[str] | None
    """Names of its arguments; None if the schema does not say or allows any."""
    required: frozenset[str]
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The schema of each argument."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


def tools_of(columns: Mapping[str, Any]) -> dict[str, Tool]:
    """The tools in the column `tools`, by name; the column may hold JSON as text."""
    tools = json_content(columns.get("tools"))
    return {
        tool.name: tool
        for entry in (tools if isinstance(tools, list) else [])
        if (tool := _tool(entry))
    }


def tools_in_text(texts: Sequence[str]) -> dict[str, Tool]:
    """The tools that a prompt describes as JSON objects with a name and parameters, by name."""
    found: dict[str, Tool] = {}
    for text in texts:
        if not any(f'"{key}"' in text for key in _SCHEMAS):
            continue  # the usual case: formulas and code have many braces
        at = text.find("{")
        while at >= 0:
            try:
                entry, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                end, entry = at + 1, None
            if _describes_tool(entry) and (tool := _tool(entry)):
                found[tool.name] = tool
            at = text.find("{", end)
    return found


def _describes_tool(entry: object) -> bool:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    return (
        isinstance(function, Mapping)
        and any(_is_schema(function.get(key)) for key in _SCHEMAS)
        and "arguments" not in function
    )


def _is_schema(parameters: object) -> bool:
    """Whether parameters are described; the values of an example call describe nothing."""
    return isinstance(parameters, Mapping) and (
        not parameters
        or isinstance(parameters.get("properties"), Mapping)
        or any(isinstance(value, Mapping) for value in parameters.values())
        or parameters.get("type") == "object"
    )


def calls_in(answer: str) -> list[ToolCall]:
    """The calls that an answer consists of, in JSON, alone or in tags; empty for other answers."""
    tagged = ["".join(groups) for groups in _TAGGED.findall(answer)]
    contents = (json_content(text) for text in tagged or [answer])
    return [call for content in contents for entry in _entries(content) if (call := _call(entry))]


def problem_of(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    """What a call has that the tools do not, or lacks; empty if it fits."""
    tool = tools.get(call.name)
    if tool is None:
        return f"no tool {call.name!r:.40}"
    missing = sorted(tool.required - call.arguments.keys())
    unknown = sorted(call.arguments.keys() - tool.arguments) if tool.arguments is not None else []
    if unknown:
        return f"{call.name:.40} has no argument {unknown[0]!r:.40}"
    if missing:
        return f"{call.name:.40} lacks the argument {missing[0]!r:.40}"
    wrong = (
        _value_problem(name, call.arguments[name], schema)
        for name, schema in tool.types.items() if name in call.arguments
    )  # fmt: skip
    return next(filter(None, wrong), "")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (Mapping,),
}  # fmt: skip


def _value_problem(name: str, value: Any, schema: Mapping[str, Any]) -> str:
    """Why a value does not fit the type or the choices of its argument; empty if it fits."""
    kind, choices = schema.get("type"), schema.get("enum")
    wanted = _TYPES.get(kind) if isinstance(kind, str) else None
    is_flag = isinstance(value, bool) and kind != "boolean"
    if wanted and value is not None and (is_flag or not isinstance(value, wanted)):
        return f"{name!r:.40} must be of type {kind}"
    if isinstance(choices, list) and choices and value is not None and value not in choices:
        return f"{name!r:.40} must be one of {len(choices)} values"
    return ""


def _tool(entry: object) -> Tool | None:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    schema = function.get("parameters") or function.get("input_schema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties, required = schema.get("properties"), schema.get("required")
    arguments = None
    if isinstance(properties, Mapping) and not schema.get("additionalProperties"):
        # Parquet gives each tool the properties of all, those of the others without a value.
        arguments = frozenset(key for key, value in properties.items() if value)
    return Tool(
        function["name"],
        arguments,
        frozenset(each for each in required if isinstance(each, str))
        if isinstance(required, list)
        else frozenset(),
        {str(key): value for key, value in properties.items() if isinstance(value, Mapping)}
        if isinstance(properties, Mapping)
        else {},
    )


def _call(entry: object) -> ToolCall | None:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    named = [json_content(function[key]) for key in _ARGUMENTS if key in function]
    if not named or not isinstance(named[0], Mapping):
        return None
    return ToolCall(function["name"], {str(key): value for key, value in named[0].items()})


def _entries(content: Any) -> Iterator[Any]:
    if isinstance(content, list):
        yield from content
    elif isinstance(content, Mapping):
        yield from _entries(content.get("tool_calls", [content]))


def json_content(value: Any) -> Any:
    """A value, or what it contains as JSON; None if it is other text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
