"""Running commands in this process: much faster than a program, with the same output."""

from __future__ import annotations

import subprocess

from typer.testing import CliRunner

from grpodoctor.cli.main import app


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command; an exception that `main` would not catch is raised here."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
