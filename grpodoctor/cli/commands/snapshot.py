"""`grpodoctor snapshot`: everything known around a step, for agents and bug reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from grpodoctor.cli.options import (
    ConfigOption,
    FormatOption,
    IsolatedOption,
    JsonOption,
    MapOption,
    RunConfigOption,
    WhereOption,
    project_settings,
    read_options,
)
from grpodoctor.cli.pages import json_text


def snapshot(
    run: Annotated[str, typer.Argument(help="Run directory or log of any framework.")],
    around: Annotated[
        int | None, typer.Option(min=0, help="Step. \\[default: the last one]", show_default=False)
    ] = None,
    window: Annotated[
        int, typer.Option(min=0, max=50, help="Recorded steps before and after it.")
    ] = 5,
    responses: Annotated[
        int, typer.Option(min=0, max=16, help="Number of responses with their texts.")
    ] = 4,
    as_json: JsonOption = False,
    log_format: FormatOption = None,
    run_config: RunConfigOption = None,
    mapping: MapOption = None,
    where: WhereOption = None,
    config: ConfigOption = None,
    isolated: IsolatedOption = False,
) -> None:
    """Show findings, vitals, worst responses and settings around a step.

    The JSON is smaller than 128 KiB. docs/outgoing.md describes it.
    """
    from grpodoctor.cli.commands.watch import refuse_remote
    from grpodoctor.monitor.outgoing.step_snapshot import SnapshotRequest, step_snapshot

    refuse_remote(run, "take a snapshot of")
    project = project_settings(config, isolated=isolated)
    data = step_snapshot(
        Path(run),
        SnapshotRequest(around, window, responses),
        project=project,
        options=read_options(log_format, run_config, mapping, project=project, where=where),
    )
    print(json_text(data) if as_json else "\n".join(_text(data)))


def _text(data: dict[str, Any]) -> Iterator[str]:
    """The snapshot for a person, without the settings of the framework."""
    from grpodoctor.monitor.vitals import format_number
    from grpodoctor.support.safe_text import plain

    window, verdict = data["window"], data["verdict"]
    yield plain(f"{data['run']['path']}: {verdict['kind']}: {verdict['sentence']}")
    yield f"steps {window['first_step']} to {window['last_step']}, around step {window['around']}"
    for finding in data["findings"]:
        head = f"{finding['severity']} {finding['code']} {finding['name']}"
        yield plain(f"{head} since step {finding['onset_step']}: {finding['summary']}")
    for vital in data["vitals"]:
        values = " ".join(map(format_number, vital["values"]))
        yield plain(f"{vital['label']} (start {format_number(vital['start'])}): {values}")
    for response in data["responses"]:
        facts = f"reward {format_number(response['reward'])}, {response['length']} tokens"
        yield ""
        yield plain(
            f"step {response['step']} {response['sequence_id']}: {response['why']}; {facts}"
        )
        yield plain(f"prompt: {response['prompt']}")
        yield plain(f"response: {response['text']}")
