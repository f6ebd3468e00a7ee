"""Processor time of `grpodoctor check`, start-up included, on a log of 300 steps.

The bytecode of the package is compiled first, as `pip install` does. Other programs that use the
processor's caches make the figures higher, so the lowest of several runs counts. The last line is
the time of a fixed amount of work in the same run.

    python tests/benchmarks/bench_check.py
"""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.peer import LOG, parse_seconds

STEPS = 300
REPEATS = 7
COMMANDS = {"--help": ["check", "--help"], "text": ["check"], "json": ["check", "--json"]}


def processor_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """User and system time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "grpodoctor", *arguments],
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the lowest and the median time of each command."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        with gzip.open(LOG) as packed:
            log.write_bytes(b"".join(packed.readlines()[:STEPS]))
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, arguments in COMMANDS.items():
            command = arguments if name == "--help" else [*arguments, str(log)]
            processor_seconds(command, environment)
            times = sorted(processor_seconds(command, environment) for _ in range(REPEATS))
            print(f"check {name:7} {times[0]:.2f} s, median {times[len(times) // 2]:.2f} s")
    print(f"json.loads of 3,000 rows {parse_seconds():.4f} s")


if __name__ == "__main__":
    main()
