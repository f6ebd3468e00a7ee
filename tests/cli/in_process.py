"""Running commands in this process: much faster than a program, with the same output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from typer.testing import CliRunner

from grpodoctor.cli.main import app


def run(
    *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; an exception that `main` would not catch is raised here.

    Args:
        arguments: words after the program's name.
        env: variables that the command sees in addition.
    """
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
