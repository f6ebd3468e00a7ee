from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from grpodoctor.cli.command_options import command_with


@dataclass(frozen=True)
class Options:
    """Options of a command."""

    model: Annotated[str, typer.Option(help="Model.")]
    steps: Annotated[int, typer.Option(min=1)] = 3
    names: Annotated[list[str] | None, typer.Option("--name")] = None


@command_with(Options)
def show(options: Options) -> None:
    """Show the options."""
    print(options.model, options.steps, options.names)


@pytest.fixture
def run() -> CliRunner:
    return CliRunner()


def test_fields_are_options_with_their_defaults(run: CliRunner) -> None:
    app = typer.Typer()
    app.command()(show)
    assert run.invoke(app, ["--model", "m"]).output == "m 3 None\n"
    done = run.invoke(app, ["--model", "m", "--steps", "4", "--name", "a", "--name", "b"])
    assert done.output == "m 4 ['a', 'b']\n"
    assert run.invoke(app, []).exit_code == 2, "a field without default is required"
    assert run.invoke(app, ["--model", "m", "--steps", "0"]).exit_code == 2
    assert "Show the options." in run.invoke(app, ["--help"]).output
    assert list(signature(show).parameters) == ["model", "steps", "names"]
