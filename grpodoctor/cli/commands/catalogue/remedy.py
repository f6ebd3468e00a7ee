"""`grpodoctor remedy`: the list of remedies and their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.options import JsonOption, PageFormat, PageFormatOption, page_format
from grpodoctor.cli.pages import json_text, print_page
from grpodoctor.report.manual_page import manual_markdown
from grpodoctor.vocabulary.knobs import Setting

if TYPE_CHECKING:
    from grpodoctor.frameworks.written_settings import SettingLine
    from grpodoctor.remedies.base import Criterion, Remedy


def remedy(
    remedy_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Remedy id; without it, all remedies are listed."),
    ] = None,
    framework: Annotated[
        str, typer.Option(help="Framework whose config keys are shown.")
    ] = "grpodoctor",
    output_format: PageFormatOption = PageFormat.text,
    as_json: JsonOption = False,
) -> None:
    """List the remedies, or print the page of one remedy.

    `safe` remedies keep the objective and can be undone, `unsafe` ones change it.

    `suggest` remedies require a restart or a person.

    The page shows the change for an example run; `check` shows it for your run's settings.
    """
    output_format = page_format(output_format, as_json)
    from grpodoctor.remedies.catalogue import all_remedies, remedy_of

    if remedy_id is None:
        print_page(_LISTS[output_format](all_remedies()), output_format)
    else:
        print_page(_PAGES[output_format](detail(remedy_of(remedy_id), framework)), output_format)


def entry(remedy: Remedy) -> dict[str, Any]:
    """The remedy as JSON, for a list."""
    return {
        "id": remedy.id,
        "title": remedy.title,
        "applicability": remedy.applicability,
        "in_flight": remedy.in_flight,
    }


def detail(remedy: Remedy, framework: str) -> dict[str, Any]:
    """The page as JSON.

    Args:
        remedy: the remedy.
        framework: framework whose config keys are shown.
    """
    from dataclasses import asdict

    from grpodoctor.frameworks.registry import configurable_framework_named
    from grpodoctor.monitor.advice import called_for_by, overlapping
    from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
    from grpodoctor.report.trial_table import remedy_trials

    framework = configurable_framework_named(framework).name
    change = remedy.change(PLAIN_GRPO)
    return {
        **entry(remedy),
        "manual": remedy.manual(),
        "how": remedy.how,
        "command": remedy.command,
        "acts_on": remedy.acts_on.bound if remedy.acts_on else "",
        "former_ids": list(remedy.former_ids),
        "target": [_criterion(target) for target in remedy.targets],
        "guards": [_criterion(guard) for guard in remedy.guards],
        "paper": remedy.paper,
        "trials": remedy_trials(remedy.id),
        "called_for_by": list(called_for_by(remedy.id)),
        "alternatives": list(remedy.alternatives),
        "never_with": list(overlapping(remedy.id)),
        "before": {knob: PLAIN_GRPO[knob] for knob in change if knob in PLAIN_GRPO},
        "change": change,
        "framework": framework,
        "spelling": [asdict(line) for line in _setting_lines(remedy, change, framework)],
    }


def _setting_lines(remedy: Remedy, change: dict[str, Setting], framework: str) -> list[SettingLine]:
    """The change and the settings that belong to the instructions, as the framework has them."""
    from grpodoctor.frameworks.relative_settings import with_values
    from grpodoctor.frameworks.settings import framework_settings
    from grpodoctor.remedies.plain_grpo import PLAIN_GRPO

    lines = framework_settings(change, framework, PLAIN_GRPO)
    of_restart = with_values(framework_settings(remedy.restart_with, framework), {})
    return list(dict.fromkeys([*lines, *of_restart]))


def _criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        "metric": criterion.metric,
        "direction": criterion.direction,
        "tolerance": criterion.tolerance,
    }


def _list_json(remedies: tuple[Remedy, ...]) -> str:
    return json_text([entry(remedy) for remedy in remedies])


def _list_text(remedies: tuple[Remedy, ...]) -> str:
    width = max(len(remedy.id) for remedy in remedies)
    return "\n".join(
        f"{remedy.id:<{width}}  {remedy.applicability:<7}  {remedy.title}" for remedy in remedies
    )


def _list_markdown(remedies: tuple[Remedy, ...]) -> str:
    rows = [f"| {remedy.id} | {remedy.applicability} | {remedy.title} |" for remedy in remedies]
    return "\n".join(["| id | applicability | what it does |", "|---|---|---|", *rows])


def _change_lines(page: dict[str, Any]) -> list[str]:
    from textwrap import wrap

    from grpodoctor.frameworks.written_settings import SettingLine

    settings = [SettingLine(**setting).commented_line for setting in page["spelling"]]
    if not page["change"]:
        keys = [f"Settings in {page['framework']}:", *(f"    {line}" for line in settings)]
        command = [f"    {page['command']}"] if page["command"] else []
        how = wrap(page["how"], 80, break_on_hyphens=False)
        return [*how, *command, *(keys if settings else [])]
    before = ", ".join(f"{knob}={setting}" for knob, setting in page["before"].items())
    return [
        f"Settings in {page['framework']}, for example for a run with {before}:",
        *(f"    {line}" for line in settings),
    ]


def _relations(page: dict[str, Any]) -> list[str]:
    """The rules that call for a remedy, and the remedies that are related to it."""
    from textwrap import wrap

    relations = {
        "Offered if": [f"{page['acts_on']}, or unknown"] if page["acts_on"] else [],
        "Called for by": page["called_for_by"],
        "Alternatives": page["alternatives"],
        "Never combine with": page["never_with"],
        "Former ids": page["former_ids"],
    }
    return [
        line
        for title, names in relations.items()
        if names
        for line in wrap(
            f"{title}: {', '.join(names)}", 80, subsequent_indent="    ", break_on_hyphens=False
        )
    ]


def _page_text(page: dict[str, Any]) -> str:
    when = "applies to a live run" if page["in_flight"] else "requires a restart"
    lines = [f"{page['id']}  ({page['applicability']}, {when})", "", page["manual"]]
    return "\n".join([*lines, "", *_change_lines(page), "", *_relations(page), *_trial_lines(page)])


def _trial_lines(page: dict[str, Any]) -> list[str]:
    """An empty line and what published trials show; nothing without a trial."""
    from textwrap import wrap

    lines = [line for each in page["trials"] for line in wrap(each, 76)]
    return ["", "Trials:", *(f"    {line}" for line in lines)] if lines else []


def _page_markdown(page: dict[str, Any]) -> str:
    change = "\n".join([*_change_lines(page), "", *_relations(page)])
    parts = [f"# {page['id']}", manual_markdown(page["manual"]), f"```text\n{change}\n```"]
    if page["trials"]:
        parts += ["## Trials", "\n".join(f"- {each}" for each in page["trials"])]
    return "\n\n".join(parts)


_LISTS: dict[PageFormat, Callable[[tuple[Remedy, ...]], str]] = {
    PageFormat.text: _list_text,
    PageFormat.markdown: _list_markdown,
    PageFormat.json: _list_json,
}
_PAGES: dict[PageFormat, Callable[[dict[str, Any]], str]] = {
    PageFormat.text: _page_text,
    PageFormat.markdown: _page_markdown,
    PageFormat.json: json_text,
}
