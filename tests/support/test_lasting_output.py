"""Standard streams that outlive their reader."""

from __future__ import annotations

import subprocess
import sys


def test_output_after_a_closed_pipe_is_discarded() -> None:
    program = (
        "import sys; from grpodoctor.support.lasting_output import outlive_terminal\n"
        "outlive_terminal()\n"
        "sys.stdin.read()\n"
        "for _ in range(3): print('x' * 100_000, flush=True)\n"
        "print('alive', file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as done:
        assert done.stdout is not None
        assert done.stdin is not None
        assert done.stderr is not None
        done.stdout.close()
        done.stdin.close()
        assert done.stderr.read() == b"alive\n"
    assert done.returncode == 0


def test_output_is_discarded_even_without_a_free_descriptor() -> None:
    program = (
        "import os, resource, sys\n"
        "from grpodoctor.support.lasting_output import outlive_terminal\n"
        "outlive_terminal()\n"
        "sys.stdin.read()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "for _ in range(3): print('x' * 100_000, flush=True)\n"
        "os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
