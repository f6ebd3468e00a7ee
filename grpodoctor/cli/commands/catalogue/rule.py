"""`grpodoctor rule`: the list of rules and preflight checks, and their manual pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.options import JsonOption, PageFormat, PageFormatOption, page_format
from grpodoctor.cli.pages import json_text, print_page
from grpodoctor.cli.rule_page import (
    former_names_lines,
    lead_time_text,
    page_text,
    threshold_docs,
    trials_of,
)
from grpodoctor.report.manual_page import manual_markdown

if TYPE_CHECKING:
    from grpodoctor.preflight.base import Check
    from grpodoctor.rules.base import Rule

    Listed = Rule | Check


def rule(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|NAME", help="Code or name of a rule; without it, all rules are listed."
        ),
    ] = None,
    output_format: PageFormatOption = PageFormat.text,
    as_json: JsonOption = False,
) -> None:
    """List the rules and preflight checks, or print the page of one."""
    output_format = page_format(output_format, as_json)
    from grpodoctor.preflight.catalogue import all_checks
    from grpodoctor.rules.catalogue import all_rules, find

    listed: tuple[Listed, ...] = (*all_rules(), *all_checks())
    if code is None:
        print_page(_LISTS[output_format](listed), output_format)
    else:
        print_page(_PAGES[output_format](find(listed, code)), output_format)


def entry(rule: Listed) -> dict[str, Any]:
    """The rule or check as JSON, for a list."""
    return {"code": rule.code, "name": rule.name, "family": rule.family, "summary": rule.summary}


def detail(rule: Listed) -> dict[str, Any]:
    """The page as JSON."""
    needs = getattr(rule, "inputs", ())
    return {
        **entry(rule),
        "manual": rule.manual(),
        "inputs": [need if isinstance(need, str) else list(need) for need in needs],
        "remedies": list(getattr(rule, "remedies", ())),
        "references": list(rule.references),
        "thresholds": rule.thresholds(),
        "threshold_docs": threshold_docs(rule),
        "lead_time": lead_time_text(rule),
        "trials": trials_of(rule),
    }


def _list_json(rules: tuple[Listed, ...]) -> str:
    return json_text([entry(rule) for rule in rules])


def _page_json(rule: Listed) -> str:
    return json_text(detail(rule))


def _list_text(rules: tuple[Listed, ...]) -> str:
    width = max(len(rule.name) for rule in rules)
    return "\n".join(f"{rule.code}  {rule.name:<{width}}  {rule.summary}" for rule in rules)


def _list_markdown(rules: tuple[Listed, ...]) -> str:
    rows = [f"| {rule.code} | {rule.name} | {rule.summary} |" for rule in rules]
    return "\n".join(["| code | name | what it sees |", "|---|---|---|", *rows])


def _thresholds_markdown(rule: Listed) -> Iterator[str]:
    docs = threshold_docs(rule)
    for name, value in rule.thresholds().items():
        yield f"- `{name} = {value}`" + (f": {docs[name]}" if name in docs else "")


def _page_markdown(rule: Listed) -> str:
    lines = [f"# {rule.code} {rule.name}", "", manual_markdown(rule.manual())]
    lines += former_names_lines(rule)
    if rule.thresholds():
        lines += ["", "## Thresholds", "", *_thresholds_markdown(rule)]
    if lead_time := lead_time_text(rule):
        lines += ["", "## Lead time", "", lead_time]
    if trials := trials_of(rule):
        lines += ["", "## Trials", "", *(f"- {each}" for each in trials)]
    return "\n".join(lines)


_LISTS: dict[PageFormat, Callable[[tuple[Listed, ...]], str]] = {
    PageFormat.text: _list_text,
    PageFormat.markdown: _list_markdown,
    PageFormat.json: _list_json,
}
_PAGES: dict[PageFormat, Callable[[Listed], str]] = {
    PageFormat.text: page_text,
    PageFormat.markdown: _page_markdown,
    PageFormat.json: _page_json,
}
