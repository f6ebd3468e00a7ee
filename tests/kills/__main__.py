"""Kill trainings at random moments: `make kills`, `python -m tests.kills [--kills N] [--seed N]`.

Prints who was killed when, and how many finished steps were lost. The first broken promise ends it
with an error that names the folder, which is kept.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from tests.kills.killed_trainings import kill_runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    chosen = parser.parse_args()
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="grpodoctor-kills-"))
    print(f"seed {chosen.seed}, runs in {folder}", flush=True)
    outcome = kill_runs(folder, chosen.kills, chosen.seed, lambda line: print(line, flush=True))
    print("\n| killed | kills |\n|---|---:|")
    for name, count in sorted(outcome.kills.items()):
        print(f"| {name} | {count} |")
    print("\n| finished steps that were lost | kills |\n|---|---:|")
    for lost, count in sorted(outcome.lost.items()):
        print(f"| {lost} | {count} |")
    print(f"| no step was finished; the run began again | {outcome.restarts} |")
    print(f"\n{sum(outcome.kills.values())} kills of {outcome.runs} runs in "
          f"{time.monotonic() - began:.0f} seconds; all {outcome.runs} finished runs equal the "
          "whole one, bit by bit, and check finds no gap")  # fmt: skip
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
