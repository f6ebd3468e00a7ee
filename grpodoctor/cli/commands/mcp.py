"""`grpodoctor mcp`: a server for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpodoctor.cli.commands.watch import Apply
from grpodoctor.cli.options import ConfigOption, IsolatedOption, project_settings

RootArgument = Annotated[
    Path,
    typer.Argument(
        metavar="[RUN_ROOT]", help="Directory with the runs; nothing outside it is read."
    ),
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
    """Serve runs to agents over the Model Context Protocol, on stdin and stdout.

    The tools only read, unless --apply is given.
    """
    from grpodoctor.errors import ConfigError, MissingExtraError

    if not root.is_dir():
        raise ConfigError("the root is not a directory", where=str(root)[:200])
    project = project_settings(config, isolated=isolated)
    try:
        from grpodoctor.cli.mcp.server import server_of
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        raise MissingExtraError("grpodoctor mcp", "mcp") from None
    from grpodoctor.cli.mcp.run_tools import RunTools
    from grpodoctor.cli.mcp.treatment_tools import TreatmentTools

    runs = RunTools(root, project)
    treatments = None if apply is Apply.none else TreatmentTools(runs, apply.value)
    server_of(runs, treatments).run("stdio")
