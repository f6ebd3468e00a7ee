"""`grpodoctor dashboard`: runs in the browser."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.commands.watch import refuse_remote
from grpodoctor.cli.options import (
    ConfigOption,
    FormatOption,
    FrameworkOption,
    IsolatedOption,
    MapOption,
    WhereOption,
    project_settings,
    read_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpodoctor.monitor.dashboard.settings import DashboardSettings

_FIRST_PORT = 8501

PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run directories, logs of any framework, or folders of runs. "
        "\\[default: the current folder]",
        show_default=False,
    ),
]
HostOption = Annotated[
    str, typer.Option(help="Address to listen on; other machines can reach any but 127.0.0.1.")
]
PortOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, help=f"Port. \\[default: the first free port from {_FIRST_PORT}]",
        show_default=False,
    ),
]  # fmt: skip
NoBrowserOption = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]
AllowTreatmentOption = Annotated[
    bool,
    typer.Option(
        "--allow-treatment", help="Let readers approve treatments of a live run on its page."
    ),
]


def dashboard(
    paths: PathsArgument = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = None,
    no_browser: NoBrowserOption = False,
    allow_treatment: AllowTreatmentOption = False,
    framework: FrameworkOption = None,
    log_format: FormatOption = None,
    mapping: MapOption = None,
    where: WhereOption = None,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
) -> None:
    """Show runs in the browser: diagnosis, charts, rollouts, comparisons.

    Runs are only read. The address contains a random token, without which nothing is shown.
    """
    from grpodoctor.cli.dashboard_server import Address, check_address, serve

    _require_streamlit()
    settings = _settings(paths or ["."], framework, log_format, mapping, where, config, isolated)
    settings = settings.model_copy(update={"allow_treatment": allow_treatment})
    check_address(host, port)
    address = Address(host, port, settings.token)
    with ExitStack() as stack:
        if not address.is_local:
            print(
                f"warning: other machines can reach the dashboard at {host}; everyone with "
                "the address below can read these runs",
                file=sys.stderr,
            )
        serve(settings, address, stack, open_browser=not no_browser)


def _require_streamlit() -> None:
    from grpodoctor.errors import MissingExtraError

    if find_spec("streamlit") is None:
        raise MissingExtraError("the dashboard", "dashboard")


def _settings(
    paths: Sequence[str],
    framework: str | None,
    log_format: str | None,
    mapping: list[str] | None,
    where: list[str] | None,
    config: Path | None,
    isolated: bool,
) -> DashboardSettings:
    """The options as the pages receive them.

    Raises:
        RunError: if a path does not exist or cannot be read.
        ConfigError: if a framework, a mapping or the settings file is invalid.
    """
    import secrets

    from grpodoctor.frameworks.registry import configurable_framework_named
    from grpodoctor.monitor.dashboard.settings import DashboardSettings

    project = project_settings(config, isolated=isolated)
    framework = framework or project.framework
    options = read_options(log_format, None, mapping, None, project, where)
    return DashboardSettings(
        token=secrets.token_urlsafe(24),
        paths=tuple(map(_existing, paths)),
        framework=configurable_framework_named(framework).name if framework else None,
        log_format=log_format,
        mapping=dict(options.mapping),
        where=dict(options.where),
        project_file=project.path.resolve() if project.path else None,
    )


def _existing(path: str) -> Path:
    from grpodoctor.errors import RunError
    from grpodoctor.support.files.regular_files import translated_os_errors

    refuse_remote(path, "show")
    with translated_os_errors(Path(path)):
        if not Path(path).exists():
            raise RunError("no such file or directory", where=path[:200], remedy="check the path")
        if Path(path).is_dir():
            next(Path(path).iterdir(), None)  # a folder without permission fails here
        return Path(path).resolve()
