"""`grpodoctor mcp`: a server for agents."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from grpodoctor.cli.options import ConfigOption, IsolatedOption, project_settings

if TYPE_CHECKING:
    from grpodoctor.preflight.base import Check
    from grpodoctor.rules.base import Rule


class Apply(StrEnum):
    """Remedies that an agent may apply to a running trainer."""

    none = "none"
    safe = "safe"
    unsafe = "unsafe"


RootArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN_ROOT", help="Directory with the runs; nothing outside it is read."),
]
ApplyOption = Annotated[
    Apply, typer.Option(help="Remedies that an agent may apply to a running trainer.")
]


def mcp(
    root: RootArgument = Path(),
    apply: ApplyOption = Apply.none,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
) -> None:
    """Serve runs to agents over the Model Context Protocol.

    The server talks over stdin and stdout. Its tools only read, unless --apply is given.
    """
    from grpodoctor.errors import ConfigError, MissingExtraError

    if not root.is_dir():
        remedy = "pass the directory that holds the runs"
        raise ConfigError("the root is not a directory", where=str(root)[:200], remedy=remedy)
    project = project_settings(config, isolated=isolated)
    try:
        from grpodoctor.cli.mcp.server import Pages, server_of
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        raise MissingExtraError("grpodoctor mcp", "mcp") from None
    from grpodoctor.cli.mcp.run_tools import RunTools
    from grpodoctor.cli.mcp.treatment_tools import TreatmentTools

    runs = RunTools(root, project)
    allowed: Literal["none", "safe", "unsafe"] = apply.value
    treatments = None if allowed == "none" else TreatmentTools(runs, allowed)
    pages = Pages(_rule_page, _remedy_page, _recipe_page)
    server_of(runs, treatments, pages).run("stdio")


def _rule_page(code: str) -> dict[str, Any]:
    """The page of a rule or preflight check; the list of all if `code` is empty."""
    from grpodoctor.cli.commands.catalogue.rule import detail, entry
    from grpodoctor.preflight.catalogue import all_checks
    from grpodoctor.rules.catalogue import all_rules, find

    listed: tuple[Rule | Check, ...] = (*all_rules(), *all_checks())
    return detail(find(listed, code)) if code else {"rules": [entry(rule) for rule in listed]}


def _remedy_page(remedy_id: str, framework: str) -> dict[str, Any]:
    """The page of a remedy; the list of all if `remedy_id` is empty."""
    from grpodoctor.cli.commands.catalogue.remedy import detail, entry
    from grpodoctor.remedies.catalogue import all_remedies, remedy_of

    if not remedy_id:
        return {"remedies": [entry(remedy) for remedy in all_remedies()]}
    return detail(remedy_of(remedy_id), framework)


def _recipe_page(name: str) -> dict[str, Any]:
    """The page of a variant or preset; the list of all if `name` is empty."""
    from grpodoctor.cli.commands.catalogue.recipe import detail
    from grpodoctor.trainer.recipes import families, page_of

    if name:
        return detail(page_of(name))
    return {
        "recipes": [
            {"name": page.full_name, "summary": page.headline}
            for pages in families().values()
            for page in pages
        ]
    }
