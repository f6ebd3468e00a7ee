"""`grpodoctor rule`: the list of rules and their manual pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.pages import PageFormat, json_text, manual_markdown

if TYPE_CHECKING:
    from grpodoctor.rules.base import Rule


def rule(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE|NAME]", help="Which rule; none lists them all.")
    ] = None,
    output_format: Annotated[PageFormat, typer.Option(help="How to print it.")] = PageFormat.text,
) -> None:
    """List the rules, or print the manual page of one."""
    from grpodoctor.rules.catalogue import all_rules, rule_of

    if code is None:
        print(_LISTS[output_format](all_rules()))
    else:
        print(_PAGES[output_format](rule_of(code)))


def _entry(rule: Rule) -> dict[str, Any]:
    return {"code": rule.code, "name": rule.name, "family": rule.family, "summary": rule.summary}


def _detail(rule: Rule) -> dict[str, Any]:
    from dataclasses import asdict

    inputs = [need if isinstance(need, str) else list(need) for need in rule.inputs]
    return {
        **_entry(rule),
        "manual": rule.manual(),
        "inputs": inputs,
        "remedies": list(rule.remedies),
        "references": list(rule.references),
        "thresholds": asdict(rule),
    }


def _list_json(rules: tuple[Rule, ...]) -> str:
    return json_text([_entry(rule) for rule in rules])


def _page_json(rule: Rule) -> str:
    return json_text(_detail(rule))


def _list_text(rules: tuple[Rule, ...]) -> str:
    width = max(len(rule.name) for rule in rules)
    return "\n".join(f"{rule.code}  {rule.name:<{width}}  {rule.summary}" for rule in rules)


def _list_markdown(rules: tuple[Rule, ...]) -> str:
    rows = [f"| {rule.code} | {rule.name} | {rule.summary} |" for rule in rules]
    return "\n".join(["| code | name | what it sees |", "|---|---|---|", *rows])


def _thresholds(rule: Rule) -> list[str]:
    from dataclasses import asdict

    return [f"{name} = {value}" for name, value in asdict(rule).items()]


def _page_text(rule: Rule) -> str:
    lines = [f"{rule.code} {rule.name}", "", rule.manual()]
    if thresholds := _thresholds(rule):
        lines += ["", "Thresholds", *(f"    {line}" for line in thresholds)]
    return "\n".join(lines)


def _page_markdown(rule: Rule) -> str:
    lines = [f"# {rule.code} {rule.name}", "", manual_markdown(rule.manual())]
    if thresholds := _thresholds(rule):
        lines += ["", "## Thresholds", "", *(f"- `{line}`" for line in thresholds)]
    return "\n".join(lines)


_LISTS: dict[PageFormat, Callable[[tuple[Rule, ...]], str]] = {
    PageFormat.text: _list_text,
    PageFormat.markdown: _list_markdown,
    PageFormat.json: _list_json,
}
_PAGES: dict[PageFormat, Callable[[Rule], str]] = {
    PageFormat.text: _page_text,
    PageFormat.markdown: _page_markdown,
    PageFormat.json: _page_json,
}
